"""What training loops do between steps: each habit is right under girih.fit, or refused.

What: 23 habits of PyTorch's users; of some it is known that they are refused, and with which words.
How: each loop makes six steps on a small
network in float64, by plain PyTorch and by `girih.fit`, with the same habit between or around the steps; losses and
weights at the end are compared. A habit is right where they are PyTorch's to 1e-9, refused where a step, or girih.fit,
raises an error that says what to do; anything else is wrong. Floor: how many habits may be wrong (none), and those that
the table calls right have to be right.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note

TOLERANCE = 1e-9
STEPS = 6


def loss_of(model: Any, batch: Any) -> Any:
    from torch.nn.functional import mse_loss

    return mse_loss(model(batch[0]), batch[1])


class Loop:
    """A network, its optimizer and how a step is made: by PyTorch, or by girih.fit with these options."""

    def __init__(self, plain: bool, habit: Habit) -> None:
        import torch

        torch.manual_seed(0)
        layers = torch.nn.Linear(5, 8), torch.nn.LayerNorm(8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
        self.plain, self.habit = plain, habit
        self.model = torch.nn.Sequential(*layers).double()
        self.optimizer = habit.optimizer(self.model)
        self.train: Any = None
        self.losses: list[float] = []

    def batch(self, number: int, rows: int = 12) -> Any:
        import torch

        generator = torch.Generator().manual_seed(number)
        return tuple(torch.randn(rows, size, dtype=torch.float64, generator=generator) for size in (5, 3))

    def step(self, batch: Any) -> None:
        """One step of the loop."""
        import girih

        if self.plain:
            self.optimizer.zero_grad()
            loss = loss_of(self.model, batch)
            loss.backward()
            self.habit.before_update(self)
            self.optimizer.step()
            self.losses.append(loss.item())
            return
        if self.train is None:
            self.train = girih.fit(
                self.model, step=loss_of, optimizer=self.optimizer, batch=batch, **self.habit.options
            )
        self.losses.append(self.train(*batch))

    @property
    def module(self) -> Any:
        """The model with its weights of now."""
        return self.model if self.train is None else self.train.module

    def close(self) -> None:
        if self.train is not None:
            self.train.close()


def adamw(model: Any) -> Any:
    import torch

    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def sgd(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def derived(model: Any) -> Any:
    """An optimizer of one's own, whose code is traced."""
    import torch

    return type("Own", (torch.optim.AdamW,), {})(model.parameters(), lr=0.01, weight_decay=0.1)


def adafactor(model: Any) -> Any:
    import torch

    return torch.optim.Adafactor(model.parameters(), lr=0.05)


@dataclass(frozen=True)
class Habit:
    """run: the loop, a generator that stops after each step. before_update: of plain PyTorch, between backward and the
    update. options: of girih.fit, for the same. refused: it is known to be refused, and with which words."""

    run: Callable[[Loop], Iterator[None]]
    optimizer: Callable[[Any], Any] = adamw
    before_update: Callable[[Loop], None] = lambda loop: None
    options: Any = None
    refused: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", self.options or {})


def between(change: Callable[[Loop, int], None]) -> Callable[[Loop], Iterator[None]]:
    """A loop with something done after each step."""

    def run(loop: Loop) -> Iterator[None]:
        for number in range(STEPS):
            loop.step(loop.batch(number))
            change(loop, number)
            yield

    return run


def scheduled(make: Callable[[Any], Any]) -> Callable[[Loop], Iterator[None]]:
    def run(loop: Loop) -> Iterator[None]:
        schedule = make(loop.optimizer)
        for number in range(STEPS):
            loop.step(loop.batch(number))
            schedule.step()
            yield

    return run


def _one_cycle(optimizer: Any) -> Any:
    import torch

    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS + 2)


def _warm_up(optimizer: Any) -> Any:
    import torch

    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: math.sin(step / STEPS))


def _decays(loop: Loop, number: int) -> None:
    for group in loop.optimizer.param_groups:
        group["weight_decay"] = 0.1 / (number + 2)


def _betas(loop: Loop, number: int) -> None:
    for group in loop.optimizer.param_groups:
        group["betas"] = 0.9 - 0.02 * number, 0.999


def _sizes(loop: Loop) -> Iterator[None]:
    for number, rows in enumerate((12, 12, 5, 12, 12, 5)):  # two epochs, whose last batches are short
        loop.step(loop.batch(number, rows))
        yield


def _average(loop: Loop, number: int) -> None:
    import torch

    with torch.no_grad():
        for parameter in loop.module.parameters():
            parameter.lerp_(torch.ones_like(parameter), 0.01)


def _evaluated(loop: Loop, number: int) -> None:
    import torch

    model = loop.module
    model.eval()
    with torch.no_grad():
        loop.losses.append(float(loss_of(model, loop.batch(99))))
    model.train()


def _saved(loop: Loop, number: int) -> None:
    import copy

    if number == 2:
        saved = copy.deepcopy((loop.module.state_dict(), loop.optimizer.state_dict()))
        loop.step(loop.batch(50))
        loop.module.load_state_dict(saved[0])  # back to the checkpoint
        loop.optimizer.load_state_dict(saved[1])


def _frozen(loop: Loop, number: int) -> None:
    if number == 2:
        loop.module[0].requires_grad_(False)


