"""The oracle of divisions: what is numerically valid is derived, or listed below with its reason.

For two devices, every way to hold each input of an operator (divided along a dimension, whole, as a partial sum) is
tried with the operator itself, its attributes as they are, on what each device holds. What comes out is compared with
the whole result: divided along a dimension, whole, or two parts whose sum, maximum or minimum it is. Nothing of the
description is used, so that what it misses is found; several draws of the numbers exclude what is only so by chance.
The other direction, that what is derived is right, is held here for two devices, partial sums included, and for more
pieces in `test_catalogue`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from checking import COMBINE as BY_REDUCER
from checking import UNSET, Case, make_case, results_of
from pieces import cut_out, run_piece
from samples import SAMPLES

from girih.kernels.evaluate import call
from girih.layout import Mesh, Placements, bounds
from girih.ops.catalogue import catalogue
from girih.ops.derive.pieces import make_piece
from girih.partition.space.options import NodeOptions, Rules, node_options

MESH = Mesh((2,))
RULES = Rules(repeat=True, partial=True)
DRAWS = 8
SAMPLED = 40
CASES = 3
MOST_WAYS = 1500
UNSAFE = {
    "aten._adaptive_avg_pool2d_backward",
    "aten.avg_pool2d_backward",
    "aten.max_pool2d_with_indices_backward",
    "aten.max_pool3d_with_indices_backward",
}
"""PyTorch's kernels that write outside of their result where sizes do not fit together, instead of raising."""
SHAPE_ONLY = {
    "aten._adaptive_avg_pool3d_backward": (1,),
    "aten._native_batch_norm_legit": (3, 4),
    "aten._native_batch_norm_legit_functional": (3, 4),
    "aten.avg_pool3d_backward": (1,),
    "aten.convolution_backward": (1,),
    "aten.copy": (0,),
    "aten.native_layer_norm_backward": (5,),
    "aten.new_full": (0,),
    "aten.new_ones": (0,),
    "aten.new_zeros": (0,),
    "aten.slice_scatter": (0,),
}
"""Inputs, by position, of which the kernel asks for the shape alone (running statistics of a norm that trains; what is
overwritten altogether). They are held as the pieces are, so that nothing of another shape is passed; that they could be
held in any other way saves nothing, as they are not partial sums."""
DATA = "data-dependent: the numbers that are drawn are none for which it fails"
ATTRIBUTE = "holds for these attributes alone: no window overlaps, nothing is shifted, one panel is all"
COMPLEX = "complex values are never kept as partial sums"
TOGETHER = "linear in several inputs together, which neither Opaque nor sets of at most three inputs say"
OWN = "a function of the user's own, which is not looked into"
NEAR = "changes the last bit alone, which is less than what is compared"
MERGED = "channels and windows are one dimension, described as opaque"
SEARCH = "opaque: pieces of what is searched would each be searched for all values"
RANKS = "PyTorch could take some columns for a batch of vectors"
ELSEWHERE = "opaque: girih's own operators compute the three gradients apart, and they divide"
DIVIDED = "parts of a sum over 0 give infinities of both signs, or NaN"
EDGES = "rows are multiplied by weights inside the choice of a row's edges"
BITS = "is computed whole, since parts add up in another order and have other bits"
ONE = "holds for one result alone of those that a call makes, which are divided together"
MISSED: dict[str, dict[str, str]] = {
    "aten._adaptive_avg_pool3d_backward": {"SS->S": ATTRIBUTE},
    "aten.addcdiv": {"PPR->P": DIVIDED},
    "aten.avg_pool3d_backward": {"SS->S": ATTRIBUTE},
    "aten.col2im": {"S->S": MERGED},
    "aten.complex": {"PP->P": COMPLEX},
    "aten.convolution_backward": {"RSS->S": ELSEWHERE},
    "aten.div.Tensor": {"PR->P": DIVIDED},
    "aten.hardsigmoid_backward": {"PP->P": DATA, "RP->R": DATA},
    "aten.im2col": {"S->S": MERGED},
    "aten.index_put": {"PRP->P": TOGETHER},
    "aten.isfinite": {"P->R": DATA},
    "aten.isinf": {"P->R": DATA},
    "aten.isnan": {"P->R": DATA},
    "aten.kthvalue": {"S->min": ATTRIBUTE},
    "aten.linalg_solve": {"RS->S": RANKS},
    "aten.masked_scatter": {"PRP->P": TOGETHER},
    "aten.mode": {"S->min": DATA},
    "aten.nextafter": dict.fromkeys(("PP->P", "PR->P", "PS->P", "RP->R", "RS->R"), NEAR),
    "aten.polar": {"PR->P": COMPLEX},
    "aten.roll": {"S->S": ATTRIBUTE},
    "aten.scatter.value": {"RS->min": DATA},
    "aten.scatter_reduce.two": {"PRP->P": TOGETHER},
    "aten.view_as_complex": {"P->P": COMPLEX},
    "girih.assign": {"PRP->P": TOGETHER},
    "girih.attention": dict.fromkeys(("RRPR->R", "RRS->S", "RRSR->R", "RRSR->S", "SRPR->S", "SRSR->S"), ONE),
    "girih.attention_blocks": dict.fromkeys(("RRPR->R", "RRS->S", "RRSR->R", "RRSR->S", "SRPR->S", "SRSR->S"), ONE),
    "girih.attention_blocks_backward": dict.fromkeys(
        (
            "PRRPPR->P",
            "PRRPRR->P",
            "PRRPSR->P",
            "PRRRPR->P",
            "PRRRRR->P",
            "PRRRSR->P",
            "RRRPPR->P",
            "RRRPPR->R",
            "RRRPRR->R",
            "RRRPSR->R",
            "RRRRPR->R",
            "RRRRSR->R",
        ),
        ONE,
    ),
    "girih.attention_backward": dict.fromkeys(
        (
            "PRRPPR->P",
            "PRRPRR->P",
            "PRRRRR->P",
            "RRRPPR->P",
            "RRRPPR->R",
            "RRRPRR->R",
            "RRRRPR->R",
            "RRSSPR->S",
            "RRSSRR->P",
        ),
        ONE,
    ),
    "girih.carried": {"PP->P": OWN},
    "girih.isfinite": {"P->R": DATA},
    "girih.isinf": {"P->R": DATA},
    "girih.isnan": {"P->R": DATA},
    "girih.join_panels": {"S->S": ATTRIBUTE},
    "girih.join_parts": {"P->P": OWN, "P->R": OWN},
    "girih.join_placed": {"PR->P": OWN, "PS->P": OWN, "RS->R": DATA, "SS->P": OWN, "SS->max": OWN},
    "girih.join_update": {"PR->P": OWN, "RP->P": OWN, "SS->P": OWN},
    "girih.label_positions": {"RS->R": DATA, "SS->S": DATA},
    "girih.less_panels": dict.fromkeys(("PPPPR->P", "PRP->P", "PRRP->P", "PRRRP->P", "PSS->P"), TOGETHER),
    "girih.neighbour_max": {"PRR->P": DATA},
    "girih.neighbour_sum": dict.fromkeys(("PRRR->P", "RRRP->P"), EDGES),
    "girih.normalise_input_gradient": dict.fromkeys(
        ("PPPRPR->P", "PPPRRPR->P", "PRRRRPP->P", "RPPRPPR->P", "RRRRPPP->P"), TOGETHER
    ),
    "girih.panel_rows": {"S->S": ATTRIBUTE},
    "girih.pick": {"PR->R": DATA, "SR->R": DATA},
    "girih.recorded": dict.fromkeys(("PR->P", "RP->P", "RS->S", "SR->S", "SS->P"), BITS),
    "girih.recorded_several": dict.fromkeys(("S->S", "S->max"), BITS),
    "girih.scan": {"P->P": OWN},
    "girih.search_sorted": {"SR->P": SEARCH},
}
"""By operator, patterns of ways that are valid and not derived: how inputs are held, and the result (S: divided)."""
State = str  # R whole, S0 divided along dimension 0, P a partial sum; of a result also max and min
Way = tuple[tuple[State, ...], State]
COMBINE = {"P": torch.add, "max": torch.maximum, "min": torch.minimum}


