"""What a published way to keep a memory limit is: a frozen dataclass of its options with one verb, `hold`.

It proposes an order of steps, in which some come again, and when each storage is on the device. The Program follows
from them as from girih's own (`girih.program.again`, `girih.program.moves.moves`), so that it is priced and run like
any other. `girih.search.table` has all of them by name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from girih.program.life.lifetimes import Lifetimes
from girih.program.moves.residency import Residency, TooSmallError
from girih.rewrite.proposer import Proposer


@dataclass(frozen=True, eq=False)
class Setting:
    """What is to be held. lives: of the program, all on the device. cap: bytes of the device. seconds: of each step.
    rates: bytes/s of copies out, and in. look: the lifetimes of the program in a sequence of its steps. counted: bytes
    in use in each of its steps then, where that is known without lifetimes. fetching: may transfers between devices
    come again, as operators do?"""

    lives: Lifetimes
    cap: int
    seconds: NDArray[np.float64]
    rates: tuple[float, float]
    look: Callable[[tuple[int, ...]], Lifetimes]
    counted: Callable[[tuple[int, ...]], NDArray[np.int64]] | None = None
    fetching: bool = False

    def used(self, sequence: tuple[int, ...]) -> NDArray[np.int64]:
        """Bytes in use in each step of the program in a sequence of its steps, nothing moved."""
        return self.look(sequence).used if self.counted is None else self.counted(sequence)


@dataclass(frozen=True)
class Holding:
    """How it is held. sequence: of the program's steps, or None: as they are. residency: of the program in this
    sequence, or None: nothing moves."""

    sequence: tuple[int, ...] | None = None
    residency: Residency | None = None


@dataclass(frozen=True)
class Baseline(Proposer):
    """A published way to train within less memory, with its options."""

    changes: ClassVar[tuple[str, ...]] = ("sequence", "residency")
    moves: ClassVar[bool]
    """Does it move tensors to the large memory? Else it computes them again."""
    orders: ClassVar[bool] = False
    """Does it order the steps itself?"""

    words: ClassVar[dict[str, tuple[str, ...]]] = {}
    """By option, the words that it can be; other options are whole numbers of at least 1."""

    def __post_init__(self) -> None:
        for option, value in vars(self).items():
            words = self.words.get(option)
            if words is not None and value not in words:
                raise ValueError(f"{self.name}: option {option} is one of {', '.join(words)}, got {value!r}")
            if words is None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{self.name}: option {option} is a whole number of at least 1, got {value!r}")

    @abstractmethod
    def hold(self, setting: Setting) -> Holding:
        """How the program is held. What does not depend on the cap may need more than that.

        Raises:
            TooSmallError: the cap cannot be kept so.
        """


def within(lives: Lifetimes, residency: Residency, cap: int) -> Residency:
    """The residency, if it needs no more than the cap.

    Raises:
        TooSmallError: it needs more.
    """
    used = residency.used(lives.touches)
    worst = int(used.argmax())
    if used[worst] > cap:
        raise TooSmallError(worst, int(used[worst]))
    return residency
