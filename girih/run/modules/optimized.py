"""A model for inference, rewritten so that it is faster here, and never slower: what won is what was timed.

Search: the graph in segments, cost-based backtracking in each (TASO §2.7), costs measured. Guard: the model as it was
and as it is rewritten, each by every back end, run in turns on the example; the fastest is kept, and all the figures.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_unflatten

from girih.capture import Inference, capture
from girih.capture.torch.state import state_of
from girih.cost.store import Store
from girih.rewrite.backtracking import Applied, Rewritten
from girih.rewrite.certificate import Certificate
from girih.rewrite.constants import folded
from girih.rewrite.rules.rule import Rule
from girih.run.modules.layouts import LayoutCosts
from girih.run.modules.module import module_of
from girih.run.modules.searching import Found, Search, rewrite, search_of

BACKENDS = ("eager", "onednn", "inductor")
AS_IT_WAS, REWRITTEN = "as it was", "rewritten"
ROUNDS = 15
TOLERANCE = 1e-3
"""Of the largest number in a result: what another order of additions may change in float32."""

Progress = Callable[[str, float], None]


class OptimizeError(ValueError):
    """A model that cannot be optimised as was asked; the message says why, and what to do."""


@dataclass(frozen=True)
class Candidate:
    """A way to run the model. program: `as it was` or `rewritten`. seconds: the median of the rounds; None: it does not
    run, and why."""

    program: str
    backend: str
    seconds: float | None
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """What was done, in figures. nodes: operators of the program, without those of weights alone, before and after.
    found: by the search. cost, before: sums of measured kernels, with what brings tensors into other layouts, in
    seconds."""

    nodes: tuple[int, int]
    found: Found
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    threads: int

    @property
    def sequence(self) -> tuple[Applied, ...]:
        return tuple(step for part in self.searched for step in part.sequence)

    @property
    def searched(self) -> tuple[Rewritten, ...]:
        """The parts in which it was searched."""
        return self.found.searched

    @property
    def before(self) -> float:
        return self.found.before

    @property
    def cost(self) -> float:
        return self.found.choice.cost

    @property
    def certificate(self) -> Certificate:
        """How far from the best of the space that was searched the cost is at most."""
        return self.found.certificate

    @property
    def speedup(self) -> float:
        """Over the model as it was, without a back end."""
        first = next(item.seconds for item in self.candidates if (item.program, item.backend) == (AS_IT_WAS, "eager"))
        assert first is not None
        assert self.chosen.seconds is not None
        return first / self.chosen.seconds

    def __str__(self) -> str:
        lines = [
            f"{self.nodes[0]} operators became {self.nodes[1]}; kernels {_ms(self.before)} → {_ms(self.cost)}, "
            f"the sum of what each takes alone, {self.threads} thread{'s' if self.threads > 1 else ''}"
        ]
        names = Counter(step.rule.name or str(step.rule) for step in self.sequence)
        lines += [f"  {count} × {name}" for name, count in names.most_common()] or ["  no rewrite that pays"]
        extracted = sum(part.by == "saturation" for part in self.searched)
        if extracted:
            lines.append(f"  {extracted} of {len(self.searched)} parts as equality saturation found them")
        layouts = Counter(self.found.choice.layouts.values())
        lines += [f"  {count} tensors in {layout}" for layout, count in layouts.most_common()]
        lines.append(str(self.certificate))
        unfinished = sum(not part.complete for part in self.searched)
        if unfinished:
            lines.append(f"the time ran out in {unfinished} of {len(self.searched)} parts: more may be found")
        lines.append("measured in turns, medians:")
        for item in self.candidates:
            mark = "→" if item is self.chosen else " "
            text = item.why if item.seconds is None else f"{_ms(item.seconds)}"
            lines.append(f"{mark} {item.program:<10} {item.backend:<9} {text}")
        lines.append(f"{self.speedup:.2f} × as fast as the model as it was")
        return "\n".join(lines)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


class Optimized(nn.Module):
    """The fastest of what was tried; called as the model is. Batches have the example's shapes.

    module: the rewritten program as plain PyTorch calls, for `torch.export` and others; it takes the tensors of a batch
    in order and returns the results as a tuple.
    """

    def __init__(
        self,
        model: nn.Module,
        module: torch.fx.GraphModule,
        run: Callable[..., Any],
        example: tuple[Sequence[Any], Mapping[str, Any]],
        explanation: Explanation,
    ) -> None:
        super().__init__()
        self.model = model
        self.module = module
        self._run = run
        self._example = example
        self._explanation = explanation

    def forward(self, *batch: Any, **named: Any) -> Any:
        with torch.no_grad():
            return self._run(*batch, **named)

    def explain(self) -> Explanation:
        """The rewrites, what they were to gain, and what was measured; `print` shows it as a text."""
        return self._explanation

    def save(self, path: str | Path) -> None:
        """Write the program that won as PyTorch's exported program (`.pt2`): `torch.export.load(path).module()` runs it
        where girih is not. What a back end adds is not in it; `torch.compile` adds it again.

        Raises:
            OptimizeError: PyTorch cannot export it.
        """
        model = self.module if self._explanation.chosen.program == REWRITTEN else self.model
        arguments, named = self._example
        try:
            with torch.no_grad():
                torch.export.save(torch.export.export(model, tuple(arguments), dict(named)), path)
        except (RuntimeError, torch._dynamo.exc.TorchDynamoException) as error:
            raise OptimizeError(
                f"PyTorch cannot export {self._explanation.chosen.program}: {_first_line(error)}"
            ) from error


def optimise(
    model: nn.Module,
    example: Any,
    rules: Sequence[Rule],
    *,
    threads: int | None = None,
    search: str | Search = "backtracking",
    seconds: float = 60.0,
    alpha: float = 1.05,
    backends: Sequence[str] = BACKENDS,
    store: Store | None = None,
    progress: Progress = lambda what, share: None,
) -> Optimized:
    """See `girih.optimize`."""
    _check(model, seconds, alpha, backends)
    search = search_of(search, seconds, alpha)
    arguments, named = _called_with(example)
    with _threads(threads) as count:
        captured = capture(Inference(model), dict(named) if named else tuple(arguments))
        state = state_of(Inference(model), captured.graph)
        weights = {item.name: state[item.path] for item in captured.graph.inputs if item.path in state}
        graph, weights = folded(captured.graph, weights)
        costs = LayoutCosts(weights, count, store)
        found = rewrite(graph, weights, rules, costs, search, progress)
        better = found.graph
        module = module_of(better, found.weights)
        fastest = module_of(better, found.weights, ways=found.choice.ways)

        def rewritten(run: Callable[..., Any]) -> Callable[..., Any]:
            def call(*batch: Any, **keywords: Any) -> Any:
                values = captured.flatten(dict(keywords) if keywords else tuple(batch))
                results = run(*(values[item.name] for item in better.inputs if item.name in values))
                return tree_unflatten(list(results), captured.result_spec)

            return call

        ways = _ways(model, module, fastest, rewritten, backends)
        candidates, chosen, run = _fastest(ways, arguments, named, progress)
    explanation = Explanation((len(graph.nodes), len(better.nodes)), found, candidates, chosen, count)
    return Optimized(model, module, run, (arguments, named), explanation)


def _check(model: Any, seconds: float, alpha: float, backends: Sequence[str]) -> None:
    if not isinstance(model, nn.Module):
        raise OptimizeError(f"a model is a torch.nn.Module, got {type(model).__name__}")
    if model.training:
        raise OptimizeError("the model is in training mode, in which it computes something else: call model.eval()")
    unknown = [item for item in backends if item not in BACKENDS]
    if unknown:
        raise OptimizeError(f"no back end {unknown[0]!r}: there are {' and '.join(BACKENDS)}")
    if not seconds >= 0 or not alpha >= 1:
        raise OptimizeError(f"expected seconds of 0 or more and alpha of 1 or more, got {seconds} and {alpha}")


def _called_with(example: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(example, Mapping):
        return (), example
    return (tuple(example), {}) if isinstance(example, (tuple, list)) else ((example,), {})


@contextmanager
def _threads(count: int | None) -> Iterator[int]:
    """With so many of PyTorch's threads; as many as it has where none is said."""
    before = torch.get_num_threads()
    if count is not None and count < 1:
        raise OptimizeError(f"expected 1 thread or more, got {count}")
    torch.set_num_threads(count or before)
    try:
        yield count or before
    finally:
        torch.set_num_threads(before)


