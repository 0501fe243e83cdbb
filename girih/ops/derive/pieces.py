"""One device's share of a node: which regions it reads, what is padded, and the call that computes it.

A division cuts the index space of a description into boxes, one for each device. From a box follows everything that
the device does, without torch:

1. it receives, of each input, the box that its reads cover, cut to the tensor's bounds (`regions`);
2. it pads, with the operator's `padding`, those dimensions that are read through a divided index variable, to the
   whole region that is read: halos at the border of a tensor then look like halos inside (`pads`);
3. it calls the operator, or the one that the `piece` rule names, with the attributes of the piece.

The result is the box `output` of the whole result or, where the root reduction is divided, a part to be combined
with the others of the same box by the description's reducer.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from girih.ops.catalogue import catalogue
from girih.ops.derive.divisions import Box, clip_box, read_box, span
from girih.ops.operator import Attributes, Description, Operator, Piece


@dataclass(frozen=True)
class PieceCall:
    """What one device computes of a node.

    operator, attributes: the call. names: under which name each input is passed, None for one that is not.
    regions: the box of each input that is read, inside of the input. Inputs of which only the shape matters have
    an empty box. pads: elements before and after, for each input and dimension, filled with `padding`.
    output: the box of the result. result: which one, if the operator returns several.
    """

    operator: str
    attributes: Attributes
    names: tuple[str | None, ...]
    regions: tuple[Box, ...]
    pads: tuple[Box, ...]
    padding: float | None
    output: Box
    result: int | None

    def arguments(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """The arguments of the call by name; `tensors` are the regions in order, padded."""
        filled: dict[str, Any] = {}
        for name, tensor in zip(self.names, tensors, strict=True):
            if name is None:
                continue
            base, dot, position = name.partition(".")
            if dot:
                items = filled.setdefault(base, [])
                items += [None] * (int(position) + 1 - len(items))
                items[int(position)] = tensor
            else:
                filled[base] = tensor
        lists = {name: tuple(value) for name, value in filled.items() if isinstance(value, list)}
        return {**self.attributes, **filled, **lists}


def make_piece(
    description: Description, attributes: Mapping[str, Any], starts: Sequence[int], stops: Sequence[int]
) -> PieceCall:
    """The call for the box [starts, stops) of the description's index variables.

    attributes: of the node. The box must be one that can be divided off: see `divisible` and `executable`.
    """
    operator = description.operator
    starts, stops = list(map(int, starts)), list(map(int, stops))
    reads = [read_box(description, tensor, starts, stops) for tensor in range(len(description.inputs))]
    regions = [clip_box(read, kind.shape) for read, kind in zip(reads, description.inputs, strict=True)]
    pads = pads_of(description, starts, stops, reads, regions)
    output = tuple(span(index, starts, stops) for index in description.place)
    name, changed = operator.name, dict(attributes)
    if operator.piece is not None:
        piece = Piece(
            description.names,
            tuple(starts),
            tuple(stops),
            description.sizes,
            tuple(regions),
            output,
            description.output.dtype,
        )
        ruled = operator.piece({**_defaults(description), **attributes}, piece)
        name, changed = ruled if isinstance(ruled, tuple) else (name, ruled)
    names = description.tensors if name == operator.name else _renamed(description, catalogue()[name])
    result = operator.result if name == operator.name else catalogue()[name].result
    result = description.result if operator.results > 1 else result
    return PieceCall(name, changed, names, tuple(regions), pads, operator.padding, output, result)


def pads_of(
    description: Description, starts: Sequence[int], stops: Sequence[int], reads: Sequence[Box], regions: Sequence[Box]
) -> tuple[Box, ...]:
    """Elements before and after each dimension of each input that a piece reads outside of it, where it pads them.

    reads: what the piece reads; regions: the same inside of the inputs.
    """
    if description.operator.padding is None:
        return tuple([((0, 0),) * len(read) for read in reads])
    cut = [stop - start != size for start, stop, size in zip(starts, stops, description.sizes, strict=True)]
    return tuple(
        [
            _pads(description, tensor, cut, read, region)
            for tensor, (read, region) in enumerate(zip(reads, regions, strict=True))
        ]
    )


def _pads(description: Description, tensor: int, cut: Sequence[bool], read: Box, clipped: Box) -> Box:
    """How much is read outside of the input, in dimensions that are read through a divided index variable."""
    pads = []
    for dimension, ((low, high), (start, stop)) in enumerate(zip(read, clipped, strict=True)):
        indices = [indices[dimension] for indices in description.reads[tensor]]
        divided = any(cut[variable] for index in indices if index is not None for variable, _ in index.terms)
        before = min(max(0, -low), high - low) if divided else 0
        pads.append((before, high - low - before - (stop - start)) if divided else (0, 0))
    return tuple(pads)


def _defaults(description: Description) -> Attributes:
    tensors = {name.partition(".")[0] for name in description.tensors}
    return {
        name: parameter.default
        for name, parameter in description.operator.parameters.items()
        if parameter.default is not inspect.Parameter.empty and name not in tensors
    }


def _renamed(description: Description, other: Operator) -> tuple[str | None, ...]:
    """The inputs under the other operator's parameter names, in order; what is never read is left out."""
    parameters = iter(other.parameters)
    return tuple(_schema_name(other, next(parameters)) if reads else None for reads in description.reads)


def _schema_name(other: Operator, parameter: str) -> str:
    return "self" if parameter == "x" and other.name.startswith("aten.") else parameter
