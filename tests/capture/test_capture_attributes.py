"""What a program keeps in its modules: put back after capture, and refused where the next step would read it."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger
from math import exp
from typing import Any

import numpy as np
import pytest
import torch
from against_eager import compare
from torch import nn

from girih.capture import CaptureError, Inference, TrainingStep, capture
from girih.capture.torch.attributes import check_further_steps, check_later_steps
from girih.capture.torch.settings import Settings


class Module(nn.Module):
    """A layer, and what the programs of this page keep."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4).double()
        self.calls = 0
        self.hidden: Any = None
        self.start = torch.ones(4).double()
        self.log: list[Any] = []
        self.recent: deque[Any] = deque(maxlen=3)
        self.tables: dict[int, Any] = {}


class Logs(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.hidden = self.layer(x)
        self.log.append(self.hidden.detach())
        self.extra = self.calls
        return self.hidden


class Remakes(Module):
    """As an LSTM remakes its list of weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.recent, self.tables = deque(self.recent), dict(self.tables)
        return self.layer(x)


class Counts(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) * self.calls


class Warms(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(len(self.log))
        return self.layer(x) / len(self.log)


class Recurs(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x) if self.hidden is None else self.layer(x + self.hidden)
        self.hidden = made.detach()
        return made


class Averages(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x) * self.start
        self.start = 0.9 * self.start + 0.1 * made.detach().mean(0)
        return made


class Remembers(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x)
        total = made + sum(self.recent) if self.recent else made
        self.recent.append(made.detach())
        return total


class Draws(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x) if self.hidden is None else self.layer(x) + self.hidden
        self.hidden = torch.rand(4, dtype=torch.float64)
        return made


class Caches(Module):
    """Positions are computed once for each length, as models with rotary embeddings do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) not in self.tables:
            self.tables[len(x)] = torch.arange(len(x)).double().cos()[:, None]
            self.calls = len(x)
        return self.layer(x) * self.tables[len(x)]


class Freezes(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = nn.functional.dropout(self.layer(x), 0.5, self.training)
        self.eval()
        return made


def step_of(net: nn.Module) -> TrainingStep:
    return TrainingStep(net, nn.functional.mse_loss, torch.optim.SGD(net.parameters(), lr=0.1))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(6, 4).double(), torch.randn(6, 4).double()


@pytest.mark.parametrize("kind", [Logs, Caches, Remakes])
def test_what_the_next_step_does_not_read_is_put_back(kind: type[Module]) -> None:
    net = kind()
    before, log, tables = dict(net.__dict__), net.log, net.tables
    for _ in range(2):
        capture(step_of(net), batch())
        assert net.__dict__.keys() == before.keys()
        assert all(net.__dict__[key] is value for key, value in before.items())
        assert (log, tables) == ([], {})
    compare(step_of(net), [batch() for _ in range(3)], tolerance=1e-12)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Counts, r"changes 'model\.calls' \(now 0, then 1\), and the next one computes otherwise.*a buffer"),
        (Warms, r"changes 'model\.log' \(now a list, then a list\)"),
        (Freezes, r"changes 'model\.training' \(now True, then False\), 'model\.layer\.training'"),
        (Recurs, r"leaves a tensor in 'model\.hidden' and the next one reads it.*make it a buffer"),
        (Averages, r"leaves a tensor in 'model\.start'"),
        (Remembers, r"leaves a tensor in 'model\.recent'"),
        (Draws, r"leaves a tensor in 'model\.hidden'"),
    ],
)
def test_what_the_next_step_reads_is_refused(kind: type[Module], message: str) -> None:
    net = kind()
    before = dict(net.__dict__)
    with pytest.raises(CaptureError, match=message):
        capture(step_of(net), batch())
    assert net.__dict__ == before
    assert not net.recent
    assert net.layer.training


