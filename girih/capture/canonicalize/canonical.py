"""Recorded ATen calls → a Graph in girih's vocabulary: one output a node, and operators that divide well.

What the rules of each file do, before → after:

    views          view, t, split, select, stack …     → reshape, permute, expand, slice, cat, constant_pad_nd
    products       addmm, convolution with bias        → the product, then the sum
    norms          batch, layer, group norm, softmax   → reductions, and element-wise operators of their results
    lookup         nll_loss, embedding, index_put      → pick, place, embedding, index_add, where
    embedding_bag  embedding_bag                       → embedding, weights, sums of rows
    sorting        sort, topk, max.dim                 → positions, and what is gathered there
    creation       zeros_like, dropout, randn          → full, random numbers that a seed and a place determine
    pointwise      add.Scalar, mean, max without index → one spelling

An operator without a rule stays as it is. Order is kept as recorded. Cost: linear in the number of calls.

A step whose bits are to be PyTorch's is not rewritten: `exact` makes its calls as they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from girih.capture.canonicalize import creation, embedding_bag, lookup, norms, pointwise, products, sorting, views
from girih.capture.canonicalize.builder import Absent, Builder, NodeCall
from girih.capture.canonicalize.exact import RULES as EXACT_RULES
from girih.capture.canonicalize.exact import Forms, Layouts, operations_of, recorded
from girih.capture.errors import CaptureError
from girih.capture.torch.record import Note, RecordedCall, Recorder, Slot
from girih.capture.torch.refusals import translation_error
from girih.graph import Graph, Input, Node, Output, Value, of_batch
from girih.ops.catalogue import catalogue
from girih.ops.operator import TensorType

Rule = Callable[[Builder, NodeCall], Any]

RULES: dict[str, Rule] = {
    **pointwise.RULES,
    **views.RULES,
    **products.RULES,
    **norms.RULES,
    **lookup.RULES,
    **embedding_bag.RULES,
    **sorting.RULES,
    **creation.RULES,
}

CONSTANT_ELEMENTS = 4096


@dataclass(frozen=True)
class EnteringTensor:
    """A tensor that enters the graph: its slot in the record and what the Graph says of it."""

    slot: Slot
    input: Input


@dataclass(frozen=True)
class Exit:
    """A tensor that leaves the graph."""

    slot: Slot
    role: Any
    replaces: str | None = None


@cache
def operator_name(function: Any) -> str:
    """`aten.add.Tensor` for torch.ops.aten.add.Tensor, without `.default`."""
    return str(function).removesuffix(".default")


@cache
def _parameters(function: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (item.name, item.default_value if item.has_default_value() else None) for item in function._schema.arguments
    )


def canonicalise(
    recorder: Recorder, entries: Sequence[EnteringTensor], exits: Sequence[Exit], exact: bool = False
) -> Graph:
    """The graph of a functional record; an update that equals its input is left out. exact: its calls stay as they are.
    Where they draw random numbers, how they leave PyTorch's generator is the last result.

    Raises:
        CaptureError: what the vocabulary cannot say, with its source line.
    """
    wanted = [item.slot for item in exits]
    if exact:  # also draws that nobody reads move the generator
        wanted += [slot for record in recorder.records if _draws(record) for slot in record.outputs if slot is not None]
    needed = _needed(recorder.records, wanted)
    builder = Builder()
    layouts = Layouts(builder) if exact else None
    env: dict[int, Value | Absent] = {}
    for entry in entries:
        fake = recorder.tensors[entry.slot.number]
        entered = builder.input(entry.input.name, *_described(fake))
        if layouts is not None and entry.input.role == "batch" and not fake.is_contiguous():
            raise CaptureError(
                f"{of_batch(entry.input.path)} is not contiguous: with exact=True give .contiguous() ones"
            )
        env[entry.slot.number] = entered if layouts is None else layouts.laid(entered, recorder.strides(entry.slot))
    for number, tensor in recorder.constants.items():
        if number in needed:
            made = _constant(builder, tensor)
            env[number] = made if layouts is None else layouts.laid(made, recorder.strides(Slot(number)))
    for record in recorder.records:
        if any(slot is not None and slot.number in needed for slot in record.outputs):
            _translate(builder, record, recorder, env, needed, layouts)
    inputs = [entry.input for entry in entries]
    if builder.seed is not None:
        inputs.append(Input("seed", "seed", "seed"))
    outputs = []
    for item in exits:
        value = env[item.slot.number]
        if isinstance(value, Absent):
            raise CaptureError(str(value))
        if value.name != item.replaces:
            outputs.append(Output(value.name, item.role, item.replaces))
    if layouts is not None and layouts.generator is not None:
        outputs.append(Output(layouts.generator.name, "result"))
    return _finish(builder, inputs, outputs)


def _draws(record: RecordedCall) -> bool:
    return torch.Tag.nondeterministic_seeded in record.function.tags


def _needed(records: Sequence[RecordedCall], wanted: Sequence[Slot]) -> set[int]:
    """Slots that the wanted ones depend on."""
    needed = {slot.number for slot in wanted}
    for record in reversed(records):
        if any(slot is not None and slot.number in needed for slot in record.outputs):
            for item in (*record.args, *record.kwargs.values()):
                _add_slots(item, needed)
    return needed


def _add_slots(item: Any, slots: set[int]) -> None:
    if isinstance(item, Slot):
        slots.add(item.number)
    elif isinstance(item, tuple):
        for part in item:
            _add_slots(part, slots)


@cache
def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _described(tensor: Any) -> tuple[tuple[int, ...], str]:
    return tuple(tensor.shape), dtype_name(tensor.dtype)


def _constant(builder: Builder, tensor: Any) -> Value:
    shape, dtype = _described(tensor)
    if tensor.numel() > CONSTANT_ELEMENTS:
        raise CaptureError(
            f"a tensor of {tensor.numel()} elements, {dtype}{list(shape)}, that is neither parameter, buffer "
            f"nor batch enters the program; up to {CONSTANT_ELEMENTS} elements are kept as a constant. "
            "Register it with module.register_buffer, or pass it in the batch; in place of a mask that picks rows the "
            "numbers of these, mask.nonzero().squeeze(1)"
        )
    if tensor.is_complex():
        parts = torch.view_as_real(tensor.detach().resolve_conj())
        real, imag = (_constant(builder, parts[..., half]) for half in (0, 1))
        return builder.emit("aten.complex", shape, dtype, real=real, imag=imag)
    flat = tensor.detach().cpu().reshape(-1)
    if tensor.numel() and bool((flat == flat[0]).all()):
        return builder.full(shape, flat[0].item(), dtype)
    return builder.emit("girih.constant", shape, dtype, data=tuple(tensor.tolist()), size=shape, dtype=dtype)


def _translate(
    builder: Builder,
    record: RecordedCall,
    recorder: Recorder,
    env: dict[int, Value | Absent],
    needed: set[int],
    layouts: Layouts | None,
) -> None:
    builder.note = record.note
    builder.drawn = 0
    call = _call(record, recorder, env, needed)
    if layouts is not None:
        _translate_exactly(layouts, call, record, recorder, env)
        return
    rule = RULES.get(call.operator)
    if rule is None and _draws(record):
        raise builder.refuse(
            f"{call.operator} draws random numbers that do not follow from a seed and a place; use dropout, rand, "
            "randn, randint, randperm, multinomial or bernoulli, or draw them outside and pass them in the batch"
        )
    try:
        _define(record, call, (rule or pointwise.keep)(builder, call), builder, env)
    except CaptureError:
        raise
    except Exception as error:
        raise translation_error(error, record.note.source, call.operator, call.arguments.values()) from error


def _translate_exactly(
    layouts: Layouts, call: NodeCall, record: RecordedCall, recorder: Recorder, env: dict[int, Value | Absent]
) -> None:
    """The call as it is, or, where it looks at numbers, copies or fills, by its rule; all results lie as they did."""
    builder, described = layouts.builder, catalogue().get(call.operator)
    rule = EXACT_RULES.get(call.operator)
    if rule is None and described is not None and described.view:
        rule = pointwise.keep
    try:
        if rule is not None:
            _define(record, call, rule(builder, call), builder, env)
        else:
            _define(record, call, recorded(layouts, call, _forms(record, recorder, env)), builder, env)
        for slot, used in zip(record.outputs, call.used, strict=True):
            value = env.get(slot.number) if slot is not None and used else None
            if slot is not None and isinstance(value, Value):
                env[slot.number] = layouts.laid(value, recorder.strides(slot))
    except CaptureError:
        raise
    except Exception as error:
        raise translation_error(error, record.note.source, call.operator, call.arguments.values()) from error


def _forms(record: RecordedCall, recorder: Recorder, env: dict[int, Value | Absent]) -> Forms:
    operands = {}

    def tensor_of(item: Any) -> Any:
        if isinstance(item, Slot):
            value = env[item.number]
            if isinstance(value, Value):
                operands[value.name] = recorder.strides(item)
            return recorder.tensors[item.number]
        return [tensor_of(part) for part in item] if isinstance(item, tuple) else item

    args = [tensor_of(item) for item in record.args]
    kwargs = {name: tensor_of(item) for name, item in record.kwargs.items()}
    results = [None if slot is None else recorder.tensors[slot.number] for slot in record.outputs]
    made = results[0] if len(results) == 1 else tuple(results)
    return Forms(record.function, operands, results, operations_of(record.function, args, kwargs, made))


def _define(
    record: RecordedCall, call: NodeCall, results: Any, builder: Builder, env: dict[int, Value | Absent]
) -> None:
    """What a rule made becomes the value of the record's slots."""
    values = results if isinstance(results, tuple) else (results,)
    for slot, value, expected, used in zip(record.outputs, values, call.outputs, call.used, strict=True):
        if slot is None or not used:
            continue
        if value is None or expected is None:
            env[slot.number] = Absent(call.operator, builder.note.source)
            continue
        if value.shape != expected.shape:
            raise AssertionError(f"its rule made the shape {list(value.shape)}, not {list(expected.shape)}")
        env[slot.number] = builder.cast(value, expected.dtype)


