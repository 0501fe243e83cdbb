"""The command line: `girih plan`, `girih run`, …; every command has --help with an example and --json for programs.

Exit codes: 0 done; 1 a verification or a worker failed; 2 bad input, with one clear line; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, NoReturn

from girih import __version__
from girih.cli.arguments import (
    alpha,
    count,
    device_number,
    did_you_mean,
    memory,
    name,
    proposer,
    rate,
    seconds,
    seed,
    share,
    steps_done,
)
from girih.run.engines.engine import CALIBRATED, TRAINING
from girih.search.table import BASELINES, HOLDS, SEARCHES

OPTIMIZERS = (
    "sgd",
    "momentum",
    "adam",
    "adamw",
    "adagrad",
    "rmsprop",
    "adadelta",
    "adamax",
    "radam",
    "nadam",
    "asgd",
    "rprop",
    "adafactor",
)


class Parser(argparse.ArgumentParser):
    """One line for an error, with what may have been meant."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # What argparse takes for a value, not for an option: by its own pattern -1 alone, not -1MB.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}{'' if message.endswith('?') else ';'} see {self.prog} --help\n")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and arg_strings == ["--"]:  # argparse makes an empty list of it
            raise argparse.ArgumentError(action, "expected a value, got '--'")
        return super()._get_values(action, arg_strings)  # type: ignore[misc]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(map(str, action.choices))
            near = did_you_mean(str(value), known) or f": expected one of {', '.join(known)}"
            raise argparse.ArgumentError(action, f"no {value!r}{near}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            commands = next(item for item in self._actions if isinstance(item, argparse._SubParsersAction))
            chosen = commands.choices[options.command]
            near = did_you_mean(unknown[0].partition("=")[0], chosen._option_string_actions)
            chosen.error(f"no argument {unknown[0]!r}{near}")
        return options


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="girih",
        description="Lay a machine-learning program written for one device out over many, with a certificate.",
        epilog="first: girih models; girih plan gpt-tiny --machine local:4 -o plan.json; girih run plan.json",
    )
    top.add_argument("--version", action="version", version=f"girih {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    models = _command(commands, "models", "list the models that can be planned by name", "girih models")
    models.add_argument("name", nargs="?", type=name, help="show one model: its size and batch")

    machines = _command(commands, "machines", "list the machines that plans can be made for", "girih machines 2x4")
    machines.add_argument("name", nargs="?", type=name, help="show one machine")

    _command(commands, "searches", "list the searches for plans, with their options", "girih searches")

    _command(commands, "holds", "list the ways to keep a memory limit, with their options", "girih holds")

    plan = _command(
        commands, "plan", "plan a model over a machine",
        "girih plan wresnet-50-2-32 --batch 32 --machine local:4 --memory 600MB -o plan.json",
    )  # fmt: skip
    plan.add_argument("model", metavar="MODEL", type=name, help="a name from `girih models`, or file.py:function that "
                      "returns a TrainingStep and a batch")  # fmt: skip
    plan.add_argument("--batch", type=count, help="examples in a batch, for models by name (default: the model's)")
    plan.add_argument("--micro-batches", type=count, metavar="N", help="cut the batch into N equal parts and add up "
                      "their gradients; --search pipeline sends them through stages, and pipeline-1f1b in less "
                      "memory")  # fmt: skip
    plan.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="of computing, with "
                      "parameters and optimizer state in float32: bf16 and fp16 run the forward pass under "
                      "torch.autocast (default fp32)")  # fmt: skip
    plan.add_argument("--machine", "-m", type=name, default="local:2", help="local:N, cuda:N (GPUs of this "
                      "host), HOSTSxDEVICES or a preset (default local:2)")  # fmt: skip
    plan.add_argument(
        "--memory",
        type=memory,
        help="hard limit for each device, as 600MB or 1.5GiB, or unlimited (default: what the machine's devices have)",
    )
    plan.add_argument("--hold", type=proposer("baseline", HOLDS), default="auto", metavar="NAME[:OPTION=VALUE,...]",
                      help="where the limit is too small for every division: move tensors to the large memory behind "
                      "the device and back (swap), drop them and compute them again (recompute), whatever of both is "
                      "fastest (auto), refuse (none; default auto), or as published: "
                      + ", ".join(BASELINES))  # fmt: skip
    plan.add_argument("--order", type=proposer("order", ("auto",)), default="auto", metavar="NAME[:OPTION=VALUE,...]",
                      help="the order of the steps in that case: captured, early, least, depth-first, depth-guided or "
                      "depth-first-guided (default auto: the best of several)")  # fmt: skip
    plan.add_argument("--search", type=proposer("search"), metavar="NAME[:OPTION=VALUE,...]",
                      help="how to search, with the search's options, as exact:seconds=10 (default: portfolio; exact "
                      "by other objectives than time, and with --seconds): "
                      + ", ".join(SEARCHES))  # fmt: skip
    plan.add_argument("--objective", choices=("bytes", "seconds", "time"), default="time",
                      help="what to minimise: the simulated time of a step, in which transfers overlap and operators "
                      "may be placed (time, default), roofline seconds, or bytes moved where all work is divided and "
                      "every tensor held once, as Tofu has it (bytes)")  # fmt: skip
    _store(plan)
    plan.add_argument("--rewrite", action="store_true", help="rewrite the graph by proved rules before it is divided; "
                      "the plan keeps them")  # fmt: skip
    plan.add_argument("--exact", action="store_true", help="the bits of PyTorch's own step, by its own kernels, on "
                      "local:1; to train by it: girih run --program, or girih.fit(exact=True)")  # fmt: skip
    plan.add_argument("--optimizer", choices=OPTIMIZERS,
                      help="for models by name (default momentum)")  # fmt: skip
    plan.add_argument(
        "--seconds", type=seconds, help="most seconds to search, and for each to compare with (default 60)"
    )
    plan.add_argument("--budget", type=seconds, dest="seconds", metavar="SECONDS", help="the same as --seconds")
    plan.add_argument(
        "--no-compare",
        action="store_true",
        help="do not price one device, data parallelism, its sharded form and Megatron-LM's division beside",
    )
    plan.add_argument("--fresh", action="store_true", help="capture the model again; models by name that were captured "
                      "before are read from ~/.cache/girih/captured")  # fmt: skip
    plan.add_argument("--output", "-o", type=name, help="write the plan here")

    show = _command(commands, "show", "show a plan", "girih show plan.json --tensors")
    show.add_argument("plan", metavar="PLAN", type=name)
    what = show.add_mutually_exclusive_group()
    what.add_argument("--tensors", action="store_true", help="how every tensor lies")
    what.add_argument("--operators", action="store_true", help="how every operator is divided")
    what.add_argument("--choice", action="store_true", help="all that was chosen: divisions, pieces, order, movements")
    what.add_argument("--graph", action="store_true", help="the captured graph as text")
    what.add_argument("--memory", action="store_true", help="the bytes in use over a step, and which storages lie on a "
                      "device when, go out and come back")  # fmt: skip
    show.add_argument("--device", type=device_number, metavar="K", help="the instructions of device K, or with "
                      "--memory its memory (default there: 0)")  # fmt: skip

    run = _command(
        commands, "run", "train by a plan on real workers, on random data and weights",
        "girih run plan.json --steps 3 --verify",
    )  # fmt: skip
    run.add_argument("plan", metavar="PLAN", type=name)
    run.add_argument("--steps", type=count, default=3, help="how many steps (default 3)")
    run.add_argument("--backend", choices=TRAINING, default="processes", help="where the workers live (default "
                     "processes; the ranks, under torchrun)")  # fmt: skip
    run.add_argument("--device", metavar="cpu|cuda", type=name, help="where the workers compute: cpu, cuda (a GPU for "
                     "each), or one GPU, as cuda:1 (default: cuda for a plan of cuda:N, else cpu)")  # fmt: skip
    run.add_argument("--verify", action="store_true", help="run the undivided program beside it and compare everything")
    run.add_argument("--lr", type=rate, help="learning rate (default: the planned optimizer's)")
    run.add_argument("--seed", type=seed, default=0, help="of weights, data and random operators (default 0)")
    run.add_argument("--program", metavar="FILE.py:FUNCTION", type=name, help="take weights and batch of what "
                     "FUNCTION returns, as girih plan takes it; so comes the graph of a graph network")  # fmt: skip
    run.add_argument("--save", metavar="DIR", type=name, help="write a sharded checkpoint at the end")
    run.add_argument("--resume", metavar="DIR", type=name, help="go on from a checkpoint")
    run.add_argument("--arena", choices=("auto", "on", "strict", "off"), default="auto", help="everything of a step at "
                     "its planned address in one region of memory: where the plan has a limit (auto), always (on), so "
                     "that all else is refused (strict), or never (off)")  # fmt: skip
    run.add_argument("--measure", action="store_true", help="measure every instruction of the last step, and show "
                     "measured beside predicted seconds, operator by operator")  # fmt: skip
    _store(run)
    run.add_argument(
        "--timeout", type=seconds, default=120.0, help="seconds after which a silent worker counts as hung"
    )

    kept = _command(
        commands, "checkpoint", "show, verify, export or import a checkpoint", "girih checkpoint verify checkpoint"
    )
    kept.add_argument("action", choices=("show", "verify", "export", "import"),
                      help="show DIR; verify DIR, every byte; export DIR NEW and import DIR NEW convert to and from "
                      "torch.distributed.checkpoint")  # fmt: skip
    kept.add_argument("directories", metavar="DIR", nargs="+", type=name)
    kept.add_argument("--step", type=steps_done, default=0,
                      help="import: steps done, where DIR does not say it (default 0)")  # fmt: skip
    kept.add_argument("--seed", type=seed, default=0, help="import: of the run, where DIR does not say it (default 0)")

    compare = _command(commands, "compare", "put plans side by side", "girih compare a.json b.json")
    compare.add_argument("plans", metavar="PLAN", nargs="+", type=name)
    compare.add_argument("--as-parallelized", action="store_true", help="PLAN is file.py:function, which lays its "
                         "model out by fully_shard or parallelize_module as under torchrun, and returns a TrainingStep "
                         "and the whole batch: put what that costs beside girih's plan")  # fmt: skip
    compare.add_argument("--machine", "-m", type=name, help="of as many devices as there are ranks (default local:2)")
    compare.add_argument("--objective", choices=("bytes", "seconds", "time"), help="what girih's plan minimises "
                         "(default time)")  # fmt: skip
    compare.add_argument("--seconds", type=seconds, help="most seconds to search (default 60)")
    compare.add_argument("--output", "-o", type=name, help="write girih's plan here")
    _store(compare)

    calibrate = _command(
        commands, "calibrate", "measure this machine: operators, links and copies, for predictions",
        "girih calibrate --machine local:4 plan.json",
    )  # fmt: skip
    calibrate.add_argument("plans", metavar="PLAN", nargs="*", type=name, help="plans whose operators are measured too")
    calibrate.add_argument("--machine", "-m", type=name, help="local:N or cuda:N (default: the plans' "
                           "machine, or local:2)")  # fmt: skip
    calibrate.add_argument("--backend", choices=CALIBRATED, default="processes", help="whose workers are measured "
                           "(default processes)")  # fmt: skip
    calibrate.add_argument("--seconds", type=seconds, default=60.0, help="how long to measure, about (default 60)")
    calibrate.add_argument("--again", action="store_true", help="measure again what is known")
    calibrate.add_argument("--forget", action="store_true",
                           help="forget what was measured: predictions go by data sheets again")  # fmt: skip
    _store(calibrate)

    simulate = _command(
        commands, "simulate", "price a plan by simulating its program",
        "girih simulate plan.json --machine 2x4",
    )  # fmt: skip
    report = _command(commands, "report", "write a plan as one page to look at", "girih report plan.json -o plan.html")
    report.add_argument(
        "--output", "-o", required=True, type=name, help="the page (HTML), without any need of a network"
    )
    trace = _command(
        commands, "trace", "write a plan's timeline for Perfetto or chrome://tracing",
        "girih trace plan.json -o trace.json.gz",
    )  # fmt: skip
    trace.add_argument(
        "--output", "-o", required=True, type=name, help="the trace (JSON; compressed if it ends in .gz)"
    )
    for command in (simulate, report, trace):
        command.add_argument("plan", metavar="PLAN", type=name)
        command.add_argument(
            "--machine", "-m", type=name, help="another machine with the plan's mesh (default: the plan's)"
        )
        _store(command)
    for command in (report, trace):
        command.add_argument("--measure", action="store_true",
                             help="run two steps on this host's processes and show them as measured")  # fmt: skip

    export = _command(
        commands, "export", "write a plan as a program that PyTorch runs without girih",
        "girih export plan.json --to fx -o step.py",
    )  # fmt: skip
    export.add_argument("plan", metavar="PLAN", type=name)
    export.add_argument("--to", choices=("fx", "dtensor"), default="fx", help="fx: one file of ATen operators and "
                        "collectives for torchrun, with the state beside it; dtensor: placements of DTensor, by which "
                        "PyTorch divides the module itself (default fx)")  # fmt: skip
    export.add_argument("--output", "-o", required=True, type=name, metavar="FILE", help="fx: the program (.py); its "
                        "state comes beside it, with the ending .pt. dtensor: the placements (.json)")  # fmt: skip
    export.add_argument("--resume", metavar="DIR", type=name, help="fx: a checkpoint with which it begins (default: "
                        "new weights, by the plan's recipes)")  # fmt: skip
    export.add_argument("--seed", type=seed, default=0, help="fx: of weights and random operators (default 0)")
    export.add_argument("--device", choices=("cpu", "cuda"), help="fx: where it computes (default: as the plan's "
                        "machine)")  # fmt: skip

    for command in (show, run, compare, calibrate, simulate, report, trace, export):
        command.add_argument("--trust", action="store_true", help="let the plans name functions to import and other "
                             "libraries' operators: only for files whose writer you trust")  # fmt: skip

    optimize = _command(
        commands, "optimize", "rewrite a model's operators so that inference is faster on this machine",
        "girih optimize squeezenet --batch 1 --threads 1 -o faster.pt2",
    )  # fmt: skip
    optimize.add_argument("model", metavar="MODEL", type=name, help="a name from `girih models`, a file.py:function "
                          "that returns a girih.Inference (or TrainingStep) and a batch, a .onnx or .pt2")  # fmt: skip
    optimize.add_argument("--batch", type=count, help="examples in a batch, for models by name (default: the model's)")
    optimize.add_argument("--threads", type=count, help="PyTorch's threads while it is measured (default: all)")
    optimize.add_argument(
        "--search",
        choices=("backtracking", "saturation"),
        default="backtracking",
        help="how rewrites are searched (default: backtracking)",
    )
    optimize.add_argument("--budget", type=seconds, default=60.0, metavar="SECONDS", help="most seconds to search; "
                          "compiling and measuring come on top (default 60)")  # fmt: skip
    optimize.add_argument("--alpha", type=alpha, default=1.05, help="look at graphs that cost up to so many times the "
                          "cheapest's (default 1.05)")  # fmt: skip
    optimize.add_argument("--backends", type=name, metavar="NAME,...", help="what the program may run on, of eager, "
                          "onednn, inductor, onnxruntime and openvino (default: all that are installed)")  # fmt: skip
    optimize.add_argument("--size", action="append", default=[], type=name, metavar="NAME=N",
                          help="of a dimension that an ONNX file names and leaves open")  # fmt: skip
    optimize.add_argument("--trust", action="store_true", help="read a .pt2, which PyTorch unpickles and evaluates: "
                          "only a file whose writer you trust")  # fmt: skip
    _store(optimize)
    optimize.add_argument("--rules", type=name, metavar="FILE", help="rewrite by these instead of girih's own; each is "
                          "proved first, or the file refused")  # fmt: skip
    optimize.add_argument("--output", "-o", type=name, help="write the program that won here (.pt2, .onnx), "
                          "or a plan of the rewritten one for one device (.json)")  # fmt: skip

    rewrite = _command(
        commands, "rewrite", "generate rules by which graphs are rewritten, prove them, or refute them",
        "girih rewrite prove 'mm(a, mm(b, c)) == mm(mm(a, b), c)'",
    )  # fmt: skip
    rewrite.add_argument("action", choices=("prove", "rules", "explain"), help="prove RULE or FILE: print the proof, "
                         "or the tensors for which both sides differ; rules: generate rules, prove and list them; "
                         "explain PLAN: the rules by which a plan's graph was rewritten, with proofs")  # fmt: skip
    rewrite.add_argument("rules", metavar="RULE|FILE|PLAN", nargs="*", type=name, help="to be proved: a rule, one side "
                         "== other side, or a file of rules, as text or TASO's protobuf; or a plan")  # fmt: skip
    rewrite.add_argument("--operators", type=name, metavar="NAME,...", help="generate rules of these (default: TASO's "
                         "Table 2.1, 'table'); or with attributes, as 'mm, cat(dim=1)'")  # fmt: skip
    rewrite.add_argument("--size", type=count, default=3, help="most operators of a side, up to 5 (default 3)")
    rewrite.add_argument("--limit", type=count, metavar="N", help="stop after so many rules")
    rewrite.add_argument("--z3", action="store_true", help="have Z3 judge too what is to be proved, for all tensors of "
                         "small sizes (extra 'proofs')")  # fmt: skip
    rewrite.add_argument("--output", "-o", type=name, help="write the rules that are proved: `girih optimize --rules` "
                         "and `girih rewrite prove` read it")  # fmt: skip

    gnn = _command(
        commands, "gnn", "look at a graph, cut it, train a graph network on it, or infer with one",
        "girih gnn train karate --network gcn --hidden 16 --epochs 50 -o karate.pt",
    )  # fmt: skip
    gnn.add_argument("action", choices=("info", "partition", "train", "infer"), help="info: what the graph has, and "
                     "what was mended; -o FILE.npz writes it as one mapped file. partition: pieces of equal cost. "
                     "train: a network on the whole graph; -o FILE.pt writes it. infer: the classes that a trained "
                     "network gives; -o FILE.csv or FILE.npy writes them")  # fmt: skip
    gnn.add_argument("data", metavar="FILE", type=name, help="an .npz, planetoid's ind.NAME.* files, an edge list "
                     "(.txt, .csv, .tsv, .gz), .parquet or .mtx; or karate, community:vertices=1000, rmat:…, grid:…, "
                     "barabasi_albert:…")  # fmt: skip
    gnn.add_argument("--features", type=name, metavar="FILE", help="a row for each vertex (.npy, .csv, .txt), for "
                     "graphs without")  # fmt: skip
    gnn.add_argument("--labels", type=name, metavar="FILE", help="a number from 0 for each vertex (.npy, .csv, .txt)")
    gnn.add_argument("--vertices", type=count, help="how many there are, where an edge list does not say")
    gnn.add_argument("--undirected", action="store_true", help="each edge of a list counts in both directions")
    gnn.add_argument("--self-loops", choices=("keep", "drop", "error"), default="keep",
                     help="edges from a vertex to itself (default keep)")  # fmt: skip
    gnn.add_argument("--duplicates", choices=("sum", "drop", "keep", "error"), help="edges that occur several times "
                     "(default: weights are added up, edges without any are dropped)")  # fmt: skip
    gnn.add_argument("--network", choices=("gcn", "sage", "gin", "gat", "commnet", "residual-gcn"), default="gcn",
                     help="what is trained (default gcn)")  # fmt: skip
    gnn.add_argument("--hidden", type=count, default=64, help="numbers of each vertex between layers (default 64)")
    gnn.add_argument("--layers", type=count, default=2, help="aggregations (default 2)")
    gnn.add_argument("--heads", type=count, help="of attention, for gat (default 1)")
    gnn.add_argument("--dropout", type=share, default=0.0, help="share of hidden numbers that are set to 0 in training "
                     "(default 0)")  # fmt: skip
    gnn.add_argument("--epochs", type=count, help="train: how many (default 200)")
    gnn.add_argument("--lr", type=rate, default=0.01, help="Adam's learning rate (default 0.01)")
    gnn.add_argument("--weight-decay", type=rate, default=0.0, help="Adam's (default 0)")
    gnn.add_argument("--every", type=count, metavar="N", help="print the accuracy after every N epochs (default: ten "
                     "times)")  # fmt: skip
    gnn.add_argument("--seed", type=seed, default=0, help="of initial weights and dropout (default 0)")
    gnn.add_argument("--machine", "-m", type=name, default="local:1", help="local:N or a preset (default local:1)")
    gnn.add_argument("--memory", type=memory, help="hard limit for each device, as 600MB; and of what edges take while "
                     "a list is sorted (default there: 2GB)")  # fmt: skip
    gnn.add_argument("--backend", choices=TRAINING, help="where the workers live (default: threads for one device, "
                     "else processes)")  # fmt: skip
    gnn.add_argument("--save", metavar="DIR", type=name, help="train: write a checkpoint at the end")
    gnn.add_argument("--resume", metavar="DIR", type=name, help="train: go on from a checkpoint")
    gnn.add_argument("--weights", metavar="FILE", type=name, help="infer, train: the network that train -o wrote")
    gnn.add_argument("--pieces", type=count, help="partition: how many (default 2)")
    gnn.add_argument("--cost", type=name, metavar="edges|vertices|FILE", help="partition: what pieces have as much of, "
                     "or a learned cost model (default edges)")  # fmt: skip
    gnn.add_argument("--order", type=name, metavar="NAME,...", help="partition: how vertices are numbered before, "
                     "given, degree, dealt, bfs, rcm, metis or kahip; the best of several (default given)")  # fmt: skip
    gnn.add_argument("--output", "-o", type=name, help="write the graph, the network, the classes or the pieces")

    ops = _command(commands, "ops", "count the operators that girih can divide", "girih ops gpt-tiny")
    ops.add_argument("models", metavar="MODEL", nargs="*", type=name, help="count the operators of these models too")
    return top


def _store(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--store", metavar="FILE", type=name, help="measured costs (default: ~/.cache/girih/costs.sqlite)"
    )


def _command(commands: argparse._SubParsersAction, name: str, about: str, example: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=about[0].upper() + about[1:] + ".", epilog=f"example: {example}"
    )
    command.add_argument("--json", action="store_true", help="print JSON for programs")
    command.add_argument("--traceback", action="store_true", help="show where in the code an error came from")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")  # what an ASCII locale has no letter for is no reason to say nothing
    options = parser().parse_args(arguments)
    from girih.cli import commands
    from girih.cli.terminal import clear_errors

    try:
        with clear_errors():
            code = int(getattr(commands, options.command)(options))
        sys.stdout.flush()  # while it can be told that nobody reads it any more
        return code
    except KeyboardInterrupt:
        print("girih: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # Python would write the rest at its end, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (commands.BadInputError, commands.FailedRunError) as error:
        if options.traceback:
            raise
        bad = isinstance(error, commands.BadInputError)
        message = " ".join(str(error).split()) if bad else str(error)
        print(f"girih {options.command}: {message}", file=sys.stderr)
        return 2 if bad else 1


if __name__ == "__main__":
    raise SystemExit(main())
