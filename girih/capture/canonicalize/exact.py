"""Calls as they were recorded, for a plan that has the very bits of PyTorch's own step (`TrainingStep(exact=True)`).

The bits that a kernel makes follow from its operands' numbers, from how these lie in memory, and from the number of
threads. So each call becomes one node that makes the same call (`girih.recorded`), and each value lies as it does in
PyTorch: a result that is not contiguous there is a contiguous value here, and a permutation of it. What PyTorch only
looks at otherwise (`view`, `transpose`, `slice`) stays a view; what it copies is copied. What it writes into a part of
a tensor is a value of its own here, which a call gets with the gaps that it has there, since kernels go through it row
by row. The strides of views are followed on tensors without data. Random numbers are drawn from PyTorch's
generator, whose state goes from draw to draw as a value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from girih.capture.canonicalize import creation, views
from girih.capture.canonicalize.builder import LAYOUT_ARGUMENTS, Builder, NodeCall, alike, argument_of, equal, schema
from girih.capture.torch.environment import draw_behind
from girih.graph import Node, Value
from girih.kernels.evaluate import evaluate, resolve
from girih.ops.catalogue import catalogue
from girih.ops.operator import TensorType

Tensor = Any  # torch is untyped for the type checker
Sizes = Sequence[int]

VIEWS = """
    alias detach lift lift_fresh lift_fresh_copy resolve_conj resolve_neg clone contiguous _to_copy _to_dense reshape
    _reshape_alias _unsafe_view view flatten.using_ints unsqueeze squeeze squeeze.dim squeeze.dims t transpose.int
    split.Tensor split_with_sizes unsafe_split.Tensor unsafe_split_with_sizes chunk unbind.int copy permute expand
    slice.Tensor select.int
"""
MADE = """
    full full_like new_full zeros zeros_like new_zeros zero empty.memory_format empty_like empty_strided empty_permuted
    new_empty new_empty_strided ones ones_like new_ones fill.Scalar arange arange.start arange.start_step eye eye.m
    linspace scalar_tensor