def states_of(tensor: torch.Tensor) -> list[State]:
    divided = [f"S{dim}" for dim, size in enumerate(tensor.shape) if size > 1]
    return ["R", *divided, *(["P"] if tensor.is_floating_point() else [])]


def box_of(shape: tuple[int, ...], state: State, device: int) -> tuple[tuple[int, int], ...]:
    """What a device holds of a tensor."""
    box = [(0, size) for size in shape]
    if state.startswith("S"):
        dim = int(state[1:])
        size = shape[dim]
        box[dim] = (0, size // 2) if device == 0 else (size // 2, size)
    return tuple(box)


def held(tensor: torch.Tensor, state: State, device: int, noise: torch.Tensor, share: float = 0.25) -> torch.Tensor:
    """What a device holds; share: of a partial sum, the first device's before noise."""
    if state == "P":
        return tensor * share + noise if device == 0 else tensor * (1 - share) - noise
    return cut_out(tensor, box_of(tuple(tensor.shape), state, device))


@dataclass
class Draw:
    """Numbers for the tensors of a case, what PyTorch makes of them, and noise for partial sums."""

    tensors: list[torch.Tensor]
    whole: torch.Tensor
    noise: list[torch.Tensor]
    share: float

    def held(self, states: tuple[State, ...], device: int) -> list[torch.Tensor]:
        """What a device holds of the tensors, as copies."""
        each = zip(self.tensors, states, self.noise, strict=True)
        return [held(tensor, state, device, noise, self.share).clone() for tensor, state, noise in each]


def apply(case: Case, tensors: list[torch.Tensor]) -> torch.Tensor:
    """The operator itself on these tensors."""
    arguments: dict[str, Any] = dict(case.attributes)
    lists: dict[str, list[Any]] = {}
    for name, tensor in zip(case.description.tensors, tensors, strict=True):
        base, dot, position = name.partition(".")
        if dot:
            items = lists.setdefault(base, [])
            items += [None] * (int(position) + 1 - len(items))
            items[int(position)] = tensor
        else:
            arguments[name] = tensor
    operator = case.description.operator
    made = call(operator.name, {**arguments, **{name: tuple(items) for name, items in lists.items()}})
    result = operator.result if case.description.result is None else case.description.result
    return made if result is None else made[result]


def redrawn(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Other numbers of the same kind: in another order, fractions changed, perhaps in sign; sorted where it was."""
    flat = tensor.reshape(-1)
    comparable = tensor.dim() == 1 and tensor.dtype != torch.bool and not tensor.is_complex()
    ordered = comparable and bool((flat[1:] >= flat[:-1]).all())
    size = flat.numel()
    if tensor.dtype == torch.bool:
        flat = torch.as_tensor(rng.random(size) < rng.uniform(0.2, 0.8))
    else:
        again = size > 0 and not tensor.is_floating_point() and rng.random() < 0.5
        flat = flat[torch.as_tensor(rng.integers(0, size, size) if again else rng.permutation(size))]
    if tensor.is_floating_point():
        sign = -1.0 if rng.random() < 0.3 else 1.0
        flat = flat * torch.as_tensor(rng.uniform(0.4, 1.05, size) * sign).to(flat.dtype)
    return (flat.sort()[0] if ordered else flat).reshape(tensor.shape)


def noise_of(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Of the tensor's own magnitude: what cancels must not swallow what remains."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    return (torch.as_tensor(rng.normal(size=tensor.shape)) * (float(tensor.abs().mean()) or 1.0)).to(tensor.dtype)


def _with_zeros(tensor: torch.Tensor, kind: int, rng: np.random.Generator) -> torch.Tensor:
    """All zero, one zero, or all but one."""
    if not tensor.numel():
        return tensor
    one = torch.zeros(tensor.shape, dtype=torch.bool)
    one.view(-1)[int(rng.integers(tensor.numel()))] = True
    return tensor.masked_fill((torch.ones_like(one), one, ~one)[kind], 0)


def draws_of(case: Case, rng: np.random.Generator) -> Iterator[Draw]:
    tensors, whole = case.tensors, case.whole
    for number in range(DRAWS):
        if number:
            tensors = [redrawn(tensor, rng) for tensor in case.tensors]
            if case.whole.dtype == torch.bool:  # of numbers that are all true, or all false, nothing is seen
                tensors = [_with_zeros(tensor, number % 3, rng) for tensor in tensors]
            try:
                whole = apply(case, [tensor.clone() for tensor in tensors])
            except RuntimeError:  # no such numbers: a matrix is to be positive definite, an index to be inside
                continue
            if whole.shape != case.whole.shape:
                continue
        yield Draw(tensors, whole, [noise_of(tensor, rng) for tensor in tensors], rng.uniform(-1.0, 2.0))


def close(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    tolerance = 1e-4 if first.dtype in (torch.float32, torch.complex64) else 1e-7
    return torch.allclose(first, second, rtol=tolerance, atol=tolerance, equal_nan=True)


def results(parts: list[torch.Tensor], whole: torch.Tensor) -> set[State]:
    """As what the two devices' parts are the whole."""
    found = set()
    if all(close(part, whole) for part in parts):
        return {"R"}
    for dim, size in enumerate(whole.shape):
        boxes = [box_of(tuple(whole.shape), f"S{dim}", device) for device in range(2)]
        if size > 1 and all(close(part, cut_out(whole, box)) for part, box in zip(parts, boxes, strict=True)):
            found.add(f"S{dim}")
    if parts[0].shape == parts[1].shape == whole.shape:
        for state, combine in COMBINE.items():
            if (state == "P" and whole.dtype == torch.bool) or (state != "P" and whole.is_complex()):
                continue
            if close(combine(*parts), whole):
                found.add(state)
    return found


def valid_ways(case: Case) -> set[Way]:
    """All that hold for every draw."""
    rng = np.random.default_rng(0)
    choices = [states_of(tensor) for tensor in case.tensors]
    left: dict[tuple[State, ...], set[State]] | None = None
    for draw in draws_of(case, rng):
        found: dict[tuple[State, ...], set[State]] = {}
        for states in product(*choices) if left is None else left:
            try:
                parts = [apply(case, draw.held(states, device)) for device in range(2)]
            except Exception:  # the operator does not take such pieces
                continue
            made = results(parts, draw.whole)
            if left is not None:
                made &= left[states]
            if made:
                found[states] = made
        left = found
    return {(states, state) for states, made in (left or {}).items() for state in made}


# ------------------------------------------------------------------------------------------- what is derived


def options_of(case: Case) -> NodeOptions:
    return node_options(case.description, (1,) * (len(case.tensors) + 1), MESH, RULES)


def covers(need: Placements, code: int, shape: tuple[int, ...], state: State) -> bool:
    """Does a device that holds an input so have what a division needs of it?"""
    regions = need.regions[code]
    if (regions[..., 1] <= regions[..., 0]).any(axis=-1).all():
        return True
    if bool(need.partial[code, 0]) != (state == "P"):
        return False
    for device in range(2):
        box = box_of(shape, state, device) or ((0, 1),)
        for (low, high), (start, stop) in zip(regions[device].tolist(), box, strict=True):
            if low < high and (low < start or high > stop):
                return False
    return True


def makes(options: NodeOptions, code: int, shape: tuple[int, ...], state: State) -> bool:
    made = options.makes[0]
    partial = {"P": "sum"}.get(state, state)
    reducer = options.reducer or "sum"
    if bool(made.partial[code, 0]) != (state in COMBINE):
        return False
    if state in COMBINE and reducer != partial:
        return False
    boxes = [box_of(shape, state, device) or ((0, 1),) for device in range(2)]
    return all(made.regions[code, device].tolist() == [list(pair) for pair in boxes[device]] for device in range(2))


def is_derived(case: Case, options: NodeOptions, way: Way, free: tuple[int, ...] = ()) -> bool:
    """free: inputs that may be held in any way."""
    states, state = way
    shapes = [tuple(tensor.shape) for tensor in case.tensors]
    return any(
        makes(options, code, tuple(case.whole.shape), state)
        and all(
            place in free or covers(need, code, shape, one)
            for place, (need, shape, one) in enumerate(zip(options.needs, shapes, states, strict=True))
        )
        for code in range(len(options.divisions))
    )


def cases_of(operator: str) -> list[Case]:
    """Of many samples those with the most dimensions to divide, but few enough ways."""
    found: dict[Any, tuple[Any, Case]] = {}
    for seed in range(SAMPLED):
        sample = SAMPLES[operator](np.random.default_rng(seed))
        for result in results_of(operator):
            case = make_case(operator, sample, result)
            ways = np.prod([len(states_of(tensor)) for tensor in case.tensors])
            sizes = [size for tensor in case.tensors for size in tensor.shape]
            if ways > MOST_WAYS or not case.whole.numel():
                continue
            many = sum(size > 1 for size in sizes) - 2 * sum(size <= 1 for size in sizes)
            kind = tuple(tensor.dim() for tensor in case.tensors), result
            rank = (many, case.whole.numel())
            if kind not in found or found[kind][0] < rank:
                found[kind] = rank, case
    best = sorted(found.values(), key=lambda item: item[0], reverse=True)
    return [case for _, case in best[:CASES]]


def pattern(way: Way) -> str:
    states, state = way
    return "".join(one[0] for one in states) + "->" + (state if state in COMBINE else state[0])


def check_derived(case: Case, options: NodeOptions, draw: Draw) -> None:
    """Every derived division gives the whole result, of pieces as workers compute them."""
    starts, stops = bounds(options.divisions, case.description.sizes, MESH)
    for code in range(len(options.divisions)):
        what = f"{case.description.operator.name} divided as {options.divisions[code].tolist()}"
        parts = []
        for device in range(2):
            piece = make_piece(case.description, case.attributes, starts[code, device], stops[code, device])
            given = [
                held(tensor, "P" if need.partial[code, 0] else "R", device, noise)
                for tensor, need, noise in zip(draw.tensors, options.needs, draw.noise, strict=True)
            ]
            part = run_piece(piece, [cut_out(t, box).clone() for t, box in zip(given, piece.regions, strict=True)])
            parts.append((piece.output, part))
        if options.makes[0].partial[code, 0]:
            total = BY_REDUCER[options.reducer or "sum"](parts[0][1], parts[1][1])
            parts = [(parts[0][0], total)]
        for box, part in parts:
            whole = cut_out(draw.whole, box)
            assert close(part.to(whole.dtype), whole), what


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("operator", sorted(set(catalogue()) - UNSET))
def test_what_is_valid_is_derived_or_listed(operator: str) -> None:
    listed = MISSED.get(operator, {})
    free = SHAPE_ONLY.get(operator, ())
    missed, freed = set(), False
    cases = cases_of(operator)
    assert cases, f"{operator}: all samples have too many inputs to try all ways"
    for case in cases:
        options = options_of(case)
        check_derived(case, options, next(draws_of(case, np.random.default_rng(1))))
        for way in set() if operator in UNSAFE else valid_ways(case):
            if is_derived(case, options, way):
                continue
            if free and is_derived(case, options, way, free):
                freed = True
            else:
                missed.add(pattern(way))
    assert missed <= set(listed), f"{operator}: valid, but neither derived nor listed: {sorted(missed - set(listed))}"
    assert missed >= set(listed), f"{operator}: listed, but derived by now: {sorted(set(listed) - missed)}"
    assert freed == bool(free), f"{operator}: SHAPE_ONLY names inputs that are derived by now"


def test_the_list_is_of_described_operators() -> None:
    assert set(MISSED) | set(SHAPE_ONLY) | UNSAFE <= set(catalogue())


@pytest.mark.parametrize("operator", ["aten.addmm", "aten.baddbmm", "aten.scatter_add", "aten.index_add", "aten.addmv"])
def test_terms_beside_a_divided_sum_are_partial_sums(operator: str) -> None:
    """The term is held as partial sums where, and only where, the sum is divided."""
    found = []
    for case in cases_of(operator):
        description, options = case.description, options_of(case)
        assert description.root is not None
        assert description.alongside == {0}
        for code, (division,) in enumerate(options.divisions.tolist()):
            if division in description.root.variables:
                found.append(operator)
                assert options.needs[0].partial[code].tolist() == options.makes[0].partial[code].tolist() == [2]
                assert not any(need.partial[code].any() for need in options.needs[1:])
        narrow = node_options(description, (1,) * (len(case.tensors) + 1), MESH, Rules())
        assert not set(narrow.divisions.ravel().tolist()) & set(description.root.variables)
    assert found