def _call(record: RecordedCall, recorder: Recorder, env: dict[int, Value | Absent], needed: set[int]) -> NodeCall:
    def fill(item: Any) -> Any:
        if isinstance(item, Slot):
            return env[item.number]
        if isinstance(item, tuple):
            return tuple(fill(part) for part in item)
        return item

    parameters = _parameters(record.function)
    arguments = dict(parameters)
    for (name, _), item in zip(parameters, record.args, strict=False):
        arguments[name] = fill(item)
    for name, item in record.kwargs.items():
        arguments[name] = fill(item)
    outputs = tuple(
        None if slot is None else TensorType(*_described(recorder.tensors[slot.number])) for slot in record.outputs
    )
    used = tuple(slot is not None and slot.number in needed for slot in record.outputs)
    return NodeCall(operator_name(record.function), arguments, outputs, used)


def _finish(builder: Builder, inputs: Sequence[Input], outputs: Sequence[Output]) -> Graph:
    """Drop what no output needs and give the values their readable names."""
    needed = {output.name for output in outputs}
    kept: list[Node] = []
    for node in reversed(builder.nodes):
        if any(name in needed for name in node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    inputs = [item for item in inputs if item.role != "seed" or item.name in needed]
    names = {item.name: item.name for item in inputs}
    counts: dict[str, int] = {}
    for node in reversed(kept):
        for place, name in enumerate(node.outputs):
            base = name.split(".", 1)[0] + (f".{place}" if len(node.outputs) > 1 else "")
            number = counts.get(base, 0)
            counts[base] = number + 1
            names[name] = f"{base}_{number}" if number else base

    nodes = tuple(
        replace(
            node.renamed(names.__getitem__),
            name=names[node.outputs[0]],
            outputs=tuple(names[name] for name in node.outputs),
        )
        for node in reversed(kept)
    )
    values = {new: replace(builder.values[old], name=new) for old, new in names.items()}
    renamed = tuple(replace(item, name=names[item.name]) for item in outputs)
    return Graph(values, nodes, tuple(inputs), renamed)


__all__ = ["EnteringTensor", "Exit", "Note", "canonicalise", "dtype_name"]
