"""Recurrent layers, unrolled: RNN, GRU and LSTM as ONNX defines their equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from girih.inference.onnx.operators import operator

Tensor = Any
Function = Callable[[Tensor], Tensor]
FUNCTIONS: dict[str, Function] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softsign": F.softsign,
    "softplus": F.softplus,
}


def _functions(names: Any, default: Sequence[str], directions: int) -> list[list[Function]]:
    """For each direction its functions."""
    every = [name.lower() for name in (names or list(default) * directions)]
    for name in every:
        if name not in FUNCTIONS:
            raise ValueError(f"the function {name!r} is not supported: there are {', '.join(FUNCTIONS)}")
    count = len(default)
    return [[FUNCTIONS[name] for name in every[count * d : count * (d + 1)]] for d in range(directions)]


def _layer(
    x: Tensor,
    layout: int,
    direction: str,
    lengths: Any,
    states: Sequence[Any],
    hidden: int,
    step: Callable[[int, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """Steps through time in one direction or two: (all hidden states, the last of each state).

    states: initial ones [directions, batch, hidden], None for zeros. lengths: of each sequence; behind its end a
    sequence's states stay, and what leaves is zero.
    """
    if layout:
        x = x.transpose(0, 1)
        states = [None if item is None else item.transpose(0, 1) for item in states]
    time, batch = x.shape[0], x.shape[1]
    directions = 2 if direction == "bidirectional" else 1
    outputs, ends = [], []
    for number in range(directions):
        backward = direction == "reverse" or number == 1
        now = tuple(torch.zeros(batch, hidden, dtype=x.dtype) if item is None else item[number] for item in states)
        made: list[Any] = [None] * time
        for t in reversed(range(time)) if backward else range(time):
            new = step(number, x[t], now)
            if lengths is None:
                now, made[t] = new, new[0]
            else:
                alive = (lengths.to(torch.int64) > t).unsqueeze(1)
                now = tuple(torch.where(alive, one, other) for one, other in zip(new, now, strict=True))
                made[t] = torch.where(alive, new[0], torch.zeros_like(new[0]))
        outputs.append(torch.stack(made))
        ends.append(now)
    whole = torch.stack(outputs, 1)
    last = [torch.stack([end[number] for end in ends]) for number in range(len(states))]
    if layout:
        return whole.permute(2, 0, 1, 3), *(item.transpose(0, 1) for item in last)
    return whole, *last


def _clipped(x: Tensor, clip: Any) -> Tensor:
    return x if not clip else torch.clamp(x, -clip, clip)


@operator("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, initial_h: Any = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None, clip: Any = None,
    direction: str = "forward", hidden_size: int, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    functions = _functions(activations, ("Tanh",), w.shape[0])

    def step(d: int, value: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        total = value @ w[d].t() + state[0] @ r[d].t()
        if b is not None:
            total = total + b[d, :hidden_size] + b[d, hidden_size:]
        return (functions[d][0](_clipped(total, clip)),)

    return _layer(x, layout, direction, lengths, [initial_h], hidden_size, step)


@operator("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, initial_h: Any = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None, clip: Any = None,
    direction: str = "forward", hidden_size: int, layout: int = 0, linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    n = hidden_size
    functions = _functions(activations, ("Sigmoid", "Tanh"), w.shape[0])
    bias = torch.zeros(w.shape[0], 6 * n, dtype=x.dtype) if b is None else b

    def step(d: int, value: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (h,) = state
        f, g = functions[d]
        own, other = bias[d, : 3 * n], bias[d, 3 * n :]
        entering = value @ w[d].t() + own
        gates = entering[:, : 2 * n] + h @ r[d, : 2 * n].t() + other[: 2 * n]
        z, reset = f(_clipped(gates[:, :n], clip)), f(_clipped(gates[:, n:], clip))
        if linear_before_reset:
            inner = reset * (h @ r[d, 2 * n :].t() + other[2 * n :])
        else:
            inner = (reset * h) @ r[d, 2 * n :].t() + other[2 * n :]
        return ((1 - z) * g(_clipped(entering[:, 2 * n :] + inner, clip)) + z * h,)

    return _layer(x, layout, direction, lengths, [initial_h], n, step)


@operator("LSTM")
def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, initial_h: Any = None, initial_c: Any = None,
    p: Any = None, *, activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None,
    clip: Any = None, direction: str = "forward", hidden_size: int, input_forget: int = 0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gates in ONNX's order: input, output, forget, cell; p: weights of peepholes, in the order input, output,
    forget."""
    n = hidden_size
    functions = _functions(activations, ("Sigmoid", "Tanh", "Tanh"), w.shape[0])

    def step(d: int, value: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, c = state
        f, g, last = functions[d]
        total = value @ w[d].t() + h @ r[d].t()
        if b is not None:
            total = total + b[d, : 4 * n] + b[d, 4 * n :]
        i, o, forget, cell = (total[:, n * k : n * (k + 1)] for k in range(4))
        if p is not None:
            i, forget = i + p[d, :n] * c, forget + p[d, 2 * n :] * c
        i = f(_clipped(i, clip))
        forget = 1 - i if input_forget else f(_clipped(forget, clip))
        c = forget * c + i * g(_clipped(cell, clip))
        if p is not None:
            o = o + p[d, n : 2 * n] * c
        return f(_clipped(o, clip)) * last(c), c

    return _layer(x, layout, direction, lengths, [initial_h, initial_c], n, step)
