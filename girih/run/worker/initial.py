"""The first state of each worker: its own regions only, of given tensors or of tensors that are made by recipe.

Recipes use the counter-based generator (`girih.kernels.own`): an element depends on (seed, path, its place in the
whole tensor) alone, so that every division gives the same numbers and no whole tensor is ever in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch

from girih.graph import Graph, Input
from girih.kernels.philox import random_integers, random_normal, random_uniform
from girih.program import Program
from girih.run.worker.parts import Box, Tensor, box_of, cut, shape_of


class Recipe(Protocol):
    """`girih.capture.Initial`. kind: constant (a), normal (mean a, deviation b), uniform (a to b)."""

    @property
    def kind(self) -> Any: ...
    @property
    def a(self) -> float: ...
    @property
    def b(self) -> float: ...


def key_of(item: Input) -> str:
    """Under which name a user knows a piece of state."""
    return item.path or item.name


def stream_of(path: str) -> int:
    """The generator's stream for a path: the same in every process and version."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little") >> 1


def step_seed(seed: int, step: int) -> int:
    """What enters the graph as its seed in a step (counted from 0): 63 bits."""
    text = f"{seed}/{step}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def make(recipe: Recipe, path: str, shape: tuple[int, ...], dtype: str, box: Box, seed: int, device: Any) -> Tensor:
    """One region of a tensor made by recipe.

    Raises:
        ValueError: a kind that is not known.
    """
    kind = getattr(torch, dtype)
    size, start = shape_of(box), tuple(low for low, _ in box)
    if 0 in size:  # an absent scalar has no place in the whole
        return torch.empty(size, dtype=kind, device=device)
    if recipe.kind == "constant":
        return torch.full((), _number(recipe.a, kind), dtype=kind, device=device).expand(size)
    key = torch.tensor(seed, dtype=torch.int64, device=device)
    stream = stream_of(path)
    if recipe.kind not in ("normal", "uniform"):
        raise ValueError(f"{path!r}: no recipe {recipe.kind!r}; expected constant, normal or uniform")
    if not kind.is_floating_point:
        low, high = (recipe.a, recipe.b) if recipe.kind == "uniform" else (recipe.a, recipe.a)
        return random_integers(key, stream, size, start, shape, int(low), int(high) + 1, torch.int64).to(kind)
    draw = random_normal if recipe.kind == "normal" else random_uniform
    scale = recipe.b if recipe.kind == "normal" else recipe.b - recipe.a
    return draw(key, stream, size, start, shape, kind).mul_(scale).add_(recipe.a)


def _number(value: float, kind: Any) -> Any:
    if kind == torch.bool:
        return bool(value)
    return value if kind.is_floating_point or kind.is_complex else int(value)


def initial_parts(
    program: Program, rank: int, recipes: Mapping[str, Recipe], seed: int, device: Any = "cpu"
) -> Iterator[tuple[str, Tensor]]:
    """One device's parts, with their inputs' names, of the state that `recipes` (by path) tell how to make: one after
    the other, so that each can be put where it will live before there is the next."""
    for item in program.graph.state_inputs:
        path, value = key_of(item), program.graph.values[item.name]
        if path in recipes:
            box = box_of(program, item.name, rank)
            yield item.name, make(recipes[path], path, value.shape, value.dtype, box, seed, device)


def cut_state(program: Program, rank: int, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One device's parts, by input name, of whole tensors given by path.

    Raises:
        ValueError: a tensor of another shape than the graph's, or without data.
    """
    parts = {}
    for item in program.graph.state_inputs:
        if key_of(item) not in state:
            continue
        value, tensor = program.graph.values[item.name], state[key_of(item)]
        if tuple(tensor.shape) != value.shape:
            raise ValueError(
                f"state {key_of(item)!r} must be {value.dtype}{list(value.shape)}, got "
                f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            )
        if tensor.is_meta:
            raise ValueError(f"state {key_of(item)!r} is on the meta device and has no data: leave it to a recipe")
        part = cut(tensor.detach(), box_of(program, item.name, rank))
        parts[item.name] = part.to(getattr(torch, value.dtype))
    return parts


def check_known(graph: Graph, *sources: Mapping[str, object]) -> None:
    """Every piece of state has a source.

    Raises:
        ValueError: naming those that have none.
    """
    missing = [key_of(item) for item in graph.state_inputs if not any(key_of(item) in source for source in sources)]
    if missing:
        raise ValueError(
            f"no initial value for {missing[:8]}{' …' if len(missing) > 8 else ''}: give `state` tensors, recipes in "
            "`initial`, or a checkpoint in `resume`"
        )
