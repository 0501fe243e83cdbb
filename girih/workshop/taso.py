"""Files of rules in TASO's format (`graph_subst.pb`): protobuf messages, read here from their wire format.

    RuleCollection { repeated Rule rule = 1; }
    Rule           { repeated Operator srcOp = 1; repeated Operator dstOp = 2; repeated MapOutput mappedOutput = 3; }
    Operator       { int32 type = 1; repeated Tensor input = 2; repeated Parameter para = 3; }
    Tensor         { int32 opId = 1; int32 tsId = 2; }            opId below zero: an input of the rule
    Parameter      { int32 key = 1; int32 value = 2; }
    MapOutput      { int32 srcOpId = 1; int32 dstOpId = 2; int32 srcTsId = 3; int32 dstTsId = 4; }

What each operator is there is put in girih's words: an activation is an operator of its own; "same" padding is a
symbol, as much on each side, and a kernel that is enlarged gets more of it; a concatenation of several is one of two,
again and again. Rules that split an input speak of one that was concatenated: it is written so.

Cost: linear in the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.parts import with_parts
from girih.rewrite.rules.rule import Attribute, Expression, Rule, RuleError, Term, Variable, walk

Field = tuple[int, "int | bytes"]
VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
MOST_BITS = 70
MOST_DEPTH = 64
"""Operators that read one another."""

# Operator types and parameters, by their numbers in the format.
CONV2D, POOL_MAX, POOL_AVG, RELU, SIGMOID, TANH = 3, 6, 7, 8, 9, 10
CONCAT, SPLIT, TRANSPOSE, EW_ADD, EW_MUL, MATMUL, MUL, ENLARGE = 12, 13, 15, 16, 17, 18, 19, 20
GROUP, KERNEL_H, KERNEL_W, STRIDE_H, STRIDE_W, PAD, ACTIVATION, DIMENSIONS, AXIS, PERMUTATION = range(3, 13)
NUMBER_OF_OUTPUTS = 2
ACTIVATIONS = {0: "", 1: "sigmoid", 2: "relu", 3: "tanh"}
SAME, VALID = 0, 1
PADDING, MORE = Extent.of("p"), Extent.of("e")


@dataclass(frozen=True)
class ProtobufMessage:
    """Fields by their numbers, in the order of the file."""

    fields: tuple[Field, ...]

    def number(self, key: int, default: int | None = None) -> int:
        for name, value in self.fields:
            if name == key and isinstance(value, int):
                return value - (1 << 64) if value >> 63 else value
        if default is None:
            raise RuleError(f"field {key} is missing")
        return default

    def messages(self, key: int) -> list[ProtobufMessage]:
        return [message(value) for name, value in self.fields if name == key and isinstance(value, bytes)]


def message(data: bytes) -> ProtobufMessage:
    """The fields of a message.

    Raises:
        RuleError: the bytes are none, with the place where they end or make no sense.
    """
    fields: list[Field] = []
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            fields.append((tag >> 3, value))
            continue
        if kind == BYTES:
            size, place = _varint(data, place)
        elif kind in (FIXED_64, FIXED_32):
            size = 8 if kind == FIXED_64 else 4
        else:
            raise RuleError(f"no protobuf: byte {place} begins a field of kind {kind}")
        if size > len(data) - place:
            raise RuleError(f"the file is cut off: a field has {size} bytes, {len(data) - place} are left")
        if kind == BYTES:
            fields.append((tag >> 3, data[place : place + size]))
        place += size
    return ProtobufMessage(tuple(fields))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data):
            raise RuleError("the file is cut off in the middle of a number")
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value & ((1 << 64) - 1), place
        if shift >= MOST_BITS:
            raise RuleError(f"no protobuf: a number of more than {MOST_BITS} bits")


def decoded(data: bytes) -> tuple[Rule, ...]:
    """The rules of a file's bytes, named by their number.

    Raises:
        RuleError: damaged bytes, or an operator that has no meaning here, naming the rule.
    """
    rules = []
    for number, item in enumerate(message(data).messages(1), 1):
        try:
            rules.append(_rule(item, f"rule_{number}"))
        except RuleError as error:
            raise RuleError(f"rule {number}: {error}") from error
    if not rules and data:
        raise RuleError("no rules are in it: it is of another format")
    return tuple(rules)


def _rule(item: ProtobufMessage, name: str) -> Rule:
    sides = item.messages(1), item.messages(2)
    ranks = [_parameters(one).get(DIMENSIONS, 0) for side in sides for one in side]
    slides = any(one.number(1) in (CONV2D, POOL_MAX, POOL_AVG, ENLARGE) for side in sides for one in side)
    rank = 4 if slides else max(ranks, default=0) or 2
    outputs: list[list[list[Expression]]] = [[], []]
    scalars: set[str] = set()
    for side, results in zip(sides, outputs, strict=True):
        for one in side:
            results.append(_operator(one, results, rank, scalars))
    source, target = [], []
    for pair in item.messages(3):
        source.append(_output(outputs[0], pair.number(1), pair.number(3, 0)))
        target.append(_output(outputs[1], pair.number(2), pair.number(4, 0)))
    if not source:
        raise RuleError("no output is mapped to another")
    rule = Rule(tuple(source), tuple(target), tuple((scalar, (Extent.of(1),)) for scalar in sorted(scalars)), name)
    for expression in walk((*rule.source, *rule.target)):
        if isinstance(expression, Term) and _depth(expression) > MOST_DEPTH:
            raise RuleError(f"its operators are {MOST_DEPTH} deep and more")
    return with_parts(rule)


def _depth(item: Expression, most: int = MOST_DEPTH + 1) -> int:
    if isinstance(item, Variable) or most == 0:
        return 0
    return 1 + max((_depth(argument, most - 1) for argument in item.arguments), default=0)


def _output(results: Sequence[Sequence[Expression]], number: int, which: int) -> Expression:
    if number < 0:
        return Variable(f"i{-number}")
    if not 0 <= number < len(results) or not 0 <= which < len(results[number]):
        raise RuleError(f"output {which} of operator {number} does not exist")
    return results[number][which]


def _parameters(item: ProtobufMessage) -> dict[int, int]:
    return {one.number(1): one.number(2, 0) for one in item.messages(3)}


def _operator(
    item: ProtobufMessage, results: Sequence[Sequence[Expression]], rank: int, scalars: set[str]
) -> list[Expression]:
    kind, known = item.number(1), _parameters(item)
    read: list[Expression] = []
    for tensor in item.messages(2):
        number = tensor.number(1)
        read.append(_output(results, number, tensor.number(2, 0)))
    wanted = {EW_ADD: 2, EW_MUL: 2, MATMUL: 2, MUL: 2, ENLARGE: 2, CONV2D: 2, CONCAT: None}
    count = wanted.get(kind, 1)
    if (count is not None and len(read) < count) or not read:
        raise RuleError(f"operator type {kind} has {len(read)} inputs")
    if kind == MUL and isinstance(read[1], Variable):
        scalars.add(read[1].name)
    if kind == SPLIT:
        return _split(read[0], _needed(known, AXIS), known.get(NUMBER_OF_OUTPUTS, 2))
    result = _term(kind, read, known, rank)
    activation = ACTIVATIONS.get(known.get(ACTIVATION, 0))
    if activation is None:
        raise RuleError(f"activation {known[ACTIVATION]} has no meaning")
    return [Term(activation, (result,)) if activation else result]


def _term(kind: int, read: list[Expression], known: Mapping[int, int], rank: int) -> Expression:
    if kind in (RELU, SIGMOID, TANH):
        return Term({RELU: "relu", SIGMOID: "sigmoid", TANH: "tanh"}[kind], (read[0],))
    if kind in (EW_ADD, EW_MUL, MUL):
        return Term("add" if kind == EW_ADD else "mul", tuple(read[:2]))
    if kind == MATMUL:
        if rank not in (2, 3):
            raise RuleError(f"a product of tensors of {rank} dimensions has no meaning")
        return Term("mm" if rank == 2 else "bmm", tuple(read[:2]))
    if kind == CONCAT:
        first, *others = read
        for other in others:
            first = Term("cat", (first, other), (("dim", _needed(known, AXIS)),))
        return first
    if kind == TRANSPOSE:
        order = _permutation(_needed(known, PERMUTATION), known.get(DIMENSIONS, rank))
        return Term("t", (read[0],)) if order == (1, 0) else Term("permute", (read[0],), (("dims", order),))
    if kind == ENLARGE:
        return Term("constant_pad_nd", (read[0],), (("pad", (MORE, MORE, MORE, MORE)),))
    if kind == CONV2D:
        stride = (known.get(STRIDE_H, 1), known.get(STRIDE_W, 1))
        enlarged = any(isinstance(one, Term) and one.operator == "constant_pad_nd" for one in walk((read[1],)))
        padding = _padding(known, PADDING + MORE if enlarged else PADDING)
        groups: tuple[tuple[str, Attribute], ...] = (("groups", known[GROUP]),) if known.get(GROUP, 1) > 1 else ()
        return Term("convolution", tuple(read[:2]), (*groups, ("padding", padding), ("stride", stride)))
    if kind in (POOL_MAX, POOL_AVG):
        padding = _padding(known, PADDING)
        window: tuple[tuple[str, Attribute], ...] = (
            ("kernel_size", (_needed(known, KERNEL_H), _needed(known, KERNEL_W))),
            ("padding", (padding, padding)),
            ("stride", (known.get(STRIDE_H, 1), known.get(STRIDE_W, 1))),
        )
        if kind == POOL_AVG:
            return Term("avg_pool2d", (read[0],), window)
        return Term("max_pool", (read[0],), (("dilation", (1, 1)), *window))
    raise RuleError(f"operator type {kind} has no meaning here")


def _needed(known: Mapping[int, int], key: int) -> int:
    if key not in known:
        raise RuleError(f"parameter {key} is missing")
    return known[key]


def _padding(known: Mapping[int, int], same: Extent) -> Attribute:
    mode = known.get(PAD, VALID)
    if mode not in (SAME, VALID):
        raise RuleError(f"padding mode {mode} has no meaning")
    return same if mode == SAME else 0


def _permutation(code: int, dimensions: int) -> tuple[int, ...]:
    """Its digits, in base of as many dimensions."""
    if not 1 <= dimensions <= 8:
        raise RuleError(f"a transposition of {dimensions} dimensions")
    digits = []
    for _ in range(dimensions):
        code, digit = divmod(code, dimensions)
        digits.append(digit)
    if code or sorted(digits) != list(range(dimensions)):
        raise RuleError("a transposition whose dimensions are no permutation")
    return tuple(reversed(digits))


def _split(item: Expression, axis: int, count: int) -> list[Expression]:
    """The parts of what was concatenated, the last concatenation undone first."""
    if not 2 <= count <= 8:
        raise RuleError(f"a split into {count}")
    parts: list[Expression] = []
    for _ in range(count - 1):
        parts.append(Term("split", (item,), (("dim", axis),), 1))
        item = Term("split", (item,), (("dim", axis),), 0)
    return [item, *reversed(parts)]
