"""Inference on this processor: what girih.optimize returns against the back ends alone, in one run.

What: 12 models that neither rules nor searches were made for (small configurations of `transformers`' own classes, of
weights at random), batches of 1, with 1 thread and 2; `--models` takes those of TASO, too. How: the optimised model,
the model in eager PyTorch, compiled by Inductor with frozen weights, and exported to ONNX Runtime and OpenVINO, all in
float32, each in a process of its own (sessions of one library share its threads), run in turns, measured anew after the
choice was made. A turn begins when that process is at rest, and goes on for 15 ms, of whose calls the later half
counts: a program calls one model again and again. Seconds are those of the faster rounds (the least fifth): a median of
a shared machine tells who else was there; with one thread they are the processor's. Against: the fastest of the four.
Which that is, half of the rounds say, and how fast it is, the other half: of four that are alike the luckiest would
always seem faster than a fifth. Each round has an order of its own.
Without rewrites: the same with the back end that girih.optimize found to run the model as it was the fastest, in the
place of the rewritten program that it chose; how much that gains is printed beside.
Floors: no model slower than 0.97 × the fastest; 1.0 × in geometric mean without rewrites, up to half a percent; and at
most 5 µs beyond the back end's own call of a model of two operators.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note

SIZES = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 1024}
WORDS = {"vocab_size": 1000, "max_position_embeddings": 128}
STAGES = {"hidden_sizes": [64, 128], "depths": [2, 2]}
FOUR = {"hidden_sizes": [32, 64, 160, 256], "depths": [1, 1, 1, 1]}
PICTURE, TEXT, SOUND = "picture", "text", "sound"
UNSEEN: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "regnet": ("RegNet", PICTURE, {**STAGES, "embedding_size": 32, "groups_width": 16, "layer_type": "y"}),
    "convnextv2": ("ConvNextV2", PICTURE, {**STAGES, "num_stages": 2}),
    "bit": ("Bit", PICTURE, {**STAGES, "embedding_size": 32, "num_groups": 8}),
    "poolformer": ("PoolFormer", PICTURE, FOUR),
    "segformer": ("Segformer", PICTURE, FOUR),
    "swin": ("Swin", PICTURE, {"image_size": 128, "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6],
                               "window_size": 4}),
    "vit": ("ViT", PICTURE, {**SIZES, "image_size": 128}),
    "distilbert": ("DistilBert", TEXT, {**WORDS, "dim": 256, "n_layers": 3, "n_heads": 4, "hidden_dim": 1024}),
    "albert": ("Albert", TEXT, {**WORDS, **SIZES, "embedding_size": 64}),
    "qwen3": ("Qwen3", TEXT, {**WORDS, **SIZES, "num_key_value_heads": 2, "head_dim": 64, "use_cache": False}),
    "deberta-v2": ("DebertaV2", TEXT, {**WORDS, **SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "wav2vec2": ("Wav2Vec2", SOUND, {**SIZES, "conv_dim": (128, 128, 128), "conv_kernel": (10, 3, 3),
                                     "conv_stride": (5, 4, 4), "num_conv_pos_embeddings": 16,
                                     "num_conv_pos_embedding_groups": 4}),
}  # fmt: skip
"""The name of the configuration's class, what the model reads, and options."""
SEEN = (
    "resnet-50", "resnext-50", "resnext-50-branches", "nasnet-4-44", "nasrnn", "bert-12-768", "inception", "squeezenet",
    "vgg", "densenet",
)  # fmt: skip
QUICK = ("squeezenet-tiny", "nasrnn-tiny")
PEERS = ("eager", "inductor", "onnxruntime", "openvino")
SECONDS, ROUNDS = 3.0, (20, 100)
SLOWER, NOISE = 0.97, 0.005
"""The least of a model, and by how much the mean may miss its floor: what two runs of the same models differ by."""
BEATS = 1.03
"""From here on a rewritten program has beaten the best runtime."""
MOST_BEYOND = 5.0
"""Microseconds of a call that are girih's own: is it the call, and the model, for which it was made?"""
CALLS, TURNS = 2000, 9
ENTERING = ("images", "tokens", "segments")
"""What a model is called with; all else of an example is for its loss."""


