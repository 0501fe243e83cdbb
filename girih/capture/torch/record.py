"""Record every ATen call that PyTorch makes while a program runs on fake tensors.

A `Recorder` is a dispatch mode: it stands below autograd, so that it sees forward, backward and update as
one list of calls, and above the fake tensors, so that nothing is computed and nothing is allocated. With
each call it notes where it came from: the innermost frame outside PyTorch, the module, and the phase. A call
of the backward pass gets the place of the forward call whose gradient it is: autograd numbers its nodes, and
the number is known when the forward call is recorded and when the backward node runs.

What enters a program has no values yet, so that nothing can be done that needs one: a shape (of what a mask picks, of
`nonzero`, `bincount`), a Python number (`.item()`). A tensor that is neither parameter nor buffer nor of the batch is a
constant, the same in every step: what depends on constants alone is computed where it is needed (`_known`), and rows
that such a mask picks are picked by their numbers.

`functionalise` makes of a record one in which no call writes into a tensor. Most writes are into a tensor that
nothing else lies in the memory of, by a call that PyTorch also has without the write: then the record only names what
was written anew. Else it is replayed under `torch.func.functionalize`. The two stand for two passes of `make_fx`, which
take 2.4 and 2.2 CPU-seconds for WResNet-152-10 where these take 1.7 and, replayed, 1.0 (torch 2.13), because no
symbolic graph is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from girih.capture.errors import CaptureError
from girih.capture.source import find_source
from girih.capture.torch.environment import LSTM_LAYER, lstm_workspace, next_draw

Tensor = Any
_VALUE = torch.ops.aten._local_scalar_dense.default
_DETACH = torch.ops.aten.detach.default
_COPY = torch.ops.aten.copy_.default
_PICKS = {torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor}
_PUTS = {
    getattr(torch.ops.aten, name).default
    for name in ("index_put", "index_put_", "_unsafe_index_put", "_index_put_impl_")
}
_CHECKS = (torch.nn.functional.gaussian_nll_loss.__code__,)
"""Functions that read a value only to refuse what is not admissible (a negative variance)."""
WITHOUT_SPARSE = (
    "where it is a constant, give the module girih.gnn.GraphBuffers(girih.gnn.Adjacency.of(matrix)) in its place, by "
    "which torch.sparse.mm and @ multiply; or else give it with to_dense()"
)
Phase = Literal["forward", "backward", "update"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor in a record, by number."""

    number: int


@dataclass(frozen=True, slots=True)
class Note:
    """Where a call comes from.

    draw: of a call that draws random numbers, its number; a draw that is repeated has the same.
    """

    phase: Phase = "forward"
    source: str = ""
    scope: str = ""
    draw: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call: `args` and `kwargs` with `Slot`s for tensors; `outputs` likewise, lists as tuples."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Any, ...]
    note: Note


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that raised `error`, with the arguments that it was given."""

    error: BaseException
    function: Any
    arguments: tuple[Any, ...]
    note: Note

    @property
    def operator(self) -> str:
        return str(self.function).removesuffix(".default")


class ForeignTensorError(CaptureError):
    """The program reads a tensor that an earlier run of it has left somewhere."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(f"the program reads a tensor {list(tensor.shape)} that an earlier capture of it has made")
        self.tensor = tensor