Way = tuple[str, str, Callable[[], Callable[..., Any]]]


def _ways(
    model: nn.Module,
    module: torch.fx.GraphModule,
    fastest: torch.fx.GraphModule,
    rewritten: Callable[[Callable[..., Any]], Callable[..., Any]],
    backends: Sequence[str],
) -> Iterator[Way]:
    yield AS_IT_WAS, "eager", lambda: model
    if "eager" in backends:
        yield REWRITTEN, "eager", lambda: rewritten(module)
    if "onednn" in backends:
        yield REWRITTEN, "onednn", lambda: rewritten(fastest)
    if "inductor" in backends:
        yield AS_IT_WAS, "inductor", lambda: torch.compile(model, options={"freezing": True})
        yield REWRITTEN, "inductor", lambda: rewritten(torch.compile(module, options={"freezing": True}))


def _fastest(
    ways: Iterator[Way], arguments: Sequence[Any], named: Mapping[str, Any], progress: Progress
) -> tuple[tuple[Candidate, ...], Candidate, Callable[..., Any]]:
    """All candidates, timed in turns so that what else the machine does falls on all alike; the fastest that gives the
    model's results."""
    runs: list[tuple[str, str, Callable[..., Any] | None, str]] = []
    expected: list[Any] = []
    with torch.no_grad():
        for program, backend, build in ways:
            progress(f"build {backend} of the model {program}", 0.0)
            try:
                run = build()
                results = tree_leaves(run(*arguments, **named))
            except Exception as error:
                if not runs:
                    raise
                runs.append((program, backend, None, f"does not run: {_first_line(error)}"))
                continue
            if not runs:
                expected = results
            elif not _same(results, expected):
                runs.append((program, backend, None, "refused: its results are others"))
                continue
            runs.append((program, backend, run, ""))
        progress("measure in turns", 0.0)
        able = [run for _, _, run, _ in runs if run is not None]
        took: list[list[float]] = [[] for _ in able]
        for _ in range(ROUNDS + 1):
            for run, times in zip(able, took, strict=True):
                began = time.perf_counter()
                run(*arguments, **named)
                times.append(time.perf_counter() - began)
    medians = iter([statistics.median(times[1:]) for times in took])
    candidates = tuple(
        Candidate(program, backend, None if run is None else next(medians), why) for program, backend, run, why in runs
    )
    chosen = min((item for item in candidates if item.seconds is not None), key=lambda item: item.seconds or 0.0)
    fastest = runs[candidates.index(chosen)][2]
    assert fastest is not None
    return candidates, chosen, fastest


def _same(results: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Up to the order of additions."""
    if len(results) != len(expected):
        return False
    for one, other in zip(results, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            continue
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if other.numel() and other.is_floating_point():
            bound = TOLERANCE * max(float(other.abs().max()), 1e-30)
            if not bool(((one - other).abs() <= bound).all()):
                return False
        elif not torch.equal(one, other):
            return False
    return True


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:200]
