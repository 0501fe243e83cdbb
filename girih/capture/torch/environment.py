"""What is otherwise about PyTorch while a program is recorded; all of it is put back afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch._decomp import decompositions as torch_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import _disable_current_modes

from girih.capture.errors import CaptureError
from girih.capture.torch.rewritten import stand_ins

Tensor = Any


@contextmanager
def surroundings(exact: bool = False) -> Iterator[None]:
    """Library calls come apart into ATen operators, random draws are numbered, and no one looks at values.

    exact: PyTorch takes its operators apart as it does where it computes.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    distribution = torch.distributions.Distribution
    with ExitStack() as stack:
        stack.enter_context(_numbered_draws())
        if exact:
            lstm = torch._VF.lstm  # type: ignore[attr-defined]
            stack.enter_context(_setting(partial(setattr, torch._VF, "lstm"), lstm, _by_onednn(lstm)))  # type: ignore[attr-defined]
        else:
            # nn.LSTM and others as ATen operators. (torch.backends.mkldnn.flags does more, and warns.)
            stack.enter_context(_setting(torch._C._set_mkldnn_enabled, torch._C._get_mkldnn_enabled(), False))
            stack.enter_context(_recurrent_dropout())
            stack.enter_context(stand_ins())
            stack.enter_context(enable_python_dispatcher())
        # torch.distributions does not look whether its parameters and samples are admissible, unless told to.
        stack.enter_context(_setting(distribution.set_default_validate_args, distribution._validate_args, False))
        # PyTorch does not log the stack of a call that fails: capture raises an error that names it. (A level takes
        # 0.4 ms to set, and as long to set back, since all loggers forget what they know of levels.)
        stack.enter_context(_setting(partial(setattr, log, "disabled"), log.disabled, True))
        yield


@contextmanager
def _setting(write: Callable[[Any], Any], before: Any, inside: Any) -> Iterator[None]:
    """While open, a setting of PyTorch's is `inside`; then again what it was before."""
    write(inside)
    try:
        yield
    finally:
        write(before)


@contextmanager
def _numbered_draws() -> Iterator[None]:
    """The default generator numbers random draws (see `next_draw`); the user's state comes back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def next_draw() -> int:
    """The number of a random draw: the seed of the default generator, which then goes on to another.

    The next seed is far from this one (a linear congruence of full period), so that a program which sets seeds of its
    own meets none of these. Whoever saves the generator's state and restores it, as torch.utils.checkpoint does before
    it runs a part of the forward pass again, gets the same numbers again, and so the same random values.
    """
    number = int(torch.default_generator.initial_seed())
    torch.default_generator.manual_seed(draw_behind(number))
    return number


def draw_behind(number: int) -> int:
    """The number of the draw behind this one; the first is 0."""
    return (number * 6364136223846793005 + 1442695040888963407) % 2**64


LSTM_LAYER = torch.ops.aten.mkldnn_rnn_layer.default
_LSTM = 2  # oneDNN's number for it among recurrent networks


def _by_onednn(lstm: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's LSTM, with the calls of oneDNN that it makes for tensors with data: one for each layer and direction.

    For tensors without data PyTorch computes an LSTM step by step, which makes other bits.
    """

    def run(input: Tensor, *arguments: Any) -> Any:
        hidden, weights, biases, layers, dropout, train, *rest = arguments
        packed = isinstance(hidden, torch.Tensor)
        onednn = torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()
        if packed or not onednn or input.dtype == torch.float64 or hidden[0].shape[2] != hidden[1].shape[2]:
            return lstm(input, *arguments)
        bidirectional, batch_first = rest
        if input.dtype != torch.float32 or not torch.is_grad_enabled():
            what = f"of {input.dtype}" if torch.is_grad_enabled() else "under torch.no_grad()"
            raise CaptureError(
                f"PyTorch computes an LSTM {what} by another kernel of oneDNN's, which exact=True does not replay: use "
                "nn.GRU, float32 with gradients, float64, or set torch.backends.mkldnn.enabled = False here and in the "
                "loop that it is compared with; or leave exact=True out"
            )
        directions, count = 2 if bidirectional else 1, 4 if biases else 2
        x = (input.transpose(0, 1) if batch_first else input).contiguous()
        first, second = (item.contiguous() for item in hidden)
        ends = []
        for layer in range(layers):
            made = []
            for direction in range(directions):
                number = layer * directions + direction
                own = [*weights[number * count : (number + 1) * count]]
                if not biases:
                    own += [torch.zeros(item.shape, dtype=item.dtype) for item in own]
                output, *end, _ = LSTM_LAYER(
                    x, *own, first[number], second[number], direction > 0, [], _LSTM, first.shape[2], layers, biases,
                    bidirectional, batch_first, train,
                )  # fmt: skip
                made.append(output)
                ends.append(end)
            x = torch.cat(made, -1) if bidirectional else made[0]
            if dropout and train and layer < layers - 1:
                x = torch.dropout(x, dropout, True)
        output = x.transpose(0, 1) if batch_first else x
        return output, *(torch.stack(items) for items in zip(*ends, strict=True))

    return run


def lstm_workspace(arguments: Sequence[Any]) -> int:
    """Bytes that oneDNN keeps of a layer of an LSTM for its gradient. Only oneDNN knows: such a layer is computed once,
    of zeros.

    arguments: of `LSTM_LAYER`.
    """
    forms = tuple(
        (tuple(item.shape), item.dtype) if isinstance(item, torch.Tensor) else tuple(item) if item == [] else item
        for item in arguments
    )
    return _workspace_of(forms)


@cache
def _workspace_of(forms: tuple[Any, ...]) -> int:
    with _disable_current_modes(), torch.enable_grad():
        made = [torch.zeros(form[0], dtype=form[1]) if isinstance(form, tuple) and form else form for form in forms]
        return int(LSTM_LAYER(*made)[3].numel())


@contextmanager
def _recurrent_dropout() -> Iterator[None]:
    """Dropout between the layers of nn.LSTM, nn.GRU and nn.RNN.

    PyTorch's decomposition forgets it (torch 2.13: `_rnn_helper` keeps the rate only `if num_layers < i - 1`).
    """
    plain = torch_decompositions._rnn_helper
    with _setting(partial(setattr, torch_decompositions, "_rnn_helper"), plain, _layer_by_layer(plain)):
        yield


def _layer_by_layer(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`_rnn_helper` for many layers from `_rnn_helper` for one."""

    def run(
        input: Tensor,
        hidden: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        layer_fn: Callable[..., Any],
    ) -> tuple[Tensor, list[Any]]:
        directions = 2 if bidirectional else 1
        last: list[Any] = []
        for layer in range(num_layers):
            own = slice(directions * layer, directions * (layer + 1))
            input, states = plain(
                input, hidden[own], params[own], has_biases, 1, 0.0, train, bidirectional, batch_first, layer_fn
            )
            last += states
            if dropout and train and layer < num_layers - 1:
                input = torch.dropout(input, dropout, True)
        return input, last

    return run
