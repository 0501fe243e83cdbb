"""Holds a description against PyTorch: the whole, every division of it, and partial sums that pass through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import prod
from typing import Any

import numpy as np
import torch
from pieces import cut_out, run_piece

from girih.kernels.evaluate import call
from girih.kernels.own import KERNELS
from girih.ops import Description, TensorType
from girih.ops.catalogue import catalogue
from girih.ops.derive.divisions import divisible, executable, passing_sets
from girih.ops.derive.passing import passages
from girih.ops.derive.pieces import make_piece
from girih.ops.derive.reference import evaluate, has_reference
from girih.ops.describe import describe_call
from girih.run.worker.parts import neutral

UNSET = {"aten.empty.memory_format", "aten.empty_like", "aten.new_empty", "aten.empty_strided"}  # hold anything
COMBINE = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "prod": torch.mul,
    "logsumexp": torch.logaddexp,
}
LOOSE = {"aten.hardsigmoid_backward": 1e-7}  # PyTorch's kernel has 1/6 in single precision
Cuts = dict[int, list[int]]  # index variable -> where it is cut


def first_index(input: torch.Tensor, extreme: torch.Tensor, dim: int, first: int = 0) -> torch.Tensor:
    """The kernel of girih.first_index, where it is not there yet."""
    shape = [1] * input.dim()
    shape[dim] = -1
    position = torch.arange(first, first + input.shape[dim]).reshape(shape)
    return torch.where(input == extreme, position, torch.iinfo(torch.int64).max).amin(dim)


KERNELS.setdefault("girih.first_index", first_index)


@dataclass
class Case:
    """One call of an operator: its tensors in order, what describes it, and what PyTorch makes of it."""

    description: Description
    attributes: dict[str, Any]
    tensors: list[torch.Tensor]
    whole: torch.Tensor


def apply(operator: str, arguments: dict[str, Any], result: int | None) -> torch.Tensor:
    made = call(operator, arguments)
    result = catalogue()[operator].result if result is None else result
    return made if result is None else made[result]


def to_torch(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.as_tensor(value).clone()
    return tuple(map(to_torch, value)) if isinstance(value, tuple) else value


def results_of(operator: str) -> list[int | None]:
    """The results that are described each by itself; [None] of an operator with one."""
    count = catalogue()[operator].results
    return list(range(count)) if count > 1 else [None]


def make_case(operator: str, arguments: dict[str, Any], result: int | None = None) -> Case:
    given = {name: to_torch(value) for name, value in arguments.items()}
    whole = apply(operator, {name: to_torch(value) for name, value in arguments.items()}, result)
    tensors: dict[str, torch.Tensor] = {}
    for name, value in given.items():
        for position, item in enumerate(value if isinstance(value, tuple) else ()):
            if isinstance(item, torch.Tensor):
                tensors[f"{name}.{position}"] = item
        if isinstance(value, torch.Tensor):
            tensors[name] = value
    attributes = {name: value for name, value in given.items() if name not in {key.split(".")[0] for key in tensors}}
    types = {name: type_of(tensor) for name, tensor in tensors.items()}
    description = describe_call(operator, types, attributes, type_of(whole), result)
    assert description is not None, f"{operator} is not described for {attributes} of {types}"
    return Case(description, attributes, list(tensors.values()), whole)


def type_of(tensor: torch.Tensor) -> TensorType:
    return TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def assert_equal(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert got.shape == expected.shape, f"{what}: shape {list(got.shape)}, expected {list(expected.shape)}"
    torch.testing.assert_close(
        got, expected, rtol=1e-10, atol=1e-10, equal_nan=True, check_dtype=True, msg=lambda text: f"{what}: {text}"
    )


def check_reference(case: Case) -> bool:
    """The description, evaluated index by index, is what PyTorch computes. False if it is opaque."""
    if not has_reference(case.description):
        return False
    if case.description.operator.name in UNSET:
        return True
    made = evaluate(case.description, [tensor.numpy() for tensor in case.tensors])
    assert made.shape == tuple(case.whole.shape)
    tolerance = 1e-6 if case.whole.dtype == torch.float32 else LOOSE.get(case.description.operator.name, 1e-10)
    np.testing.assert_allclose(
        np.asarray(made).astype(case.whole.numpy().dtype), case.whole.numpy(), rtol=tolerance, atol=tolerance
    )
    return True


def strategies(case: Case, rng: np.random.Generator, pairs: bool = True) -> Iterator[Cuts]:
    """The whole; each divisible index variable in two and in three parts; pairs of them in two parts each."""
    sizes = case.description.sizes
    able = [v for v, yes in enumerate(divisible(case.description)) if yes and sizes[v] > 1]

    def cut(variable: int, parts: int) -> list[int]:
        return sorted(int(x) for x in rng.permutation(np.arange(1, sizes[variable]))[: parts - 1])

    yield {}
    for variable in able:
        yield {variable: cut(variable, 2)}
        if sizes[variable] > 2:
            yield {variable: cut(variable, 3)}
    for first, second in combinations(able if pairs else [], 2):
        yield {first: cut(first, 2), second: cut(second, 2)}


def boxes(sizes: tuple[int, ...], cuts: Cuts) -> tuple[np.ndarray, np.ndarray]:
    """The pieces' starts and stops: [pieces, index variables]."""
    parts = []
    for variable, size in enumerate(sizes):
        bounds = [0, *cuts.get(variable, []), size]
        parts.append(list(pairwise(bounds)))
    pieces = np.array(list(product(*parts)), np.int64).reshape(prod(map(len, parts)), len(sizes), 2)
    return pieces[..., 0], pieces[..., 1]


