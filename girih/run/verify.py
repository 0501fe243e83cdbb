"""Does a run compute what the program for one device computes? The undivided graph is run beside it and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from girih.graph import Graph
from girih.ops.evaluate import interpret
from girih.run.initial import key_of
from girih.run.parts import Tensor
from girih.run.session import Run

# Largest admissible difference relative to the largest element of the tensor, by the tensor's dtype.
TOLERANCES = {
    "float64": 1e-10,
    "complex128": 1e-10,
    "float32": 2e-4,
    "complex64": 2e-4,
    "float16": 2e-2,
    "bfloat16": 5e-2,
}


@dataclass(frozen=True)
class Difference:
    """absolute: the largest; relative: that by the tensor's scale, its largest element."""

    name: str
    absolute: float
    relative: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.relative <= self.tolerance  # False for NaN

    def __str__(self) -> str:
        sign = "≤" if self.ok else ">"
        return f"{self.name}: {self.absolute:.3g} absolute, {self.relative:.3g} relative {sign} {self.tolerance:g}"


@dataclass(frozen=True)
class Verification:
    """A step of the workers beside the same step on one device: results, then every piece of state after it.

    loss: of the undivided program, None if it has none.
    """

    step: int
    loss: float | None
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return all(item.ok for item in self.differences)

    @property
    def worst(self) -> Difference | None:
        """The tensor nearest to its tolerance, or farthest beyond it."""
        return max(self.differences, key=_excess, default=None)

    def __str__(self) -> str:
        wrong = [item for item in self.differences if not item.ok]
        if not wrong:
            return f"step {self.step}: {len(self.differences)} tensors equal those of one device; worst {self.worst}"
        lines = "\n".join(f"  {item}" for item in wrong[:20])
        return f"step {self.step}: {len(wrong)} of {len(self.differences)} tensors differ from one device\n{lines}"


def _excess(item: Difference) -> float:
    if math.isnan(item.relative):
        return math.inf
    return item.relative / item.tolerance if item.tolerance else (math.inf if item.relative else 0.0)


class Verifier:
    """The undivided program beside a run, from the run's state at the time this is made.

    One device must hold the whole program, with its state. Half-precision tensors, whose rounding follows the order of
    sums, are held to a coarse tolerance.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.state = run.state()

    def check(
        self, batch: Mapping[str, Tensor], scalars: Mapping[str, Any] | None, outputs: Mapping[str, Any]
    ) -> Verification:
        """Do the step that the run has just done, and compare.

        outputs: what `run.step(batch, scalars)` returned.
        """
        graph, run = self.run.program.graph, self.run
        inputs = run.whole_inputs(batch, scalars or {}, step=run.steps - 1)
        state = {item.name: self.state[key_of(item)] for item in graph.state_inputs}
        expected = interpret(graph, {**state, **inputs})
        self.state = advance(graph, self.state, expected)
        results = [output for output in graph.outputs if output.replaces is None]
        found = []
        for item in results:
            got = torch.as_tensor(outputs[item.name], dtype=expected[item.name].dtype)
            found.append(difference(item.name, got, expected[item.name]))
        after = run.state()
        found += [difference(path, after[path], tensor) for path, tensor in self.state.items()]
        losses = [float(expected[item.name]) for item in results if item.role == "loss"]
        return Verification(run.steps, losses[0] if losses else None, tuple(found))


def verify(
    run: Run, batches: Sequence[Mapping[str, Tensor]], scalars: Mapping[str, Any] | None = None
) -> list[Verification]:
    """Run a step for each batch on the workers and on one device, from the run's present state, and compare each."""
    verifier = Verifier(run)
    return [verifier.check(batch, scalars, run.step(batch, scalars)) for batch in batches]


def advance(graph: Graph, state: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state by path after a step that made `outputs`."""
    return {
        key_of(item): outputs[graph.updates[item.name]] if item.name in graph.updates else state[key_of(item)]
        for item in graph.state_inputs
    }


def difference(name: str, got: Tensor, expected: Tensor) -> Difference:
    """Compare two tensors of one shape; dtypes that are not floating must be equal."""
    dtype = str(expected.dtype).removeprefix("torch.")
    tolerance = TOLERANCES.get(dtype, 0.0)
    if tuple(got.shape) != tuple(expected.shape):
        return Difference(name, float("inf"), float("inf"), tolerance)
    if not expected.numel():
        return Difference(name, 0.0, 0.0, tolerance)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    left, right = got.to(wide), expected.to(wide)
    same = (left == right) | (left.isnan() & right.isnan())  # infinities too
    absolute = float(torch.where(same, 0.0, (left - right).abs()).max())
    finite = right.abs()[right.isfinite()]
    scale = max(float(finite.max()) if finite.numel() else 0.0, 1e-30 if tolerance else 1.0)
    return Difference(name, absolute, absolute / scale, tolerance)
