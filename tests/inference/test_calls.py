"""An optimised model answers what it was made for; any other call as it was said, and never wrongly, whoever won."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from counts import LONG, but_long
from torch import nn

import girih
from girih.capture.torch.weights import Weights
from girih.inference import optimized, trial
from girih.inference.optimized import Optimized, OptimizeError
from girih.inference.runtimes.apart import Apart

WINNERS = ["eager", "onednn", "onnxruntime", "openvino"]
RUNTIMES = ("onnxruntime", "openvino")
"""Libraries for which a model is written as ONNX, which takes as long as all else in a test."""


class PerRow(nn.Module):
    """Sizes of the batch are numbers in its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, scale: Any = 1.0, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = torch.relu(self.layer(x)) * scale
        return (y if mask is None else y * mask).sum(0) / x.shape[0]


def rows(count: int) -> torch.Tensor:
    return torch.randn(count, 8)


@pytest.fixture(params=WINNERS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", autouse=True)
def one_process_tries_the_libraries() -> Iterator[None]:
    """Each model that is optimised would start one, which takes nearly a second of a core."""
    kept: list[Any] = []
    begin, leave = Apart._started, Apart.__exit__

    def started(self: Apart) -> Any:
        self._process = self._process or (kept.pop() if kept else None)
        return begin(self)

    def left(self: Apart, *how: Any) -> None:
        if self._process is not None:
            kept.append(self._process)
            self._process = None
        leave(self, *how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Apart, "_started", started)
        patch.setattr(Apart, "__exit__", left)
        yield
    for process in kept:
        with process:
            process.kill()


@pytest.fixture
def optimised(backend: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Optimized]:
    """`girih.optimize` in which the last way that runs has won."""
    if backend in RUNTIMES and find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    monkeypatch.setattr(trial, "FAR", float("inf"))
    monkeypatch.setattr(trial, "choice", lambda took: len(took) - 1)

    def optimised(model: nn.Module, example: Any, **options: Any) -> Optimized:
        fast = girih.optimize(model, example, threads=1, seconds=0.1, backends=(backend,), **options)
        assert fast.explain().chosen.backend == backend
        return fast

    return optimised


def same(fast: nn.Module, model: nn.Module, *batch: Any, **named: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(*batch, **named), model(*batch, **named), rtol=1e-4, atol=1e-5)


def test_another_call_is_answered_by_the_model(optimised: Callable[..., Optimized]) -> None:
    model = PerRow().eval()
    fast = optimised(model, (rows(64), 2.0))
    same(fast, model, rows(64), 2.0)
    with pytest.warns(UserWarning, match=r"its argument \[0\] is float32\[48, 8\], .*so that the model"):
        same(fast, model, rows(48), 2.0)
    for batch, named in (
        ((rows(16), 2.0), {}),
        ((rows(64), 3.0), {}),
        ((rows(64), 2), {}),
        ((rows(64),), {}),
        ((rows(64), 2.0, torch.ones(4)), {}),
        ((rows(64),), {"scale": 2.0}),
        ((), {"x": rows(64), "mask": torch.zeros(4)}),
    ):
        same(fast, model, *batch, **named)  # and nothing more is said
    for wrong, says in ((rows(64)[:, :3], "shapes cannot be multiplied"), (rows(64).double(), "same dtype|Float")):
        with pytest.raises(RuntimeError, match=says):
            fast(wrong, 2.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(fast, model, rows(64), 2.0)


@pytest.mark.parametrize("backend", but_long(WINNERS, {"openvino"}), indirect=True)
def test_another_call_is_optimised_again_or_refused(
    optimised: Callable[..., Optimized], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = backend in RUNTIMES and not LONG
    most = 2 if few else 4
    monkeypatch.setattr(optimized, "MOST_CALLS", most)
    model = PerRow().eval()
    fast = optimised(model, {"x": rows(6), "scale": 2.0}, otherwise="again")
    for count in (6, 3, 6) if few else (6, 3, 5, 3, 6):
        same(fast, model, scale=2.0, x=rows(count))
    assert len(fast._made) == (2 if few else 3)
    for count in range(1 if few else 2):
        same(fast, model, x=rows(10 + count))
    assert len(fast._made) == most  # of one more
    with (
        pytest.raises(RuntimeError, match="shapes cannot be multiplied"),
        pytest.warns(UserWarning, match="cannot be op"),
    ):
        fast(x=rows(6)[:, :3])
    fast = optimised(model, rows(6), otherwise="refuse")
    same(fast, model, rows(6))
    for batch, named, says in (
        ((rows(3),), {}, r"its argument \[0\] is float32\[3, 8\], and it was optimised for float32\[6, 8\]"),
        ((rows(6), 2.0), {}, "it was called with 2 arguments by position, and optimised for 1 argument by position"),
        ((), {"x": rows(6)}, "it was called with x by name, and optimised for 1 argument by position"),
    ):
        with pytest.raises(OptimizeError, match=says):
            fast(*batch, **named)


class Halves(nn.Module):
    """The batch is a number of its reshapes alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(8, 4), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halves = torch.relu(self.layer(x)).reshape(x.shape[0] * 2, 2)
        return self.last(halves).reshape(x.shape[0], 4)  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", but_long(WINNERS, {"openvino"}), indirect=True)
def test_another_size_takes_over_what_has_won(
    optimised: Callable[..., Optimized], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, searched, search = Halves().eval(), list[int](), optimized._searched
    monkeypatch.setattr(optimized, "_searched", lambda *given: (searched.append(1), search(*given))[1])
    fast = optimised(model, rows(6), otherwise="again")
    first = fast.explain().chosen
    for number in range(2):
        del searched[:]
        for count in (3, 1, 12, 3, 6):
            same(fast, model, rows(count))
        assert searched == []
        assert len(fast._made) == 4
        assert all(made is not None and made.explanation.chosen.backend == first.backend for _, made in fast._made)
        if number == 0:  # other weights need another program, and other sizes take that one over
            with torch.no_grad():
                model.layer.weight.mul_(2.0)
            same(fast, model, rows(6))
            assert searched
    model = PerRow().eval()
    fast = optimised(model, rows(6), otherwise="again")
    del searched[:]
    same(fast, model, rows(3))  # in the first program 6 is a number by which it divides
    assert bool(searched) == (fast.explain().rewritten)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "load_state_dict": lambda model: model.load_state_dict(PerRow().state_dict()),
    "data": lambda model: model.layer.weight.data.mul_(2.0),
    "another": lambda model: setattr(model.layer, "bias", nn.Parameter(torch.ones(4))),
    "set data": lambda model: setattr(model.layer.weight, "data", torch.ones(4, 8)),
}


def test_weights_that_are_changed_later_are_seen(
    optimised: Callable[..., Optimized], backend: str, tmp_path: Path
) -> None:
    """By one optimised model, which treats each change in all three ways, since making it takes long. In `make test`
    the libraries that read ONNX share the changes among them."""
    model = PerRow().eval()
    x = rows(6)
    fast = optimised(model, x, otherwise="again")
    shared = RUNTIMES.index(backend) if backend in RUNTIMES and not LONG else None
    for name, change in list(CHANGES.items())[shared :: 1 if shared is None else len(RUNTIMES)]:
        same(fast, model, x)
        before = fast(x)
        change(model)
        assert not torch.allclose(model(x), before), name
        fast._otherwise, fast._told = "refuse", False
        for verb in (lambda: fast(x), lambda: fast.save(tmp_path / "fast.pt2")):
            with pytest.raises(OptimizeError, match=r"'layer\.(weight|bias)' .*was changed after it was optimised"):
                verb()
        fast._otherwise = "model"
        with pytest.warns(UserWarning, match=r"its 'layer\.(weight|bias)' was changed after it was optimised") as told:
            same(fast, model, x)
        assert told[0].filename == __file__
        fast._otherwise = "again"
        same(fast, model, x)
        assert len(fast._made) == 1


def test_a_model_in_training_mode_is_not_asked(optimised: Callable[..., Optimized]) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout()).eval()
    fast = optimised(model, rows(6))
    model.train()
    with pytest.raises(OptimizeError, match="was put into training mode after it was optimised"):
        fast(rows(6))
    model.eval()
    same(fast, model, rows(6))


def test_a_wrong_index_gives_the_model_s_own_error(optimised: Callable[..., Optimized]) -> None:
    model = nn.Embedding(5, 4).eval()
    fast = optimised(model, torch.tensor([0, 4]))
    with pytest.raises(IndexError, match="index out of range"):
        fast(torch.tensor([0, 5]))


@pytest.mark.parametrize("backend", but_long(WINNERS, {"openvino"}), indirect=True)
def test_threads_share_an_optimised_model(optimised: Callable[..., Optimized]) -> None:
    model = PerRow().eval()
    fast = optimised(model, rows(6), otherwise="again")
    asked = {count: rows(count) for count in (6, 3)}
    answers = {count: model(x).detach() for count, x in asked.items()}
    wrong: list[BaseException] = []

    def ask(count: int) -> None:
        try:
            for _ in range(30):
                torch.testing.assert_close(fast(asked[count]), answers[count], rtol=1e-4, atol=1e-5)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(count,)) for count in (6, 6, 3, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(fast._made) == 2


def test_what_is_written_into_tensors_is_seen() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Conv1d(4, 4, 1).bfloat16())
    model.plain = torch.full((), float("nan"))
    changes: list[tuple[str, Callable[[], object]]] = [
        ("0.weight", lambda: model[0].weight.add_(1)),
        ("0.weight", lambda: model[0].weight.data.mul_(1.5)),
        ("1.running_mean", lambda: model[1].running_mean.numpy().__iadd__(1)),
        ("2.weight", lambda: setattr(model[2].weight, "data", torch.zeros(4, 4, 1))),
        ("1.num_batches_tracked", lambda: model[1].num_batches_tracked.add_(1)),
        ("plain", lambda: setattr(model, "plain", torch.zeros(()))),
        ("0.bias", lambda: delattr(model[0], "bias")),
    ]
    with torch.no_grad():
        for name, change in changes:
            weights = Weights(model)
            assert weights.changed() == ""
            change()
            assert weights.changed() == name