def run_division(case: Case, starts: np.ndarray, stops: np.ndarray) -> torch.Tensor:
    """The result put together from its pieces: side by side, and those of one box by the root's reducer.

    Of what is added to the reduction each piece of it is given a part.
    """
    made: dict[Any, torch.Tensor] = {}
    root = list(case.description.root.variables) if case.description.root is not None else []
    terms: dict[tuple[int, ...], int] = {}
    for start in starts:
        terms.setdefault(tuple(start[root]), len(terms))
    parts = {number: _parts(case.tensors[number], len(terms)) for number in case.description.alongside}
    for start, stop in zip(starts, stops, strict=True):
        piece = make_piece(case.description, case.attributes, start, stop)
        term = terms[tuple(start[root])]
        tensors = [parts[number][term] if number in parts else tensor for number, tensor in enumerate(case.tensors)]
        regions = zip(tensors, piece.regions, strict=True)
        part = run_piece(piece, [cut_out(tensor, region).clone() for tensor, region in regions])
        shape = tuple(high - low for low, high in piece.output)
        assert tuple(part.shape) == shape, f"a piece has shape {tuple(part.shape)}, expected {shape}: {piece}"
        known = made.get(piece.output)
        made[piece.output] = part if known is None else COMBINE[str(case.description.reducer)](known, part)
    result = torch.empty_like(case.whole, dtype=next(iter(made.values())).dtype)
    written = torch.zeros(case.whole.shape, dtype=torch.int64)
    for box, part in made.items():
        cut_out(result, box).copy_(part)
        cut_out(written, box).add_(1)
    assert bool((written == 1).all()), "the pieces do not tile the output"
    return result


def check_divisions(case: Case, rng: np.random.Generator, pairs: bool = True) -> set[str]:
    """Every derived strategy gives the whole's result; the names of the index variables that were divided."""
    divided: set[str] = set()
    for cuts in strategies(case, rng, pairs):
        starts, stops = boxes(case.description.sizes, cuts)
        if not bool(executable(case.description, starts, stops).all()):
            continue
        result = run_division(case, starts, stops)
        divided.update(case.description.names[variable] for variable in cuts)
        if case.description.operator.name not in UNSET:
            assert_equal(
                result, case.whole, f"divided at { {case.description.names[v]: at for v, at in cuts.items()} }"
            )
    return divided


