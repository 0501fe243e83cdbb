"""`girih optimize`: a model's operators rewritten so that inference is faster on this machine."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any, NoReturn

from girih.api import plan
from girih.cli.predicting import store_path
from girih.cli.programs import NamedProgram, ProgramError, is_file, program
from girih.cli.rewrite import explained
from girih.cli.terminal import TerminalProgress
from girih.host import memory_here
from girih.inference.facade import optimize, read_exported, read_onnx
from girih.machine.units import format_bytes
from girih.plans.rewritten import Rewriting
from girih.rewrite.prove import proved
from girih.rewrite.rules.rule import Rule, RuleError
from girih.workshop.files import read_rules


class _CalledError(Exception):
    """What a model was called with, instead of its results."""


def optimize_program(options: argparse.Namespace, progress: TerminalProgress) -> tuple[dict[str, Any], list[str]]:
    """Numbers for --json, and lines for people."""
    from girih.inference.optimized import BACKENDS

    kind = "".join(Path(options.output or "").suffixes[-2:])
    if options.output and not kind.endswith(tuple(WRITTEN)):
        raise ProgramError(f"{options.output}: expected a name that ends in {', '.join(WRITTEN)}")
    planned = kind.endswith((".json", ".json.gz"))
    if planned and (options.search != "backtracking" or options.backends or options.threads):
        raise ProgramError(
            f"{options.output} is a plan: it is priced by a data sheet and searched by backtracking, so that "
            "--search saturation, --backends and --threads do not go with it"
        )
    backends = None if options.backends is None else options.backends.split(",")
    if unknown := [item for item in backends or () if item not in BACKENDS]:
        raise ProgramError(f"no back end {unknown[0]!r}: there are {', '.join(BACKENDS)}")
    if options.rules is not None:
        read_rules(Path(options.rules))
    name, model, example = _model(options)
    rules = None if options.rules is None else proved_rules(Path(options.rules), progress)
    if planned:
        return _planned(options, name, model, example, rules or (), progress)
    fast = optimize(
        model,
        example,
        threads=options.threads,
        search=options.search,
        seconds=options.budget,
        alpha=options.alpha,
        backends=backends,
        rules=rules,
        store=store_path(options.store),
        progress=progress,
    )
    explanation = fast.explain()
    lines = str(explanation).splitlines()
    if options.output:
        progress("write", 0.0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fast.save(options.output)
        lines.append(f"written to {options.output}: {WRITTEN[Path(options.output).suffix]}")
        lines += [str(item.message) for item in told if str(item.message).startswith(Path(options.output).name)]
    numbers = {
        "model": name,
        "threads": explanation.threads,
        "operators": explanation.nodes,
        "kernel_seconds": [explanation.before, explanation.cost],
        "search": options.search,
        "bound": explanation.certificate.bound,
        "gap": None if explanation.certificate.gap == float("inf") else explanation.certificate.gap,
        "stopped": explanation.certificate.stopped,
        "layouts": dict(explanation.found.choice.layouts),
        "sequence": [str(step.rule) for step in explanation.sequence],
        "candidates": [vars(item) for item in explanation.candidates],
        "chosen": vars(explanation.chosen),
        "speedup": explanation.speedup,
        "output": options.output,
    }
    return numbers, lines


WRITTEN = {
    ".pt2": "torch.export.load(…).module() runs it",
    ".onnx": "ONNX Runtime, OpenVINO and others run it",
    ".girih": "girih.load_optimized(…) runs it",
    ".json": "girih run runs it",
    ".json.gz": "girih run runs it",
}
"""What may be written, by the end of its name, and who runs it."""


def _model(options: argparse.Namespace) -> tuple[str, Any, Any]:
    """(its name, the module, what it is called with) of a model by name, a file's function, an ONNX file or a .pt2."""
    if not options.model.endswith(".onnx"):
        if options.size:
            raise ProgramError(f"--size {options.size[0]} is for ONNX files, which name their dimensions")
        if options.model.endswith(".pt2"):
            if options.batch is not None:
                raise ProgramError(f"--batch {options.batch} is for models by name: a .pt2 brings its example")
            exported = read_exported(options.model, trust=options.trust)
            if exported.example is None:
                raise ProgramError(f"{options.model} brings no example of its inputs: export it with one")
            return options.model, exported, exported.example
        _check_size(options.model, options.batch)
        named = program(options.model, options.batch, device="cpu")
        return named.name, named.step.model.eval(), called_with(named)
    if options.batch is not None:
        raise ProgramError(f"--batch {options.batch} is for models by name: say --size NAME=N for an open dimension")
    sizes = {}
    for item in options.size:
        key, _, number = item.partition("=")
        if not key or not number.isdecimal() or not 0 < int(number) < 1 << 31:
            raise ProgramError(f"no size {item!r}: expected NAME=N, as in batch=1")
        sizes[key] = int(number)
    model = read_onnx(options.model, sizes=sizes)
    return options.model, model, tuple(model.example.values())


def _planned(
    options: argparse.Namespace,
    name: str,
    model: Any,
    example: Any,
    rules: tuple[Rule, ...],
    progress: TerminalProgress,
) -> tuple[dict[str, Any], list[str]]:
    """The rewritten program as a plan for one device."""
    from girih.capture import Inference

    made = plan(
        Inference(model),
        example,
        machine="local:1",
        compare=(),
        rewrite=Rewriting(options.alpha, options.budget, rules),
    ).but(model=name)
    progress("write", 0.0)
    made.save(options.output)
    lines = [*explained(made), f"written to {options.output}: {WRITTEN['.json']}"]
    return {"model": name, "rewrites": [vars(item) for item in made.choice.rewrites], "output": options.output}, lines


def proved_rules(path: Path, progress: TerminalProgress) -> tuple[Rule, ...]:
    """The rules of a file, with the shapes for which they are proved.

    Raises:
        RuleError: what is none, or is not proved; nothing of the file is used then.
    """
    read = read_rules(path)
    try:
        rules = proved(read, lambda number: progress(f"proving {path}", number / len(read)))
    except RuleError as error:
        raise RuleError(f"{path}: {error}") from error
    if not rules:
        raise RuleError(f"{path} has no rules")
    return rules


def _check_size(name: str, batch: int | None) -> None:
    """Raises ProgramError for a model by name whose weights this host has no memory for."""
    if is_file(name):
        return
    weights = sum(item.numel() * item.element_size() for item in program(name, batch).step.model.parameters())
    memory = memory_here()
    if 2 * weights > memory:
        raise ProgramError(
            f"{name} has {format_bytes(weights)} of weights, and this host {format_bytes(memory)} of memory: "
            "twice the weights must fit"
        )


def called_with(named: NamedProgram) -> Any:
    """The tensors that a program's step or inference calls its model with, as `girih.optimize` takes them.

    Raises:
        ProgramError: of an inference that calls the model in its own way.
    """
    from girih.capture import Inference

    if isinstance(named.step, Inference):
        if named.step.call is not None:
            raise ProgramError(f"{named.name} calls its model by a function of its own: return girih.Inference(model)")
        return named.batch

    def model(*batch: Any, **keywords: Any) -> NoReturn:
        raise _CalledError(batch, keywords)

    try:
        named.step.forward(model, named.batch)
    except _CalledError as error:
        batch, keywords = error.args
        if batch and keywords:
            raise ProgramError(
                f"{named.name} calls its model by position and by name: one of the two, please"
            ) from None
        return keywords or batch
    raise ProgramError(f"{named.name} does not call its model")