class Helper:
    """An object of the user's, which is no module."""

    def __init__(self) -> None:
        self.calls = 0
        self.state: Any = torch.zeros(4).double()

    def loss(self, made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return (made - wanted).square().mean() * self.calls


class Helped(Module):
    def __init__(self) -> None:
        super().__init__()
        self.helper = Helper()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.helper.state = self.layer(x).detach().mean(0) + self.helper.state
        return self.layer(x) + self.helper.state


COUNT = [0]


def global_loss(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    COUNT[0] += 1
    return (made - wanted).square().mean() * COUNT[0]


def closed_loss() -> Any:
    calls = 0

    def loss(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return (made - wanted).square().mean() * calls

    return loss


class CountedLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return (made - wanted).square().mean() * self.calls


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (global_loss, r"'global_loss\.COUNT' \(now a list"),
        (closed_loss(), r"'closed_loss\.<locals>\.loss\.calls' \(now 0, then 1\)"),
        (Helper().loss, r"'loss\.calls' \(now 0, then 1\)"),
        (CountedLoss(), r"'loss\.calls' \(now 0, then 1\)"),
        (partial(lambda a, b, weight: weight.loss(a, b), weight=Helper()), r"'loss\.calls' \(now 0, then 1\)"),
    ],
)
def test_functions_and_objects_are_asked_too(loss: Any, message: str) -> None:
    step = TrainingStep(nn.Linear(4, 4).double(), loss)
    for _ in range(2):
        with pytest.raises(CaptureError, match=f"changes {message}, and the next" if "calls" in message else message):
            capture(step, batch())
    assert COUNT == [0]


@pytest.mark.parametrize(
    ("draw", "name"), [(random.random, "random"), (lambda: float(np.random.rand()), "numpy")], ids=["python", "numpy"]
)
def test_numbers_that_python_draws_are_refused(draw: Any, name: str) -> None:
    step = TrainingStep(nn.Linear(4, 4).double(), lambda made, wanted: (made - wanted).square().mean() * draw())
    before = random.getstate(), np.random.get_state()[1].tolist()
    with pytest.raises(CaptureError, match=rf"changes 'generators\.{name}' .* computes otherwise"):
        capture(step, batch())
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


OWN = random.Random(0), np.random.default_rng(0), np.random.RandomState(0)


def rarely_doubled(most: float, generator: Any) -> Any:
    held = {"generator": generator}  # as closures and attributes have them

    def loss(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return (made - wanted).square().mean() * (2 if held["generator"].random() < most else 1)

    return loss


class Draws:
    """A method alone, by which a generator of one's own is drawn from."""

    def __init__(self, generator: Any) -> None:
        self.random = generator.random


@pytest.mark.parametrize("generator", [Draws(item) for item in OWN[:2]])
def test_a_method_of_a_generator_is_asked_too(generator: Any) -> None:
    with pytest.raises(CaptureError, match=r"computes otherwise for it.*draw with torch\.rand"):
        capture(TrainingStep(nn.Linear(4, 4).double(), rarely_doubled(0.5, generator)), batch())


@pytest.mark.parametrize("generator", [random.random.__self__, np.random.rand.__self__, *OWN])
def test_a_branch_that_chance_takes_rarely_is_refused(generator: Any) -> None:
    step = TrainingStep(nn.Linear(4, 4).double(), rarely_doubled(0.02, generator))
    with pytest.raises(CaptureError, match=r"computes otherwise for it.*draw with torch\.rand.*give it with the batch"):
        capture(step, batch())


def test_a_draw_that_changes_nothing_is_no_matter() -> None:
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    capture(TrainingStep(nn.Linear(4, 4).double(), rarely_doubled(0.0, generator)), batch())
    assert generator.bit_generator.state == before


def test_objects_of_a_module_are_asked_too() -> None:
    net = Helped()
    state = net.helper.state
    with pytest.raises(CaptureError, match=r"leaves a tensor in 'model\.helper\.state'"):
        capture(step_of(net), batch())
    assert net.helper.state is state


def test_inference_is_asked_too() -> None:
    net = Recurs()
    with pytest.raises(CaptureError, match=r"leaves a tensor in 'model\.hidden'"):
        capture(Inference(net), (batch()[0],))


class Once(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 1:
            raise ValueError("this module has been called before\nlong ago")
        return self.layer(x)


def test_a_step_behind_which_there_is_no_next_one_is_refused() -> None:
    net = Once()
    text = r"changes 'model\.calls' \(now 0, then 1\), and the next one cannot .* raises ValueError: .* before"
    with pytest.raises(CaptureError, match=text) as told:
        capture(step_of(net), batch())
    assert isinstance(told.value.__cause__, CaptureError)
    assert net.calls == 0


def test_attributes_are_put_back_where_capture_fails() -> None:
    net = Logs()
    step = TrainingStep(net, step=lambda model, x: model(x[0]).sum().item())
    with pytest.raises(CaptureError):
        capture(step, batch())
    assert (net.calls, net.hidden, net.log, hasattr(net, "extra")) == (0, None, [], False)


def test_a_dictionary_that_holds_itself() -> None:
    net = Remakes()
    tables = net.tables
    tables[0] = tables
    capture(step_of(net), batch())
    assert net.tables is tables
    assert tables[0] is tables


def test_hooks_of_gradients_are_asked_too() -> None:
    model, seen = nn.Linear(4, 4).double(), []

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        seen.append(0)
        return gradient * len(seen)

    model.weight.register_hook(hook)
    with pytest.raises(CaptureError, match=r"hook\.seen"):
        capture(TrainingStep(model, nn.functional.mse_loss), batch())
    assert seen == []


def test_functions_that_take_the_place_of_torchs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(step_of(Module()))
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", len)
    (told,) = settings.changed()
    assert told.startswith("scaled_dot_product_attention of torch.nn.functional was")
    monkeypatch.undo()
    assert settings.changed() == []


class Rarely(Module):
    """It counts its calls, and asks how many there are."""

    def __init__(self, asks: Any) -> None:
        super().__init__()
        self.asks, self.count = asks, {"calls": 0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.asks(self.count["calls"])
        self.count["calls"] += 1
        self.calls += 1
        return self.layer(x) * (2 if before or self.asks(self.calls) else 1)


@pytest.mark.parametrize(
    ("asks", "later"),
    [
        (lambda n: n and n % 4 == 0, 3),
        (lambda n: n > 1000, 1000),
        (lambda n: n and n % 100 == 0, 99),
        (lambda n: n == 1000, 999),
        (lambda n: n and n % 17 == 0, 16),
        (lambda n: n in {5, 9}, 4),
        (lambda n: 5 < n <= 7, 5),
        (lambda n: exp(-n / 20) < 0.1, 46),
        (lambda n: divmod(n, 50)[0] == 3, 149),
        (lambda n: str(n).endswith("99"), 98),
        (lambda n: f"{n}" in ("57", "58"), 56),
        (lambda n: f"{n:04d}"[-2:] == "57", 56),
        (lambda n: "step " + repr(n) == "step 57", 56),
        (lambda n: int(str(n)[-1]) == 7, 6),
        (lambda n: len(str(n)) == 3, 99),
        (lambda n: "7" in str(n), 6),
        (lambda n: str(n / 2).split(".")[0] == "3", 5),
        (lambda n: [*str(n)].count("1") == 2, 10),
        (lambda n: {"5": True}.get(str(n), False), 4),
    ],
)
def test_a_branch_that_is_taken_many_steps_later_is_refused(asks: Any, later: int) -> None:
    net = Rarely(asks)
    with pytest.raises(
        CaptureError, match=rf"counts .*model\.calls. \(now 0, then 1\).* {later} steps later it computes otherwise"
    ):
        capture(step_of(net), batch())
    assert (net.calls, net.count) == (0, {"calls": 0})
    assert all(type(number) is int for number in (net.calls, *net.count.values()))


class Anneals(Module):
    """Its temperature falls, in one of several ways."""

    def __init__(self, falls: Any) -> None:
        super().__init__()
        self.falls, self.temperature = falls, 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.temperature = self.falls(self.temperature)
        return self.layer(x) * (2 if self.temperature < 0.1 else 1)


@pytest.mark.parametrize(
    ("falls", "later"),
    [
        (lambda t: t * 0.9, 21),
        (lambda t: t - 0.25, 3),
        (lambda t: max(0.0, t - 0.001), 899),
        (lambda t: max(0.2, t * 0.5), None),
        (lambda t: t**2, None),
    ],
)
def test_a_number_that_falls_below_another_is_refused(falls: Any, later: int | None) -> None:
    net = Anneals(falls)
    if later is None:
        capture(step_of(net), batch())
    else:
        with pytest.raises(CaptureError, match=rf"temperature.* {later} steps later it computes otherwise"):
            capture(step_of(net), batch())
    assert type(net.temperature) is float


@dataclass(frozen=True)
class Phase:
    number: int = 0


FORMS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], bool]]] = {
    "a number of NumPy's": (np.int64(0), lambda n: n + 1, lambda n: n >= 6),
    "of float32": (np.float32(1), lambda t: t * np.float32(0.5), lambda t: t < 0.02),
    "a function of NumPy's": (0, lambda n: n + 1, lambda n: np.exp(-n / 10) < 0.1),
    "a tuple": ((0, 1.0), lambda pair: (pair[0] + 1, 1.0), lambda pair: pair[0] >= 6),
    "an object anew": (Phase(), lambda phase: replace(phase, number=phase.number + 1), lambda phase: phase.number >= 6),
    "an array": (np.zeros(2), lambda x: x + 1, lambda x: x[0] >= 6),
    "a string": ("", lambda text: text + "x", lambda text: len(text) >= 6),
    "a dictionary that grows": ({}, lambda seen: seen | {len(seen): 1}, lambda seen: len(seen) >= 6),
    "a key that is new": (Counter[str](), lambda seen: seen.update("a") or seen, lambda seen: seen["a"] >= 30),
    "a set": (set(), lambda seen: seen.add(len(seen)) or seen, lambda seen: len(seen) >= 6),
    "a list anew": ([], lambda seen: [*seen, 1], lambda seen: len(seen) >= 6),
    "a list": ([], lambda seen: seen.append(1) or seen, lambda seen: sum(seen) >= 60),
    "a subscript": (0, lambda n: n + 1, lambda n: ([False] * 9 + [True] * 2000)[n]),
    "an iterator": (iter([*range(99)]), lambda items: items, lambda items: next(items) >= 6),
    "a tensor": (torch.zeros(()), lambda x: x + 1, lambda x: bool(x >= 6)),
}