def check_passing(case: Case, rng: np.random.Generator) -> int:
    """Partial sums of the inputs of a passing set give partial sums of the result; how many sets there are."""
    sets = () if case.description.operator.name in UNSET else passing_sets(case.description)
    zeros, sizes = [0] * case.description.rank, case.description.sizes
    piece = make_piece(case.description, case.attributes, zeros, sizes)
    for members in sets:
        total = None
        shares = rng.normal(size=3)
        shares[2] = 1 - shares[:2].sum()
        noise = {number: [_noise(case.tensors[number], rng) for _ in range(2)] for number in members}
        for term, share in enumerate(shares):
            tensors = []
            for number, tensor in enumerate(case.tensors):
                if number in members:
                    first, second = noise[number]
                    tensor = tensor * share + (first, second, -first - second)[term]
                tensors.append(cut_out(tensor, piece.regions[number]).clone())
            made = run_piece(piece, tensors)
            total = made if total is None else total + made
        tolerance = 1e-5 if torch.float32 in (case.whole.dtype, *(tensor.dtype for tensor in case.tensors)) else 1e-8
        torch.testing.assert_close(total, case.whole, rtol=tolerance, atol=tolerance)
    return len(sets)


def check_order(case: Case, rng: np.random.Generator) -> int:
    """Partial maxima and minima of the inputs of a passage give those of the result, whatever numbers they are, NaN and
    infinities included; how many passages there are."""
    every = () if case.description.operator.name in UNSET else passages(case.description)
    through = [passage for passage in every if passage.takes != "sum"]
    zeros, sizes = [0] * case.description.rank, case.description.sizes
    piece = make_piece(case.description, case.attributes, zeros, sizes)

    def computed(tensors: list[torch.Tensor]) -> torch.Tensor:
        regions = zip(tensors, piece.regions, strict=True)
        return run_piece(piece, [cut_out(tensor, region).clone() for tensor, region in regions])

    for passage, odd in product(through, (False, True)):
        tensors = [_odd(tensor, rng) if odd and number in passage.inputs else tensor
                   for number, tensor in enumerate(case.tensors)]  # fmt: skip
        terms = [list(tensors), list(tensors)]
        for number in passage.inputs:
            terms[0][number], terms[1][number] = _terms(tensors[number], passage.takes, rng)
        made = COMBINE[passage.makes](*map(computed, terms))
        what = f"{case.description.operator.name} of partial {passage.takes} of inputs {sorted(passage.inputs)}"
        assert_equal(made, computed(tensors), what)
    return len(through)


def _odd(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Some numbers replaced by those that are computed with in another way."""
    if tensor.dtype == torch.bool:
        return tensor
    if tensor.is_floating_point():
        odd = [float("nan"), float("inf"), -float("inf"), 0.0, -1.0]
    else:
        odd = [torch.iinfo(tensor.dtype).min, torch.iinfo(tensor.dtype).max]
    chosen = torch.as_tensor(rng.choice(odd, size=tensor.shape), dtype=tensor.dtype)
    return torch.where(torch.as_tensor(rng.random(tensor.shape) < 0.5), chosen, tensor)


def _terms(tensor: torch.Tensor, reducer: str, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors whose maxima, or minima, it has: beside its numbers lies what changes none, or others beyond them."""
    beyond = torch.full_like(tensor, neutral(reducer, tensor.dtype))
    other = tensor.clone()
    if tensor.is_floating_point():
        other += torch.as_tensor(rng.exponential(size=tensor.shape)) * (-1 if reducer == "max" else 1)
    other = torch.where(torch.as_tensor(rng.random(tensor.shape) < 0.5), beyond, other)
    first = torch.as_tensor(rng.random(tensor.shape) < 0.5)
    return torch.where(first, tensor, other), torch.where(first, other, tensor)


def _parts(tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Different tensors whose sum it is."""
    weights = 1.0 + torch.arange(count, dtype=tensor.dtype)
    return [tensor * weight for weight in weights / weights.sum()]


def _noise(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Of the tensor's own magnitude: what cancels must not swallow what remains."""
    scale = tensor.abs().mean() if tensor.numel() else 1.0
    return torch.as_tensor(rng.normal(size=tensor.shape)).to(tensor.dtype) * scale