class Recorder(TorchDispatchMode):
    """Collects records. `tensors[n]` is slot n's fake tensor; `constants` the real ones that were met, `fresh` those
    of them that the program has made of numbers.

    decomposition_of: what to run in place of an operator, or None to record it.
    """

    def __init__(self, fake_mode: Any, decomposition_of: Callable[[Any], Callable[..., Any] | None]) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.decomposition_of = decomposition_of
        self.records: list[RecordedCall] = []
        self.tensors: list[Tensor] = []
        self.constants: dict[int, Tensor] = {}
        self.fresh: set[int] = set()
        self.gradients: list[tuple[Tensor, Tensor | None]] = []
        """What real tensors had as gradients; the backward pass of a record gives them fake ones."""
        self.phase: Phase = "forward"
        self.scopes: list[str] = [""]
        self.replayed: Note | None = None
        self.failure: FailedCall | None = None
        self.lay: dict[int, tuple[int, ...]] = {}
        """By slot, the strides of a tensor that a program wrote into in place, where they are not those of the result
        that stands for it here."""
        self._slots: dict[int, Slot] = {}
        self._picked: dict[int, tuple[Tensor, ...]] = {}
        """By slot, the numbers along each dimension of what a mask picks that is known."""
        self._keep: list[Tensor] = []  # an id is good only as long as its tensor lives
        self._forward: dict[int, Note] = {}
        self._notes: dict[tuple[Phase, str, str], Note] = {}

    def slot(self, tensor: Tensor) -> Slot:
        """The slot of a tensor, new if it was never seen: then it is an input, or a constant if it is real."""
        slot = self._slots.get(id(tensor))
        if slot is not None:
            return slot
        self._keep.append(tensor)
        fake = tensor
        if _is_fake(tensor) and tensor.fake_mode is not self.fake_mode:
            raise ForeignTensorError(tensor)
        if not _is_fake(tensor):
            if tensor.layout != torch.strided:
                raise _sparse(find_source(sys._getframe(1)), "reads", tensor)
            if tensor.is_leaf and tensor.requires_grad:
                self.gradients.append((tensor, tensor.grad))
                tensor.grad = None
            fake = self.fake_mode.from_tensor(tensor)
            self.constants[len(self.tensors)] = tensor
        return self._number(tensor, fake)

    def known(self, tensor: Tensor) -> Slot | None:
        """The slot of a tensor, if it was seen."""
        return self._slots.get(id(tensor))

    def strides(self, slot: Slot) -> tuple[int, ...]:
        """How a tensor lies in the program."""
        return self.lay.get(slot.number, tuple(self.tensors[slot.number].stride()))

    def _number(self, tensor: Tensor, fake: Tensor) -> Slot:
        slot = Slot(len(self.tensors))
        self.tensors.append(fake)
        self._slots[id(tensor)] = slot
        if fake is not tensor:
            self._slots[id(fake)] = slot
        return slot

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.namespace == "prim":  # a tensor's device, asked for by C++ that ends the process if it fails
            return function(*args, **kwargs)
        if function is _VALUE and _checks(sys._getframe(1)):
            return False
        try:
            return self._record(function, args, kwargs)
        except Exception as error:
            if self.failure is None or self.failure.error is not error:  # the innermost call of nested ones
                note = self._place(sys._getframe(1))
                self.failure = FailedCall(error, function, (*args, *kwargs.values()), note)
            raise

    def failure_of(self, error: BaseException) -> FailedCall | None:
        """The call at which this error was raised, if it was raised at one."""
        failure = self.failure
        same = failure is not None and (failure.error is error or str(failure.error) == str(error))
        return failure if same else None

    def _record(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if function is _DETACH and not _is_fake(args[0]) and not args[0].requires_grad:
            self.slot(args[0])
            with _disable_current_modes():  # so NumPy asks for a constant's memory, which a fake does not have
                return function(*args)
        decomposition = self.decomposition_of(function)
        if decomposition is not None:
            with self:
                return _run(decomposition, args, kwargs)
        if function is torch.ops.aten.lift_fresh.default:
            number = self.slot(args[0]).number
            self.fresh.add(number)
            return self.tensors[number]
        if function in _PICKS or (function in _PUTS and args[3:4] == (True,)):  # which is the gradient of picking
            args = (args[0], self._without_masks(args[0], args[1]), *args[2:])
        noted_args = tuple(self._noted(item) for item in args)
        noted_kwargs = {name: self._noted(item) for name, item in kwargs.items()}
        if self.constants:
            args = tuple(self._fake(item) for item in args)
            kwargs = {name: self._fake(item) for name, item in kwargs.items()}
        try:
            results = _run(function, args, kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            known = _called(self, function, noted_args, noted_kwargs)
            if known is None:
                raise
            return known
        if function is LSTM_LAYER:  # tensors without data leave out what oneDNN keeps for the gradient
            results = (*results[:3], torch.empty(lstm_workspace(args), dtype=torch.uint8))
        if isinstance(results, torch.Tensor):
            if results.layout != torch.strided and self.replayed is None and not torch._C._current_autograd_node():
                raise _sparse(find_source(sys._getframe(2)), "makes", results)
            outputs: tuple[Any, ...] = (self._made(results),)
        elif isinstance(results, (tuple, list)):
            outputs = tuple(self._made(item) for item in results)
        elif results is None and function._schema.is_mutable:
            raise CaptureError(f"{self._place(sys._getframe(2)).source}: {function} writes into lists of tensors")
        else:
            return results  # a number that the fake tensor knows: a size, or the value of a constant
        note = self._place(sys._getframe(2))
        if _is_random(function) and self.replayed is None:
            note = replace(note, draw=next_draw())
        self.records.append(RecordedCall(function, noted_args, noted_kwargs, outputs, note))
        return results

    def _without_masks(self, x: Tensor, indices: Sequence[Any]) -> list[Any]:
        """Indices into x, those that are masks whose values are known as the numbers of what they pick."""
        parts: list[Any] = []
        for index in indices:
            picked = None
            if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) and index.dim():
                if index.shape != x.shape[len(parts) : len(parts) + index.dim()]:
                    where = find_source(sys._getframe(3)) or "the program"
                    raise CaptureError(
                        f"{where}: a mask {[*index.shape]} cannot pick from a tensor {[*x.shape]} at "
                        f"dimension {len(parts)}: give it the shape of what it picks from"
                    )
                slot = self.slot(index)
                picked = self._picked.get(slot.number) or self._rows(slot)
            parts += (index,) if picked is None else picked
        return parts

    def _rows(self, mask: Slot) -> tuple[Tensor, ...] | None:
        values = _known(self, [mask])
        if values is None:
            return None
        with _disable_current_modes():
            picked = tuple(values[mask.number].nonzero().unbind(1))
        if mask.number in self.constants and mask.number not in self.fresh:  # nothing writes into it
            self._picked[mask.number] = picked
        return picked

    def _made(self, item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return None
        slot = self._slots.get(id(item))
        if slot is None:
            self._keep.append(item)
            slot = self._number(item, item)
        return slot

    def _noted(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return self.slot(item)
        if isinstance(item, (list, tuple)):
            return tuple(self._noted(part) for part in item)
        return item

    def _fake(self, item: Any) -> Any:
        """Real tensors in a call replaced by their fakes."""
        if isinstance(item, torch.Tensor):
            return item if _is_fake(item) else self.tensors[self._slots[id(item)].number]
        if isinstance(item, (list, tuple)):
            return type(item)(self._fake(part) for part in item)
        return item

    def _place(self, frame: Any) -> Note:
        """Where the present call comes from, which `frame` has made."""
        if self.replayed is not None:
            return self.replayed
        if self.phase == "backward" and not torch.is_grad_enabled():
            node = torch._C._current_autograd_node()
            origin = self._forward.get(node._sequence_nr()) if node is not None else None
            if origin is not None:
                return self._intern("backward", origin.source, origin.scope)
            return self._intern("backward", "", "")
        if self.phase == "update":
            return self._intern("update", "", self.scopes[-1])
        # With gradients on in the backward pass, torch.utils.checkpoint runs a part of the forward again.
        note = self._intern(self.phase, find_source(frame), self.scopes[-1])
        if torch.is_grad_enabled():
            self._forward.setdefault(torch.autograd._get_sequence_nr() - 1, note)
        return note

    def _intern(self, phase: Phase, source: str, scope: str) -> Note:
        key = (phase, source, scope)
        note = self._notes.get(key)
        if note is None:
            note = self._notes[key] = Note(*key)
        return note


def _sparse(source: str, does: str, tensor: Tensor) -> CaptureError:
    which = f"{source or 'the program'} {does} a sparse matrix {list(tensor.shape)} ({tensor.layout})"
    return CaptureError(
        f"{which}, which a plan does not hold: {WITHOUT_SPARSE}. Where its values are computed, add rows up with them: "
        "torch.zeros_like(x).index_add(0, rows, values[:, None] * x[columns])"
    )


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """PyTorch's part of a call: errors that come through here are the program's, others of a call are girih's."""
    return function(*args, **kwargs)


def is_own(error: BaseException) -> bool:
    """Whether recording a call raised this error, and not the call."""
    inner, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == __file__:
            inner = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return inner not in ("", "_run", "module_scopes", "functionalise", "replay")


@cache
def _is_random(function: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in function.tags


def _checks(frame: Any) -> bool:
    """Whether a function asks that only checks; around dispatch modes PyTorch has up to two functions of its own."""
    return any(code in _CHECKS for code in (frame.f_code, frame.f_back.f_code, frame.f_back.f_back.f_code))


def _is_fake(tensor: Tensor) -> bool:
    return isinstance(tensor, torch._subclasses.fake_tensor.FakeTensor)


def _known(recorder: Recorder, slots: Iterable[Slot]) -> dict[int, Tensor] | None:
    """The values that these slots have now, by number, with others; None where they do not follow from constants alone.
    Cost: linear in the records, and what the calls behind these slots take."""
    needed, calls = {_memory(recorder, slot) for slot in slots}, []
    for record in reversed(recorder.records):
        touched = {*_slots_in(record.outputs), *written_by(record)}
        if not needed.isdisjoint(_memory(recorder, slot) for slot in touched):
            needed |= {_memory(recorder, slot) for slot in _slots_in((record.args, record.kwargs))}
            calls.append(record)
    with _disable_current_modes():
        values = {
            number: tensor.clone() if number in recorder.fresh else tensor
            for number, tensor in recorder.constants.items()
            if not tensor.is_meta and _memory(recorder, Slot(number)) in needed
        }
    others = {_memory(recorder, Slot(number)) for number in values if number not in recorder.fresh}
    reached = {*values}
    for record in reversed(calls):
        reads = {slot.number for slot in _slots_in((record.args, record.kwargs))}
        writes = any(_memory(recorder, slot) in others for slot in written_by(record))
        if record.note.draw is not None or writes or not reads <= reached:
            return None
        reached |= {slot.number for slot in _slots_in(record.outputs)}
    if any(slot.number not in reached for slot in slots):
        return None
    for record in reversed(calls):
        results = _with_values(record.function, record.args, record.kwargs, values)
        made = results if isinstance(results, (tuple, list)) else (results,)
        values |= {slot.number: part for slot, part in zip(record.outputs, made, strict=True) if isinstance(slot, Slot)}
    return values


def _called(recorder: Recorder, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What a call gives, if the values of all tensors that it reads are known; else, and of none, None."""
    reads = _slots_in((args, kwargs))
    values = _known(recorder, reads) if reads else None
    return None if values is None else _with_values(function, args, kwargs, values)


def _with_values(function: Any, args: Any, kwargs: dict[str, Any], values: dict[int, Tensor]) -> Any:
    args, kwargs = tree_map_only(Slot, lambda slot: values[slot.number], (args, kwargs))
    with _disable_current_modes(), torch.no_grad():
        return function(*args, **kwargs)


def _slots_in(items: Any) -> list[Slot]:
    return [item for item in tree_leaves(items) if isinstance(item, Slot)]


def _memory(recorder: Recorder, slot: Slot) -> Any:
    tensor = recorder.tensors[slot.number]
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else slot


@contextmanager
def module_scopes(model: Any, recorder: Recorder) -> Iterator[None]:
    """While open, `recorder.scopes[-1]` is the path of the module whose forward runs."""
    handles = []
    for name, module in model.named_modules():

        def enter(_module: Any, _inputs: Any, name: str = name) -> None:
            recorder.scopes.append(name)

        def leave(_module: Any, _inputs: Any, _outputs: Any) -> None:
            recorder.scopes.pop()

        handles.append(module.register_forward_pre_hook(enter, prepend=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        del recorder.scopes[1:]


def is_functional(records: Sequence[RecordedCall]) -> bool:
    """Whether no call writes into a tensor."""
    return not any(record.function._schema.is_mutable for record in records)


def functionalise(
    recorder: Recorder, inputs: Sequence[Slot], outputs: Sequence[Slot], exact: bool = False
) -> tuple[Recorder, list[Slot], list[Slot]]:
    """The same program without writes: (its recorder, its inputs, its outputs). exact: note how its tensors lay."""
    renamed = None if exact else _renamed(recorder, outputs)
    return _replayed(recorder, inputs, outputs, exact) if renamed is None else (renamed[0], [*inputs], renamed[1])


WITHOUT_WRITE = {
    getattr(getattr(torch.ops.aten, name), overload): getattr(getattr(torch.ops.aten, other), overload)
    for name, other, overload in (
        ("_native_batch_norm_legit", "_native_batch_norm_legit_functional", "default"),
        *((f"{name}_", name, "default") for name in ("copy", "relu", "zero")),
        *((f"{name}_", name, "Tensor") for name in ("add", "sub", "mul", "div")),
        ("fill_", "fill", "Scalar"),
    )
}
"""What gives, as further results at its end, what the other writes into its arguments."""


def _renamed(recorder: Recorder, outputs: Sequence[Slot]) -> tuple[Recorder, list[Slot]] | None:
    """The record with a new slot for what each call writes, and the slots of the outputs then. None where that is not
    all: something else lies in the same memory, a call has no form without the write, or one of another dtype."""
    # A call that writes gives what it was given.
    made = {slot for record in recorder.records for slot in {*record.outputs} - {*written_by(record)}}
    second = Recorder(recorder.fake_mode, recorder.decomposition_of)
    second.constants, second.tensors = recorder.constants, [*recorder.tensors]
    alone: dict[Any, Slot | None] = {}  # by memory, the one slot in it; None for several
    now: dict[Slot, Slot] = {}

    def see(slot: Slot) -> None:
        memory = _memory(recorder, slot)
        alone[memory] = slot if alone.get(memory, slot) == slot else None

    def current(item: Any) -> Any:
        if isinstance(item, Slot):
            return now.get(item, item)
        return tuple(map(current, item)) if isinstance(item, tuple) else item

    for slot in map(Slot, range(len(recorder.tensors))):
        if slot not in made:
            see(slot)
    for record in recorder.records:
        function, results = record.function, record.outputs
        args, kwargs = current(record.args), {name: current(item) for name, item in record.kwargs.items()}
        if function._schema.is_mutable:
            written = [*written_by(record)]
            dtypes = {recorder.tensors[item.number].dtype for item in record.args if isinstance(item, Slot)}
            is_known = function in WITHOUT_WRITE and (function is _COPY or len(dtypes) == 1)
            if not is_known or any(alone[_memory(recorder, slot)] != slot for slot in written):
                return None
            function = WITHOUT_WRITE[function]
            for slot in written:
                now[slot] = Slot(len(second.tensors))
                second.tensors.append(recorder.tensors[slot.number])
            results = (*(slot for slot in results if slot not in written), *map(current, written))
        second.records.append(RecordedCall(function, args, kwargs, results, record.note))
        for slot in record.outputs:
            if slot is not None:
                see(slot)
    return second, [current(slot) for slot in outputs]


def written_by(record: RecordedCall) -> Iterator[Slot]:
    """What a call writes into."""
    schema = record.function._schema
    if not schema.is_mutable:
        return
    arguments = dict(zip((argument.name for argument in schema.arguments), record.args, strict=False))
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            item = arguments.get(argument.name, record.kwargs.get(argument.name))
            yield from (part for part in (item if isinstance(item, tuple) else (item,)) if isinstance(part, Slot))


def _replayed(
    recorder: Recorder, inputs: Sequence[Slot], outputs: Sequence[Slot], lay: bool
) -> tuple[Recorder, list[Slot], list[Slot]]:
    """lay: note how its tensors lay."""
    entering = [*inputs, *(Slot(number) for number in recorder.constants)]
    fakes = [recorder.tensors[slot.number].detach().clone() for slot in entering]
    second = Recorder(recorder.fake_mode, recorder.decomposition_of)
    slots = [second.slot(fake) for fake in fakes]

    def replay(*tensors: Tensor) -> list[Tensor]:
        known: dict[int, Tensor] = {slot.number: t for slot, t in zip(entering, tensors, strict=True)}

        def fill(item: Any) -> Any:
            if isinstance(item, Slot):
                return known[item.number]
            if isinstance(item, tuple):
                return [fill(part) for part in item]
            return item

        def note(items: Any) -> None:
            for item in items:
                if isinstance(item, tuple):
                    note(item)
                elif isinstance(item, Slot):
                    inner = torch._C._functorch._unwrap_functional_tensor(known[item.number], True)
                    if (own := second.known(inner)) is not None:
                        second.lay[own.number] = tuple(recorder.tensors[item.number].stride())

        for record in recorder.records:
            second.replayed = record.note
            if lay:
                note((*record.args, *record.kwargs.values()))
            args = [fill(item) for item in record.args]
            try:
                results = record.function(*args, **{name: fill(item) for name, item in record.kwargs.items()})
            except Exception as error:
                recorder.failure = FailedCall(error, record.function, tuple(args), record.note)
                raise
            parts = results if isinstance(results, (tuple, list)) else (results,)
            for slot, part in zip(record.outputs, parts, strict=True):
                if slot is not None:
                    known[slot.number] = part
            if lay:
                note(record.outputs)
        return [known[slot.number] for slot in outputs]

    with torch.no_grad(), recorder.fake_mode, second:
        results = torch.func.functionalize(replay)(*fakes)
    count = len(inputs)
    for slot, original in zip(slots[count:], entering[count:], strict=True):
        second.constants[slot.number] = recorder.constants[original.number]
    leftover = [record for record in second.records if record.function._schema.is_mutable]
    # What is written back into the inputs at the end (`copy_`) is dropped: updates are outputs here.
    for record in leftover:
        if record.function is not torch.ops.aten.copy_.default:
            raise CaptureError(f"{record.note.source}: {record.function} writes into its argument")
    second.records = [record for record in second.records if not record.function._schema.is_mutable]
    return second, slots[:count], [second.slot(result) for result in results]
