"""What was changed in a model since it was planned or optimised, or around its call: taken up, answered by the model or
refused; never another answer than the model's."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, cast

import pytest
import torch
from changed_programs import AROUND, CHANGES, WITHOUT_EFFECT, Program
from counts import LONG
from torch import nn

import girih
from girih.capture import Inference, capture, state_of
from girih.inference.calls import call_of
from girih.inference.module import module_of
from girih.inference.optimized import Made, Optimized, OptimizeError
from girih.inference.quick.way import NO

WAYS = ("refuse", "again", "model")
TAKEN = {"another parameter", "a parameter, turned", "a buffer, replaced"}
"""Changes that `infer` takes up, as other weights."""


def in_turn(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each name with each way; in `make test` with one of them, which go round."""
    pairs = ((number, name, at) for number, name in enumerate(names) for at in range(len(WAYS)))
    return [(name, WAYS[at]) for number, name, at in pairs if LONG or number % len(WAYS) == at]


def program() -> Program:
    torch.manual_seed(0)
    return Program().eval()


def rows(model: nn.Module) -> torch.Tensor:
    kind = next(model.parameters()).dtype
    return torch.linspace(-2.0, 2.0, 48).reshape(6, 8).to(kind)


def answered(answer: Callable[[Any], Any], model: nn.Module, refusal: type[Exception]) -> bool:
    """Is the model's own answer given? No: it is refused, in one line. Any other answer fails."""
    x = rows(model)
    with torch.no_grad():
        try:
            expected = model(x)
        except RuntimeError:
            with pytest.raises((refusal, RuntimeError)):
                answer(x)
            return True
    try:
        result = answer(x)
    except refusal:
        return False
    assert result.dtype == expected.dtype
    loose = x.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(result, expected, rtol=2e-2 if loose else 1e-4, atol=2e-2 if loose else 1e-5)
    return True


@pytest.mark.parametrize(("name", "way"), in_turn(CHANGES))
def test_infer_after_a_change(name: str, way: str) -> None:
    model = program()
    with girih.infer(model, rows(model), otherwise=way) as answer:
        assert answered(answer, model, girih.PlanError)
        with torch.no_grad():
            CHANGES[name](model)
        assert answered(answer, model, girih.PlanError) == (way != "refuse" or name in TAKEN)


@pytest.mark.parametrize(("name", "way"), in_turn(AROUND))
def test_infer_in_other_surroundings(name: str, way: str) -> None:
    model = program()
    with girih.infer(model, rows(model), otherwise=way) as answer:
        assert answered(answer, model, girih.PlanError)
        for _ in range(2):
            with AROUND[name]():
                assert answered(answer, model, girih.PlanError) == (way != "refuse" or name in WITHOUT_EFFECT)
            assert answered(answer, model, girih.PlanError)
        assert len(answer._plans) == (2 if way == "again" and name not in WITHOUT_EFFECT else 1)


@pytest.mark.parametrize("way", WAYS)
def test_infer_asks_what_the_program_would_be_now(way: str) -> None:
    """What it does not read changes nothing, nor what is put back, nor another value that is the same."""
    model = program()
    with girih.infer(model, rows(model), otherwise=way) as answer:
        for change in (
            lambda: setattr(model, "epoch", 3),
            lambda: setattr(model, "tau", 1),
            lambda: setattr(model, "scales", [1.0, 5.0]),
            lambda: model.requires_grad_(False),
            lambda: (model.train(), model.eval()),
            lambda: model.first.register_forward_hook(lambda *_: None),
        ):
            change()
            assert answered(answer, model, girih.PlanError)
            assert len(answer._plans) == 1
        model.tau = 2.0
        assert answered(answer, model, girih.PlanError) == (way != "refuse")
        model.tau = 1.0
        assert answered(answer, model, girih.PlanError)


def test_another_thread_has_surroundings_of_its_own() -> None:
    model, answers = nn.Sequential(nn.Linear(8, 8)).eval(), []
    with girih.infer(model, rows(model), otherwise="model") as answer, torch.autocast("cpu", torch.bfloat16):
        thread = threading.Thread(target=lambda: answers.append(answer(rows(model)).dtype))
        thread.start()
        thread.join()
        answers.append(answer(rows(model)).dtype)
    assert answers == [torch.float32, torch.bfloat16]


