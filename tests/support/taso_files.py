"""Rules in TASO's format (`girih.workshop.taso`), for tests that read such files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Attribute, Expression, Rule, RuleError, Term, Variable, walk
from girih.workshop.taso import (
    ACTIVATION,
    AXIS,
    BYTES,
    CONCAT,
    CONV2D,
    DIMENSIONS,
    ENLARGE,
    EW_ADD,
    EW_MUL,
    GROUP,
    MATMUL,
    MUL,
    NUMBER_OF_OUTPUTS,
    PAD,
    PERMUTATION,
    RELU,
    SAME,
    SIGMOID,
    SPLIT,
    STRIDE_H,
    STRIDE_W,
    TANH,
    TRANSPOSE,
    VALID,
    VARINT,
)  # fmt: skip


def encoded(rules: Sequence[Rule]) -> bytes:
    """Rules in the format; only operators that it has a name for.

    Raises:
        RuleError: an operator or attribute that the format cannot say.
    """
    return b"".join(_field(1, _encoded(rule)) for rule in rules)


def _encoded(rule: Rule) -> bytes:
    names: dict[str, int] = {}
    scalars: set[Expression] = {Variable(name) for name, shape in rule.shapes if shape == (Extent.of(1),)}
    sides: list[tuple[bytes, dict[Expression, tuple[int, int]]]] = []
    for key, side in ((1, rule.source), (2, rule.target)):
        places: dict[Expression, tuple[int, int]] = {}
        data, count, splits = b"", 0, dict[tuple[Expression, ...], int]()
        for item in walk(side):
            if isinstance(item, Variable):
                places[item] = (names.setdefault(item.name, -1 - len(names)), 0)
                continue
            if item.operator == "split" and item.arguments in splits:
                places[item] = (splits[item.arguments], item.result or 0)
                continue
            if item.operator == "mul" and scalars & set(item.arguments):  # the scalar comes second
                item_ = replace(item, arguments=tuple(sorted(item.arguments, key=lambda one: one in scalars)))
                kind = MUL
            else:
                item_, kind = item, KINDS.get(item.operator, 0)
            data += _field(key, _encoded_operator(item_, kind, [places[argument] for argument in item_.arguments]))
            places[item] = (count, item.result or 0)
            if item.operator == "split":
                splits[item.arguments] = count
            count += 1
        sides.append((data, places))
    mapped = b""
    for one, other in zip(rule.source, rule.target, strict=True):
        (first, result), (second, other_result) = sides[0][1][one], sides[1][1][other]
        numbers = ((1, first), (2, second), (3, result), (4, other_result))
        mapped += _field(3, b"".join(_number(key, value) for key, value in numbers))
    return sides[0][0] + sides[1][0] + mapped


KINDS = {
    "relu": RELU, "sigmoid": SIGMOID, "tanh": TANH, "add": EW_ADD, "mul": EW_MUL, "mm": MATMUL, "bmm": MATMUL,
    "t": TRANSPOSE, "cat": CONCAT, "split": SPLIT, "constant_pad_nd": ENLARGE, "convolution": CONV2D,
}  # fmt: skip


def _encoded_operator(item: Term, kind: int, read: Sequence[tuple[int, int]]) -> bytes:
    if item.operator not in KINDS:
        raise RuleError(f"{item.operator} has no name in TASO's format")
    known = dict(item.attributes)
    parameters: list[tuple[int, int]] = []
    if item.operator in ("cat", "split"):
        parameters = [(AXIS, _whole(known.get("dim", 0))), (DIMENSIONS, 2)]
        parameters += [(NUMBER_OF_OUTPUTS, 2)] if item.operator == "split" else []
    elif item.operator == "t":
        parameters = [(DIMENSIONS, 2), (PERMUTATION, 2), (13, 1)]
    elif item.operator in ("mm", "bmm"):
        parameters = [(ACTIVATION, 0)]
    elif item.operator == "convolution":
        if known.get("dilation", 1) != 1:
            raise RuleError("a dilation has no name in TASO's format")
        stride = known.get("stride", 1)
        pair = stride if isinstance(stride, tuple) else (stride, stride)
        mode = VALID if known.get("padding", 0) == 0 else SAME
        parameters = [(STRIDE_H, _whole(pair[0])), (STRIDE_W, _whole(pair[1])), (PAD, mode), (ACTIVATION, 0)]
        parameters += [(GROUP, _whole(known["groups"]))] if "groups" in known else []
    read = [*read, *([read[0]] if item.operator == "constant_pad_nd" else [])]
    data = _number(1, kind)
    data += b"".join(_field(2, _number(1, number) + _number(2, result)) for number, result in read)
    return data + b"".join(_field(3, _number(1, key) + _number(2, value)) for key, value in parameters)


def _whole(value: Attribute) -> int:
    if not isinstance(value, int):
        raise RuleError(f"{value} is no number, which TASO's format needs")
    return value


def _field(key: int, data: bytes) -> bytes:
    return _bytes_of(key << 3 | BYTES) + _bytes_of(len(data)) + data


def _number(key: int, value: int) -> bytes:
    return _bytes_of(key << 3 | VARINT) + _bytes_of(value & ((1 << 64) - 1))


def _bytes_of(value: int) -> bytes:
    parts: list[int] = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