def called(name: str) -> tuple[Any, tuple[Any, ...]]:
    """(the model, what it is called with), weights and data at random."""
    import torch

    from girih.models import example

    torch.manual_seed(0)
    if name in UNSEEN:
        return unseen(*UNSEEN[name])
    options = {"sequence": 64} if name.startswith("bert") and "tiny" not in name else {}
    shown = example(name, batch=1, device="cpu", **options)
    return shown.module.eval(), tuple(shown.inputs[key] for key in ENTERING if key in shown.inputs)


def unseen(kind: str, reads: str, options: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    import torch
    import transformers

    class Answer(torch.nn.Module):
        """What the last layer makes, alone: a tensor, as all back ends return it."""

        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.AutoModel.from_config(getattr(transformers, f"{kind}Config")(**options))

        def forward(self, x: Any) -> Any:
            return self.model(x)[0]

    data = {
        PICTURE: lambda: torch.randn(1, 3, 128, 128),
        TEXT: lambda: torch.randint(5, WORDS["vocab_size"], (1, 64)),
        SOUND: lambda: torch.randn(1, 8000),
    }
    return Answer().eval(), (data[reads](),)


class Contestant:
    """girih, or a back end, with a model in a process of its own, as a program has it: sessions of one library share
    threads and caches where they live in one process.

    told: what the process says of itself: of girih, what it explains. why: it does not run the model.
    """

    def __init__(self, peer: str, name: str, threads: int, options: argparse.Namespace, names: tuple[str, ...]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "torch", "transformers"])
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=contest, args=(theirs, peer, name, threads, options, names))
        self.process.start()
        theirs.close()
        self.told: dict[str, Any] = self.pipe.recv()
        self.why = str(self.told.get("why", ""))

    def seconds(self) -> float:
        """Of a call in its turn."""
        self.pipe.send("turn")
        return float(self.pipe.recv())

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def contest(pipe: Any, peer: str, name: str, threads: int, options: argparse.Namespace, names: tuple[str, ...]) -> None:
    """In a process of its own: a call whenever it is asked for one."""
    import torch

    from girih.inference.trial import at_rest, turn_of

    torch.set_num_threads(threads)
    model, data = called(name)
    turn = turn_of(threads)
    try:
        run, told = (by_girih if peer == "girih" else partial(alone, peer))(model, data, threads, options, names)
        with torch.no_grad():
            run()
            pipe.send(told)
            with suppress(EOFError):
                while pipe.recv():
                    seconds = turn.seconds(run)
                    at_rest()  # threads that spin would take the next one's core
                    pipe.send(seconds)
    except Exception as error:
        pipe.send({"why": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"})


def by_girih(
    model: Any, data: tuple[Any, ...], threads: int, options: argparse.Namespace, names: tuple[str, ...]
) -> tuple[Callable[[], Any], dict[str, Any]]:
    import girih

    began = time.perf_counter()
    fast = girih.optimize(model, data, threads=threads, seconds=options.seconds, backends=(*names, "onednn"))
    explained = fast.explain()
    told = {
        "candidates": explained.candidates,
        "chosen": explained.chosen,
        "rewritten": explained.rewritten,
        "rewrites": len(explained.sequence),
        "took": time.perf_counter() - began,
    }
    return lambda: fast(*data), told


def alone(peer: str, model: Any, data: tuple[Any, ...], threads: int, *_: object) -> tuple[Callable[[], Any], Row]:
    """A back end without girih."""
    import torch

    from girih.inference.export import exported
    from girih.inference.runtimes.backends import RUNTIMES

    if peer == "eager":
        return lambda: model(*data), {}
    if peer == "inductor":
        compiled = torch.compile(model, options={"freezing": True})
        return lambda: compiled(*data), {}
    run = RUNTIMES[peer](exported(model, data).model_proto.SerializeToString(), threads, None)
    return lambda: run(*data), {}


def in_turn(runs: Mapping[str, Callable[[], Any]], threads: int) -> dict[str, float]:
    """Seconds of the faster rounds of each, all in this process."""
    from girih.inference.trial import quick, turn_of

    turns = {name: partial(turn_of(threads).seconds, run) for name, run in runs.items()}
    return {name: quick(times) for name, times in rounds(turns).items()}


def rounds(turns: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Seconds of each in each round but the first. Each round has an order of its own."""
    took: dict[str, list[float]] = {name: [] for name in turns}
    draw, began = random.Random(1), time.perf_counter()
    number, low, high = 0, *ROUNDS
    while number <= low or (number <= high and time.perf_counter() - began < SECONDS):
        for name in draw.sample(list(turns), len(turns)):
            took[name].append(turns[name]())
        number += 1
    return {name: times[1:] for name, times in took.items()}


def overheads(names: tuple[str, ...]) -> list[float]:
    """Microseconds that a call of an optimised model of two operators takes beyond the back end's own call, where that
    back end has won; eager's is the model's call as its user wrote it."""
    from unittest.mock import patch

    import torch

    import girih
    from girih.inference import trial
    from girih.inference.export import exported
    from girih.inference.runtimes.backends import installed
    from girih.inference.runtimes.libraries import LIBRARIES

    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()).eval(), torch.randn(4, 16)
    beyond = []
    for name in installed([name for name in names if name in ("eager", *LIBRARIES)]):
        alone: Callable[[], Any] = partial(model, x)
        if name != "eager":
            program = exported(model, (x,)).model_proto.SerializeToString()
            alone = partial(LIBRARIES[name](program, 1, {}), x.numpy())
        with patch.multiple(trial, FAR=math.inf, SECONDS=0.0, choice=lambda took: 1):
            fast = girih.optimize(model, x, threads=1, seconds=0.1, backends=(name,))
        with torch.no_grad():
            own, bare, eager = _microseconds(partial(fast, x), alone, partial(model, x))
        (graded,) = _microseconds(partial(fast, x))
        beyond.append(own - bare)
        row = {
            "a call of a tiny model by": name,
            "µs": own,
            "where gradients are on": graded,
            "alone": bare,
            "beyond": own - bare,
            "eager PyTorch": eager,
        }
        note({key: value if isinstance(value, str) else round(value, 1) for key, value in row.items()})
    return beyond


def _microseconds(*runs: Callable[[], Any]) -> list[float]:
    """Of the processor, a call of each, in turns."""
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(TURNS):
        for run, times in zip(runs, took, strict=True):
            began = time.process_time()
            for _ in range(CALLS):
                run()
            times.append(time.process_time() - began)
    return [min(times) / CALLS * 1e6 for times in took]


def measured(name: str, threads: int, options: argparse.Namespace, names: tuple[str, ...]) -> Row:
    began = time.perf_counter()
    backends = tuple(item for item in names if item in (options.peers or names))
    runs = {peer: Contestant(peer, name, threads, options, backends) for peer in ("girih", *backends)}
    try:
        for peer in [peer for peer, run in runs.items() if run.why]:
            if peer == "girih":
                raise RuntimeError(runs[peer].why)
            note({"does not run": peer, "why": runs.pop(peer).why})  # a compiler may need more memory than there is
        row = compared(rounds({peer: run.seconds for peer, run in runs.items()}), runs["girih"].told)
    finally:
        for run in runs.values():
            run.close()
    return {"model": name, "threads": threads, **row, "seconds": round(time.perf_counter() - began, 1)}


def compared(times: Mapping[str, list[float]], told: Mapping[str, Any]) -> Row:
    """girih beside the others. told: what it explains."""
    from girih.inference.optimized import AS_IT_WAS
    from girih.inference.trial import quick

    first, seconds = (
        {peer: quick([took for turn, took in enumerate(each) if turn % 2 == half])
         for peer, each in times.items()}
        for half in (0, 1)
    )  # fmt: skip
    best = min((peer for peer in times if peer != "girih"), key=first.__getitem__)
    gain = seconds[best] / seconds["girih"]
    chosen = told["chosen"]
    plain = "girih"
    if told["rewritten"]:
        same = [item for item in told["candidates"] if item.program == AS_IT_WAS and item.backend in times]
        plain = min(same, key=lambda item: math.inf if item.seconds is None else item.seconds).backend
    return {
        "ms": round(seconds["girih"] * 1e3, 3),
        "best / girih": round(gain, 3),
        "without rewrites": round(seconds[best] / seconds[plain], 3),
        "rewrites gain": round(seconds[plain] / seconds["girih"], 3),
        "rewritten won": told["rewritten"],
        "best": best,
        **{
            f"{peer} / girih": round(seconds[peer] / seconds["girih"], 2) if peer in seconds else None for peer in PEERS
        },
        "rewrites": told["rewrites"],
        "chosen": f"{chosen.program}, {chosen.backend}",
        "seconds to optimise": round(told["took"], 1),
    }


def said(rows: list[Row]) -> str:
    """Of how many models rewrites of ours beat the best runtime, and of which."""
    every = {row["model"] for row in rows}
    beaten = {row["model"] for row in rows if row["rewritten won"] and row["best / girih"] >= BEATS}
    if not beaten:
        return f"no rewrite of ours beats the best runtime by {BEATS - 1:.0%} on any of {len(every)} models"
    return (
        f"rewrites of ours beat the best runtime by {BEATS - 1:.0%} or more on {len(beaten)} of {len(every)} models "
        f"({', '.join(sorted(beaten))})"
    )


def measure(options: argparse.Namespace) -> Report:
    import torch

    rows: list[Row] = []
    misses = []
    before = torch.get_num_threads()
    names = ("eager",) if options.quick else PEERS
    for name in QUICK if options.quick else options.models or UNSEEN:
        for threads in options.threads or ((1,) if options.quick else (1, 2)):
            row = measured(name, threads, options, names)
            rows.append(row)
            note(row)
            if not options.quick and row["best / girih"] < SLOWER:
                misses.append(f"{name}, {threads} threads: {row['best / girih']:.2f} × {row['best']}")
    torch.set_num_threads(1)
    beyond = max(overheads(options.peers or names))
    torch.set_num_threads(before)
    if not options.quick and beyond > MOST_BEYOND:
        misses.append(f"{beyond:.1f} µs beyond a back end's own call of a tiny model, expected {MOST_BEYOND} at most")
    mean, plain, gained = (
        math.exp(statistics.fmean(math.log(row[key]) for row in rows))
        for key in ("best / girih", "without rewrites", "rewrites gain")
    )
    if not options.quick and plain < options.floor - NOISE:
        misses.append(f"{plain:.3f} × the best back end in geometric mean without rewrites, floor {options.floor}")
    return Report(
        "Optimised inference",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{mean:.3f} × the best back end in geometric mean of {len(rows)}, {plain:.3f} × without rewrites, whose own "
        f"gain is {gained:.3f} ×; {said(rows)}; a call takes {beyond:.1f} µs beyond its own",
        tuple(misses),
        notes=(said(rows),),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=4.0, help="of each search (default 4)")
    models = f"only these, of {', '.join(UNSEEN)}, and of TASO's time {', '.join(SEEN)}"
    parser.add_argument("--models", nargs="*", choices=(*UNSEEN, *SEEN), help=models)
    parser.add_argument("--threads", nargs="*", type=int, help="only these (default 1 and 2)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="only these back ends (default all)")


BENCHMARK = Benchmark(
    "optimize_cpu", __doc__ or "", measure, 1.0, "least gain over the best back end without rewrites, geometric mean",
    add_options,
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
