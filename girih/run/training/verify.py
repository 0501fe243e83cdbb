"""Does a run compute what the program for one device computes? The undivided graph is run beside it and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from girih.graph import Graph
from girih.kernels.evaluate import interpret
from girih.run.distance import distance
from girih.run.training.session import Run
from girih.run.worker.initial import key_of
from girih.run.worker.parts import Tensor

# Largest admissible difference relative to the largest element of the tensor, by the tensor's dtype.
TOLERANCES = {
    "float64": 1e-10,
    "complex128": 1e-10,
    "float32": 2e-4,
    "complex64": 2e-4,
    "float16": 2e-2,
    "bfloat16": 5e-2,
}


ROUNDINGS = 100.0


@dataclass(frozen=True)
class TensorDifference:
    """absolute: the largest; relative: that by the tensor's largest element. allowed: for `absolute`.

    by_rounding: what is allowed is what rounding alone may change of this tensor.
    """

    name: str
    absolute: float
    relative: float
    allowed: float
    by_rounding: bool = False

    @property
    def ok(self) -> bool:
        return self.absolute <= self.allowed  # False for NaN

    def __str__(self) -> str:
        sign, why = "≤" if self.ok else ">", " by rounding" if self.by_rounding else ""
        return f"{self.name}: {self.absolute:.3g} {sign} {self.allowed:.3g}{why} ({self.relative:.3g} of its scale)"


@dataclass(frozen=True)
class Verification:
    """A step of the workers beside the same step on one device: results, then every piece of state after it.

    loss: of the undivided program, None if it has none.
    """

    step: int
    loss: float | None
    differences: tuple[TensorDifference, ...]

    @property
    def ok(self) -> bool:
        return all(item.ok for item in self.differences)

    @property
    def worst(self) -> TensorDifference | None:
        """The tensor nearest to its tolerance, or farthest beyond it."""
        return max(self.differences, key=_excess, default=None)

    def __str__(self) -> str:
        wrong = [item for item in self.differences if not item.ok]
        if not wrong:
            return f"step {self.step}: {len(self.differences)} tensors equal those of one device; worst {self.worst}"
        lines = "\n".join(f"  {item}" for item in wrong[:20])
        return f"step {self.step}: {len(wrong)} of {len(self.differences)} tensors differ from one device\n{lines}"


def _excess(item: TensorDifference) -> float:
    if math.isnan(item.absolute):
        return math.inf
    return item.absolute / item.allowed if item.allowed else (math.inf if item.absolute else 0.0)


class Verifier:
    """The undivided program beside a run. Each step is verified from the run's own state before it.

    undivided: its graph, where the run's own is not it (one in micro-batches); the same inputs, and in their order the
    same outputs.

    One device must hold the whole program, with its state. What a tensor may differ by is its tolerance (that of the
    coarsest floating type in the graph) times its largest element. Where that is exceeded, rounding may be to blame:
    a gradient that is zero but for rounding, an optimizer that divides it by its own size. So the undivided step is
    run again with every input changed by one rounding; `ROUNDINGS` times what that changes is allowed too.
    """

    def __init__(self, run: Run, undivided: Graph | None = None) -> None:
        self.run = run
        self.graph = run.program.graph if undivided is None else undivided
        self.steps, self.state = run.steps, run.state()
        self.coarsest = coarsest_type(self.graph)

    def refresh(self) -> None:
        """Look at the run's state again, where it has done steps that were not checked."""
        if self.steps != self.run.steps:
            self.steps, self.state = self.run.steps, self.run.state()

    def check(
        self, batch: Mapping[str, Tensor], scalars: Mapping[str, Any] | None, outputs: Mapping[str, Any]
    ) -> Verification:
        """Do the step that the run has just done, and compare.

        outputs: what `run.step(batch, scalars)` returned.

        Raises:
            ValueError: the run has done other steps since the last check.
        """
        if self.run.steps != self.steps + 1:
            raise ValueError(
                f"the run was seen after step {self.steps} and is at {self.run.steps}: call `refresh` before"
            )
        graph, run = self.graph, self.run
        state = {item.name: self.state[key_of(item)] for item in graph.state_inputs}
        given = run.whole_inputs(batch, scalars or {}, step=run.steps - 1)
        inputs = {**state, **{name: tensor.cpu() for name, tensor in given.items()}}
        expected = interpret(graph, inputs)
        after = run.state()
        pairs = []
        for own, item in zip(run.program.graph.outputs, graph.outputs, strict=True):
            if item.replaces is None:
                got = torch.as_tensor(outputs[own.name], dtype=expected[item.name].dtype)
                pairs.append((item.name, item.name, got))
        for old in graph.state_inputs:
            if old.name in graph.updates:
                pairs.append((key_of(old), graph.updates[old.name], after[key_of(old)]))
        differences = [difference(shown, got, expected[name], self.coarsest) for shown, name, got in pairs]
        if not all(item.ok for item in differences):
            changed = interpret(graph, {name: _rounded(tensor, self.coarsest) for name, tensor in inputs.items()})
            for number, (_, name, _) in enumerate(pairs):
                noise = ROUNDINGS * difference(name, changed[name], expected[name], self.coarsest).absolute
                if differences[number].allowed < noise < math.inf:
                    differences[number] = replace(differences[number], allowed=noise, by_rounding=True)
        frozen = [item for item in graph.state_inputs if item.name not in graph.updates]
        differences += [difference(key_of(item), after[key_of(item)], state[item.name], "exact") for item in frozen]
        self.steps, self.state = run.steps, after
        losses = [float(expected[item.name]) for item in graph.outputs if item.role == "loss"]
        return Verification(run.steps, losses[0] if losses else None, tuple(differences))


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


def coarsest_type(graph: Graph) -> str:
    """The floating type that rounds most, of all values but single numbers."""
    used = {value.dtype for value in graph.values.values() if value.elements > 1 and value.dtype in TOLERANCES}
    return max(used, key=lambda dtype: TOLERANCES[dtype], default="float64")


def _rounded(tensor: Tensor, dtype: str) -> Tensor:
    """Every element larger or smaller by one rounding of a type, in turns; single numbers as they are."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() < 2:
        return tensor
    step = torch.finfo(getattr(torch, dtype)).eps
    step = max(step, torch.finfo(tensor.dtype).eps)
    signs = torch.ones(tensor.numel(), dtype=tensor.dtype)
    signs[::2] = -1
    changed = tensor + tensor * signs.reshape(tensor.shape) * step
    return torch.where(tensor.isfinite(), changed, tensor)  # infinity less infinity would be NaN


def difference(name: str, got: Tensor, expected: Tensor, dtype: str = "") -> TensorDifference:
    """Compare two tensors of one shape.

    dtype: the type whose tolerance holds, if it is coarser than the tensor's. What is not floating must be equal.
    """
    own = str(expected.dtype).removeprefix("torch.")
    tolerance = max(TOLERANCES[own], TOLERANCES.get(dtype, 0.0)) if own in TOLERANCES and dtype != "exact" else 0.0
    if tuple(got.shape) != tuple(expected.shape):
        return TensorDifference(name, math.inf, math.inf, 0.0)
    absolute, scale = distance(got, expected)
    relative = absolute / scale if scale else (math.inf if absolute else 0.0)
    return TensorDifference(name, absolute, relative, tolerance * scale)
