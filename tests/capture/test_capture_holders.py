"""Wherever Python keeps what a program has: put back after capture, asked about, and seen when it changes."""

from __future__ import annotations

import os
import threading
from array import array
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from girih.capture import CaptureError, TrainingStep, capture
from girih.capture.torch.attributes import Attributes
from girih.capture.torch.settings import Settings


class Slots:
    """An object of the user's whose attributes lie in slots."""

    __slots__ = ("calls", "later")
    later: bool

    def __init__(self) -> None:
        self.calls = 0


SLOTS, NUMBERS, ARRAY, BYTES, LOCAL = Slots(), np.zeros(2), array("d", [0.0]), bytearray(1), threading.local()
LOCAL.calls = 0


def of_slots() -> int:
    SLOTS.calls += 1
    SLOTS.later = True
    return SLOTS.calls


def of_numpy() -> float:
    NUMBERS[1:] += 1
    return float(NUMBERS.sum())


def of_array() -> float:
    ARRAY[0] += 1
    return ARRAY[0]


def of_bytes() -> int:
    BYTES.append(1)
    return len(BYTES)


def of_a_thread() -> int:
    LOCAL.calls += 1
    return int(LOCAL.calls)


def of_a_default(*, seen: list[int] = [0]) -> int:  # noqa: B006
    seen.append(0)
    return len(seen)


def of_the_function() -> int:
    of_the_function.calls = getattr(of_the_function, "calls", 0) + 1  # type: ignore[attr-defined]
    return int(of_the_function.calls)  # type: ignore[attr-defined]


def kept() -> Any:
    seen = (of_a_default.__kwdefaults__ or {})["seen"]
    elsewhere = MANY[0], VARIABLE.get(), os.environ.get("COUNTER")
    return (
        *elsewhere,
        SLOTS.calls,
        NUMBERS.tolist(),
        [*ARRAY],
        bytes(BYTES),
        LOCAL.calls,
        [*seen],
        vars(of_the_function),
    )


MANY, VARIABLE = np.zeros(20_000), ContextVar("VARIABLE", default=0)


def of_many() -> float:
    MANY[0] += 1
    return float(MANY[0])


def of_a_context() -> int:
    VARIABLE.set(VARIABLE.get() + 1)
    return VARIABLE.get()


def of_the_environment() -> int:
    os.environ["COUNTER"] = f"{int(os.environ.get('COUNTER', '0')) + 1}"
    return int(os.environ["COUNTER"])


COUNTERS = (
    of_many,
    of_a_context,
    of_the_environment,
    of_slots,
    of_numpy,
    of_array,
    of_bytes,
    of_a_thread,
    of_a_default,
    of_the_function,
)


@pytest.mark.parametrize("count", COUNTERS)
def test_wherever_python_keeps_it(count: Any) -> None:
    before = repr(kept())
    step = TrainingStep(nn.Linear(4, 4).double(), lambda made, wanted: (made - wanted).square().mean() * count())
    with pytest.raises(CaptureError, match="and the next one computes otherwise for it"):
        capture(step, (torch.randn(6, 4).double(), torch.randn(6, 4).double()))
    assert repr(kept()) == before
    assert not hasattr(SLOTS, "later")


@pytest.mark.parametrize("count", COUNTERS)
def test_what_is_changed_between_two_steps_is_seen(count: Any) -> None:
    step = TrainingStep(nn.Linear(4, 4), lambda made, wanted: (made - wanted).mean() * (0 if count is None else 1))
    settings = Settings(step)
    attributes = Attributes({"step": count})
    assert settings.changed() == []
    count()
    assert settings.changed() != []
    attributes.put_back()
    assert settings.changed() == []