"""
_KNOWN = {**views.RULES, **creation.RULES}
RULES = {name: _KNOWN[name] for names in (VIEWS, MADE) for name in alike(None, names)}
"""What looks at numbers, copies and fills; `Layouts.laid` sees to how copies lie in memory."""

NUMBERED = "girih.numbered"
"""In a record: a call of an optimizer's code with numbers that differ from step to step, which are tensors here. Its
arguments are JSON: `"%0"` stands for the first of the tensors, `"#0"` for the number in it."""


def _form_of_numbered(tensors: Sequence[Tensor], operator: str, arguments: str) -> Tensor:
    def filled(item: Any) -> Any:
        if isinstance(item, list):
            return [filled(part) for part in item]
        if isinstance(item, str) and item[:1] in ("%", "#"):
            return tensors[int(item[1:])] if item[0] == "%" else 1.0
        return item

    return resolve(operator)(**{name: filled(item) for name, item in json.loads(arguments)})


torch.library.define("girih::numbered", "(Tensor[] tensors, str operator, str arguments) -> Tensor")
torch.library.register_fake("girih::numbered", _form_of_numbered)


@dataclass(frozen=True)
class Number:
    """A value of one number, which a call takes as a number."""

    value: Value


@dataclass(frozen=True)
class Forms:
    """How the operands of a recorded call lay, strides by their values' names, and what it made, tensors without data.
    function: of the call. operations: about how much arithmetic it is."""

    function: Any
    operands: Mapping[str, Sizes]
    results: Sequence[Tensor | None]
    operations: int = 0


class Layouts:
    """How the values of a graph lie in memory, as PyTorch's tensors of the same record do.

    Inputs lie in the order of their dimensions, as workers keep them. generator: how the draws so far have left
    PyTorch's generator of random numbers; None where nothing is drawn.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.generator: Value | None = None
        self._forms: dict[str, Tensor] = {}  # tensors without data
        self._seen = 0  # nodes
        self._draws: dict[int | None, Value] = {}
        self._next = 0  # the number of the next draw

    def strides(self, value: Value) -> tuple[int, ...]:
        for node in self.builder.nodes[self._seen :]:
            self._follow(node)
        self._seen = len(self.builder.nodes)
        if value.name not in self._forms:
            self._forms[value.name] = _contiguous(value)
        return tuple(self._forms[value.name].stride())

    def _follow(self, node: Node) -> None:
        values = self.builder.values
        made = [_contiguous(values[name]) for name in node.outputs]
        described = catalogue().get(node.operator)
        if node.inputs and described is not None and (described.view or described.elementwise):
            made = list(
                evaluate(node, {name: self._forms.get(name, _contiguous(values[name])) for name in node.inputs})
            )
        self._forms.update(zip(node.outputs, made, strict=True))

    def laid(self, value: Value, wanted: Sizes) -> Value:
        """The value where it has these strides, else a copy that has them, unless there are gaps in it."""
        if 0 in value.shape or _lie_alike(value.shape, self.strides(value), wanted):
            return value
        order = _order(value.shape, wanted)
        if order is None:
            return value
        turned = self.builder.permute(value, order) if order else value
        (copy,) = self.emit("aten.contiguous", (TensorType(turned.shape, turned.dtype),), {"self": turned})
        return self.turned(copy, order)

    def turned(self, value: Value, order: Sizes) -> Value:
        """A value whose dimensions were brought into this order, in their own."""
        return self.builder.permute(value, [order.index(dim) for dim in range(len(order))]) if order else value

    def emit(
        self,
        operator: str,
        outputs: Sequence[TensorType],
        arguments: Mapping[str, Any],
        kept: Sizes = (0,),
        orders: Sequence[Sizes] = (),
        forms: Forms | None = None,
    ) -> tuple[Value, ...]:
        """One node that makes a call. outputs: of the results that are kept, in their orders."""
        tensors: list[Value] = []

        def noted(item: Any) -> Any:
            if isinstance(item, (Value, Number)):
                tensors.append(item if isinstance(item, Value) else item.value)
                return f"{'%' if isinstance(item, Value) else '#'}{len(tensors) - 1}"
            return tuple(map(noted, item)) if isinstance(item, (tuple, list)) else argument_of(item)

        written = tuple((name, noted(item)) for name, item in arguments.items())
        options: dict[str, Any] = {"tensors": tensors, "operator": operator, "arguments": written, "kept": tuple(kept)}
        if any(orders):
            options["orders"] = tuple(orders)
        if forms is None:
            return self.builder.emit_many("girih.recorded", outputs, options)
        theirs = [(number, tuple(forms.operands[item.name])) for number, item in enumerate(tensors)]
        if other := tuple((number, own) for number, own in theirs if own != self.strides(tensors[number])):
            options["strides"] = other
        if forms.operations:
            options["operations"] = forms.operations
        if torch.Tag.nondeterministic_seeded in forms.function.tags:
            return self._drawn(outputs, options)
        name = "girih.recorded" if len(outputs) == 1 else "girih.recorded_several"
        return self.builder.emit_many(name, outputs, options)

    def _drawn(self, outputs: Sequence[TensorType], options: dict[str, Any]) -> tuple[Value, ...]:
        """A call that draws random numbers: as the draw before has left the generator, whose state enters the graph
        with a step; one that is repeated (torch.utils.checkpoint), as it was the first time."""
        builder, draw = self.builder, self.builder.note.draw
        again = draw in self._draws
        if not again:
            if draw != self._next:
                raise builder.refuse(
                    "the step itself seeds PyTorch's generator of random numbers, of which exact=True knows only how "
                    "it comes to the step: seed it before the loop, or leave exact=True out"
                )
            self._next = draw_behind(draw)
            if self.generator is None:
                self.generator = builder.seed = builder.input("seed", tuple(torch.get_rng_state().shape), "uint8")
            self._draws[draw] = self.generator
        state = self._draws[draw]
        options = {**options, "tensors": [*options["tensors"], state], "draws": True}
        left = TensorType(state.shape, state.dtype)
        *values, generator = builder.emit_many("girih.recorded_several", (*outputs, left), options)
        self.generator = self.generator if again else generator
        return tuple(values)