def _hooked(loop: Loop, number: int) -> None:
    if number == 2:
        loop.module[1].register_forward_hook(lambda module, inputs, output: output * 2)


def _clip(loop: Loop) -> None:
    import torch

    torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 0.05)


def _clip_values(loop: Loop) -> None:
    import torch

    torch.nn.utils.clip_grad_value_(loop.model.parameters(), 0.01)


def _under_autocast(loop: Loop) -> Iterator[None]:
    import torch

    for number in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16, enabled=number > 2):
            loop.step(loop.batch(number))
        yield


def _too_many_sizes(loop: Loop) -> Iterator[None]:
    for number in range(STEPS):
        loop.step(loop.batch(number, 12 - number))
        yield


def _group_added(loop: Loop, number: int) -> None:
    import torch

    if number == 2:
        extra = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        loop.module.register_parameter("extra", extra)
        loop.optimizer.add_param_group({"params": [extra]})


def _stale_write(loop: Loop, number: int) -> None:
    import torch

    with torch.no_grad():
        loop.model[0].weight.mul_(0.9)  # not by way of `train.module`


def _nothing(loop: Loop, number: int) -> None:
    pass


HABITS = {
    "a step and nothing else": Habit(between(_nothing)),
    "a rate in a cycle, momentum too": Habit(scheduled(_one_cycle), sgd),
    "the same, with Adam's betas": Habit(scheduled(_one_cycle)),
    "a rate that warms up from 0": Habit(scheduled(_warm_up)),
    "weight decay that is scheduled": Habit(between(_decays)),
    "betas that are scheduled": Habit(between(_betas)),
    "both, of an optimizer of one's own": Habit(between(lambda *all: (_decays(*all), _betas(*all))[0]), derived),
    "Adafactor": Habit(between(_nothing), adafactor),
    "last batches that are short": Habit(_sizes),
    "the same, with an optimizer of one's own": Habit(_sizes, derived),
    "the same, in three micro-batches": Habit(_sizes, options={"micro_batches": 3}),
    "gradients clipped by their norm": Habit(between(_nothing), before_update=_clip, options={"clip_grad_norm": 0.05}),
    "gradients clipped by value": Habit(
        between(_nothing), before_update=_clip_values, options={"clip_grad_value": 0.01}
    ),
    "weights averaged": Habit(between(_average)),
    "an evaluation after each step": Habit(between(_evaluated)),
    "a checkpoint taken and gone back to": Habit(between(_saved)),
    "a limit of memory": Habit(between(_nothing), options={"memory": "8KB"}),
    "layers frozen midway": Habit(between(_frozen), refused="requires_grad"),
    "a hook added midway": Habit(between(_hooked), refused="hooks"),
    "autocast around some steps, which float64 does not heed": Habit(_under_autocast),
    "a group added midway": Habit(between(_group_added), refused="extra changed"),
    "more sizes than allowed": Habit(_too_many_sizes, options={"sizes": 3}, refused="drop_last"),
    "a write into stale weights": Habit(between(_stale_write), refused="train.module"),
}


def compare(name: str) -> Row:
    """Loops by PyTorch and by girih; where a step is refused, what came before is compared."""
    habit, loops, words = HABITS[name], [], ""
    for plain in (True, False):
        loop = Loop(plain, habit)
        loops.append(loop)
        try:
            for _ in habit.run(loop):
                pass
        except Exception as error:
            if plain:
                raise
            words = f"{type(error).__name__}: {error}"
        finally:
            if not words:
                loop.close()
    one, two = loops
    count = len(two.losses) if words else max(len(one.losses), len(two.losses))
    pairs = list(zip(one.losses[:count], two.losses, strict=True))
    difference = max((abs(a - b) / abs(a) for a, b in pairs), default=0.0)
    if words:
        two.train = None
        known = habit.refused and habit.refused in words
        verdict = "refused" if known and difference <= TOLERANCE else "wrong"
    else:
        ends = zip(one.model.state_dict().values(), two.model.state_dict().values(), strict=True)
        difference = max(difference, *(float((a - b).abs().max() / a.abs().max()) for a, b in ends))
        verdict = "right" if difference <= TOLERANCE and not math.isnan(difference) else "wrong"
    return {"habit": name, "verdict": verdict, "steps": len(pairs), "difference": difference, "words": words[:300]}


def measure(options: argparse.Namespace) -> Report:
    warnings.simplefilter("ignore")
    rows = []
    for name in list(HABITS)[:: 4 if options.quick else 1]:
        rows.append(compare(name))
        note(rows[-1])
    wrong = [row for row in rows if row["verdict"] == "wrong"]
    misses = [f"{row['habit']}: differs by {row['difference']:.1e} {row['words']}" for row in wrong]
    columns = (("habit", "habit"), ("", "verdict"), ("losses compared", "steps"), ("differ by", "difference"))
    right = sum(row["verdict"] == "right" for row in rows)
    return Report(
        "What loops do between steps, under girih.fit beside PyTorch",
        (*columns, ("said", "words")),
        tuple(rows),
        f"of {len(rows)} habits {right} are right and {len(rows) - right} are refused",
        tuple(misses) if len(wrong) > options.floor else (),
    )


BENCHMARK = Benchmark("loop_habits", __doc__ or "", measure, 0, "habits that may be wrong")

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
