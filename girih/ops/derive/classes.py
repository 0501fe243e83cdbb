"""FlexFlow's classes of dimensions (SOAP, §4: sample, attribute, parameter), derived for each index variable.

FlexFlow gives each operator a table of its parallelizable dimensions. They follow from what an index variable
indexes: dividing one that reaches into a parameter divides the model; dividing the one that walks over the samples
of a batch is data parallelism; any other divides the attributes of a sample (a position, a pixel, a head).
"""

from __future__ import annotations

from collections.abc import Sequence

from girih.ops.expressions import Affine
from girih.ops.operator import Description

SAMPLE, ATTRIBUTE, PARAMETER = "sample", "attribute", "parameter"


def classes(
    description: Description, is_parameter: Sequence[bool], output_is_parameter: bool = False
) -> tuple[str, ...]:
    """The class of each index variable of a description, in order.

    is_parameter: for each tensor input, whether it is a parameter (or a buffer, or a parameter's gradient or state).
    output_is_parameter: the same of the output: what places a weight's gradient divides the model.
    """
    parameters: set[int] = set()
    samples: set[int] = set()
    batched = [number for number, parameter in enumerate(is_parameter) if not parameter and description.reads[number]]
    rank = max((len(description.inputs[number].shape) for number in batched), default=0)
    for number, parameter in enumerate(is_parameter):
        for read in description.reads[number]:
            if parameter:
                parameters |= {variable for index in read for variable in _variables(index)}
            elif rank and len(read) == rank:
                samples |= _outermost(read[0], description)
    if not batched and description.place:  # made from nothing, or from parameters: the first dimension of the result
        samples |= _outermost(description.place[0], description)
    if output_is_parameter:
        parameters |= {variable for index in description.place for variable in _variables(index)}
    return tuple(
        PARAMETER if variable in parameters else SAMPLE if variable in samples else ATTRIBUTE
        for variable in range(description.rank)
    )


def _variables(index: Affine | None) -> set[int]:
    return set() if index is None else {variable for variable, _ in index.terms}


def _outermost(index: Affine | None, description: Description) -> set[int]:
    """The variable that moves farthest in a merged index `time · sample + position`: the sample."""
    if index is None or not index.terms:
        return set()
    moving = [(abs(coefficient), variable) for variable, coefficient in index.terms if description.sizes[variable] > 1]
    return {max(moving)[1]} if moving else {index.terms[0][0]}