def _contiguous(value: Value) -> Tensor:
    return torch.empty(value.shape, dtype=getattr(torch, value.dtype), device="meta")


def _order(shape: Sizes, strides: Sizes) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor of these strides is contiguous, () for its own; None for one with gaps
    or repeated numbers."""
    order = tuple(sorted(range(len(shape)), key=lambda dim: (-strides[dim], -shape[dim])))
    turned = [shape[dim] for dim in order]
    if _lie_alike(shape, strides, torch.empty(list(shape), device="meta").stride()):
        return ()
    dense = _lie_alike(turned, [strides[dim] for dim in order], torch.empty(turned, device="meta").stride())
    return order if dense else None


def _lie_alike(shape: Sizes, one: Sizes, two: Sizes) -> bool:
    """Do tensors of this shape lie alike? Strides of dimensions with one element say nothing of it."""
    return all(size == 1 or a == b for size, a, b in zip(shape, one, two, strict=True))


def recorded(layouts: Layouts, call: NodeCall, forms: Forms) -> tuple[Value | None, ...]:
    """A call as it was recorded; its results, None for those that nobody reads.

    Raises:
        CaptureError: its bits cannot be promised.
    """
    builder = layouts.builder
    read = [forms.results[number] if used else None for number, used in enumerate(call.used)]
    kinds = {builder.values[name].dtype for name in forms.operands} | {
        _dtype(item) for item in read if item is not None
    }
    if any(kind.startswith("complex") for kind in kinds):
        raise builder.refuse(f"{call.operator} computes with complex numbers: leave exact=True out")
    if call.arguments.get("generator") is not None:
        raise builder.refuse(
            f"{call.operator} draws from a generator of the program's own: with exact=True use PyTorch's, which "
            "torch.manual_seed sets"
        )
    operator, arguments = call.operator, dict(call.arguments)
    if operator == NUMBERED:
        operator, arguments = call["operator"], _numbered(call)
    defaults = schema(operator)
    arguments = {
        name: item
        for name, item in arguments.items()
        if name not in LAYOUT_ARGUMENTS and not equal(item, defaults[name])
    }
    kept, orders, types = [], [], []
    for number, item in enumerate(read):
        if item is not None:
            shape = tuple(item.shape)
            order = () if 0 in shape else _order(shape, item.stride())
            if order is None:
                raise builder.refuse(
                    f"{operator} makes a tensor {list(shape)} with the strides {list(item.stride())}, with gaps or "
                    "repeated numbers, which exact=True cannot keep: call .contiguous() on it, or leave exact=True out"
                )
            kept.append(number)
            orders.append(order)
            types.append(TensorType(tuple(shape[dim] for dim in order) if order else shape, _dtype(item)))
    values = layouts.emit(operator, types, arguments, kept, orders, forms)
    made = dict(zip(kept, map(layouts.turned, values, orders), strict=True))
    return tuple(made.get(number) for number in range(len(call.outputs)))


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _numbered(call: NodeCall) -> dict[str, Any]:
    """The arguments of a call with numbers that differ from step to step."""

    def filled(item: Any) -> Any:
        if isinstance(item, list):
            return tuple(map(filled, item))
        if isinstance(item, str) and item[:1] in ("%", "#"):
            value = call["tensors"][int(item[1:])]
            return value if item[0] == "%" else Number(value)
        return item

    return {name: filled(item) for name, item in json.loads(call["arguments"])}


def operations_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> int:
    """About how much arithmetic a call on such tensors is, where PyTorch tells; else 0."""
    count = flop_registry.get(getattr(function, "overloadpacket", None))
    return 0 if count is None else int(count(*args, **kwargs, out_val=results))