def test_the_model_itself_answers_in_the_type_that_infer_was_given() -> None:
    model = nn.Sequential(nn.Linear(8, 8)).eval()
    with girih.infer(model, rows(model), otherwise="model", autocast=torch.bfloat16) as answer:
        assert answer(rows(model)).dtype == answer(rows(model)[:3]).dtype == torch.bfloat16
        with torch.autocast("cpu", torch.float16):
            assert answer(rows(model)).dtype == torch.bfloat16


def optimised(model: nn.Module, otherwise: str) -> Optimized:
    """As `girih.optimize` makes it, but for the search: the captured program is what has won."""

    def make(example: Any) -> Made:
        x = example[0] if isinstance(example, tuple) else example
        captured = capture(Inference(model), x)
        state = state_of(Inference(model), captured.graph)
        weights = {item.name: state[item.path] for item in captured.graph.inputs if item.path in state}
        module = module_of(captured.graph, weights)
        return Made(call_of((x,), {}), (x,), {}, lambda x: captured.nest(module(x)), module, (x,), cast("Any", None))

    return Optimized(model, make, rows(model), otherwise)


@pytest.mark.parametrize("name", [*CHANGES, *AROUND])
def test_an_optimised_model_after_a_change(name: str) -> None:
    model = program()
    ways = {way: optimised(model, way) for way in WAYS}
    around = AROUND.get(name, AROUND["nothing"])
    for fast in ways.values():
        assert answered(fast, model, OptimizeError)
        assert fast._known((rows(model),), {}) is not None  # without a close look
        assert fast._known((rows(model)[:3],), {}) is None
        assert fast._quick(rows(model)) is not NO
        assert fast._quick(rows(model)[:3]) is NO
    with torch.no_grad():
        CHANGES.get(name, lambda model: None)(model)
    for way, fast in ways.items():
        with around(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert answered(fast, model, OptimizeError) == (way != "refuse" or name in WITHOUT_EFFECT)
            assert answered(fast, model, OptimizeError) == (way != "refuse" or name in WITHOUT_EFFECT)
        assert [str(item.message) for item in said if way == "refuse" or name in WITHOUT_EFFECT] == []
        if name in AROUND:
            assert answered(fast, model, OptimizeError)


class Marked(torch.Tensor):
    pass


def test_calls_are_told_quickly_in_every_mode_and_hooks_are_called() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    fast, x = optimised(model, "refuse"), rows(model)
    expected = model(x).detach()
    for mode in (nullcontext, torch.no_grad, torch.inference_mode, nullcontext):
        with mode():
            fast(x)  # the first of a mode is looked at closely
            torch.testing.assert_close(fast._quick(x), expected)
            assert torch.is_grad_enabled() == (mode is nullcontext)
    for other in (x.t().contiguous().t(), x.clone().requires_grad_(), nn.Parameter(x)):
        torch.testing.assert_close(fast._quick(other), expected)
        assert not fast(other).requires_grad
    for wrong in ((x[:3],), (x.double(),), (x, x), (), (x.as_subclass(Marked),), (x.to_sparse(),), (x.to("meta"),)):
        assert fast._quick(*wrong) is NO
        with pytest.raises(OptimizeError):
            fast(*wrong)
    model.note = "an attribute that nobody reads"
    with torch.no_grad():
        model[0].weight[0, 0] += 1.0
    assert fast._quick(x) is NO
    with pytest.raises(OptimizeError, match=r"'0\.weight' was changed"):
        fast(x)
    fast = optimised(model, "refuse")
    fast.register_forward_hook(lambda module, batch, result: result + 1.0)
    torch.testing.assert_close(fast(x), model(x).detach() + 1.0)


def test_what_was_touched_and_is_the_same_is_told_quickly_again() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    fast, x = optimised(model, "refuse"), rows(model)
    for change in (lambda: (model.train(), model.eval()), lambda: model.requires_grad_(False)):
        change()
        fast(x)
        assert fast._quick(x) is not NO


def test_what_a_model_keeps_by_itself_is_no_change() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.masks = nn.Linear(8, 8), {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) not in self.masks:
                self.masks[len(x)] = torch.ones(len(x), 1)
            return self.layer(x) * self.masks[len(x)]

    model = Cached().eval()
    fast = optimised(model, "model")
    with pytest.warns(UserWarning, match="float32"):
        fast(rows(model)[:3])
    assert fast._changed() == ""
    model.masks[6] = torch.zeros(6, 1)
    assert answered(fast, model, OptimizeError)
    assert not fast(rows(model)).any()