class Follows(Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.kept, self.onward, self.asks = FORMS[form]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = self.onward(self.kept)
        return self.layer(x) * (2 if self.asks(self.kept) else 1)


@pytest.mark.parametrize("form", FORMS)
def test_what_counts_in_any_form_is_refused(form: str) -> None:
    with pytest.raises(CaptureError, match=r"steps later it computes otherwise|at another time|leaves a tensor in"):
        capture(step_of(Follows(form)), batch())


class Turns(Module):
    """Its number goes round: it is never far."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = (self.calls + 1) % 3
        return self.layer(x) * (2 if self.calls > 10 else 1)


class Looks(Module):
    """It looks up in a table, which ends before that."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) * [1.0, 1.0, 1.0, 1.0, 1.0][self.calls]


class Checks(Module):
    """Its counter is as large as its list is long."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.log.append("called")
        return self.layer(x) * (2 if self.calls != len(self.log) else 1)


class Tells(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls % 100 == 0:
            self.log.append(f"step {self.calls}")
        return self.layer(x)


class Prints(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        print(f"step {self.calls}", self.calls, str(self.calls))
        getLogger(__name__).warning("step %d of %s", self.calls, self.calls)
        return self.layer(x)


@pytest.mark.parametrize("kind", [Turns, Looks, Tells, Prints, Checks])
def test_steps_that_do_not_come_are_no_matter(kind: type[Module]) -> None:
    net = kind()
    capture(step_of(net), batch())
    assert (net.calls, net.log) == (0, [])


@pytest.mark.parametrize("error", [CaptureError, KeyError])
def test_a_later_step_that_girih_itself_fails_at_is_no_step_that_does_the_same(error: type[Exception]) -> None:
    def differs() -> bool:
        raise error("failed")

    expected = pytest.raises(KeyError) if error is KeyError else nullcontext()
    for check in (
        lambda: check_further_steps([("calls", 0, 1)], differs, 1),
        lambda: check_later_steps([("calls", 0, 1)], iter([(1, lambda: True)]), differs),
    ):
        with expected:
            check()


class Waits(Module):
    """It goes on once it remembers enough."""

    def __init__(self, most: int | None, enough: int) -> None:
        super().__init__()
        self.recent, self.enough = deque(maxlen=most), enough

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.recent.append(1.0)
        return self.layer(x) * (2 if len(self.recent) >= self.enough else 1)


@pytest.mark.parametrize(("most", "enough", "refused"), [(3, 3, True), (3, 4, False), (None, 1000, True)])
def test_lists_that_grow_are_long_later(most: int | None, enough: int, refused: bool) -> None:
    net = Waits(most, enough)
    if refused:
        with pytest.raises(CaptureError, match=r"counts 'model\.recent' .* and \d+ steps later it computes otherwise"):
            capture(step_of(net), batch())
    else:
        capture(step_of(net), batch())
    assert len(net.recent) == 0


SCALE, SHIFT = {"factor": 1.0}, {"shift": 0.0}


class Scaled(Module):
    """What it reads stands in a property and in a static method."""

    @property
    def factor(self) -> float:
        return SCALE["factor"]

    @staticmethod
    def shift() -> float:
        return SHIFT["shift"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.factor + self.shift()


@pytest.mark.parametrize(("held", "key"), [(SCALE, "factor"), (SHIFT, "shift")])
def test_what_properties_and_static_methods_read_is_asked_too(held: dict[str, float], key: str) -> None:
    settings = Settings(step_of(Scaled()))
    assert settings.changed() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(held, key, 2.0)
        assert settings.changed() != []


def test_texts_of_numbers_are_printed_as_plain_ones(capsys: pytest.CaptureFixture[str]) -> None:
    capture(step_of(Prints()), batch())
    lines = capsys.readouterr().out.splitlines()
    # A handler of logs that another test has left may look at the clock, and then a step is captured once more.
    assert [*dict.fromkeys(lines)] == ["step 1 1 1", "step 2 2 2", "step 1002 1002 1002"]
    assert len(lines) <= 10  # a question of it would have each later step be run
