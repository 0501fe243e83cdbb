"""Tensors that lie in one memory: what a graph, in which each is a value of its own, would tell apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from girih.capture.errors import CaptureError
from girih.capture.torch.record import Recorder, Slot, written_by
from girih.graph import Graph

Tensor = Any
OTHER = "a tensor that is neither parameter nor buffer of the model"


def check_writes(recorder: Recorder) -> None:
    """Raises CaptureError for a write into a tensor that was there before the step and is no input of the graph."""
    kept = {_storage(recorder.tensors[number]): number for number in recorder.constants if number not in recorder.fresh}
    if not kept:
        return
    for record in recorder.records:
        for slot in written_by(record):
            number = kept.get(_storage(recorder.tensors[slot.number]))
            if number is not None:
                raise CaptureError(
                    f"{record.note.source or 'the step'} writes into {OTHER}, of shape "
                    f"{list(recorder.constants[number].shape)}; a plan repeats one step and would not carry that over: "
                    "make it a buffer of the model (register_buffer)"
                )


def check_shared(model: Any, recorder: Recorder, graph: Graph) -> None:
    """Raises CaptureError if something that the step updates shares its memory with something else that it reads."""
    updates = graph.updates
    updated = {item.path for item in graph.inputs if updates.get(item.name, item.name) != item.name}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    _check_own({id(tensor): path for path, tensor in tensors if path in updated}, recorder)
    tensors += [(OTHER, tensor) for tensor in recorder.constants.values()]
    beside: dict[Any, list[tuple[str, Tensor]]] = defaultdict(list)
    for path, tensor in tensors:
        if tensor.layout == torch.strided and tensor.numel():
            beside[_storage(tensor)].append((path, tensor))
    for group in beside.values():
        for number, (path, tensor) in enumerate(group):
            for other, alike in group[:number]:
                if {path, other} & updated and tensor is not alike and _overlap(tensor, alike):
                    raise CaptureError(
                        f"{_named(path)} shares the memory of {_named(other)}, and the step updates one of them: the "
                        "other would stay what it was. Make them one nn.Parameter (tied weights), or clone() one"
                    )


def _check_own(updated: Mapping[int, str], recorder: Recorder) -> None:
    """updated: by id, the path of what a step updates. What it reads is a stand-in, unless the step has kept it."""
    for number, tensor in recorder.constants.items():
        if id(tensor) in updated:
            reads = (record.note.source for record in recorder.records if Slot(number) in record.args)
            raise CaptureError(
                f"{next(filter(None, reads), 'the step')} reads the model's {updated[id(tensor)]!r} from a variable of "
                "its own, and not from the model that it is given, and updates it: what it reads would stay what it "
                "was. Take it from the model within the step, as by model.parameters()"
            )


def _named(path: str) -> str:
    return path if path is OTHER else repr(path)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Do the stretches of memory from the first byte to the last have a byte in common?"""
    (low, high), (first, last) = map(_bytes, (one, other))
    return low < last and first < high


def _bytes(tensor: Tensor) -> tuple[int, int]:
    begin = tensor.storage_offset() * tensor.element_size()
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (reach + 1) * tensor.element_size()
