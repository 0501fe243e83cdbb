"""Threads that call compiled kernels, which release the interpreter's lock, on parts of their work."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from girih.host import cores_here


def threads_of(jobs: int | None) -> int:
    """How many threads scikit-learn's `n_jobs` means: None is 1 for each core, -1 too, -2 one fewer.

    Raises:
        ValueError: 0, or no number.
    """
    if jobs is None:
        return cores_here()
    if not isinstance(jobs, int) or jobs == 0:
        raise ValueError(f"n_jobs={jobs!r}: expected None, a positive number of threads, or -1 for one on each core")
    return jobs if jobs > 0 else max(1, cores_here() + 1 + jobs)


class Team:
    """`with Team(4) as team`: `team.each(kernel, count, …)` calls kernel(first, last, …) on 4 parts of a range,
    `team.all([…])` calls functions. The caller's thread is one of the 4; both wait for all."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="girih-team") if threads > 1 else None

    def each(self, kernel: Callable[..., Any], count: int, *arguments: Any) -> None:
        """The parts must not write to the same elements: then no result depends on how many there are."""
        parts = min(self.threads, count)
        if self._pool is None or parts < 2:
            if count:
                kernel(0, count, *arguments)
            return
        cuts = [count * part // parts for part in range(parts + 1)]
        self.all([partial(kernel, *ends, *arguments) for ends in itertools.pairwise(cuts)])

    def all(self, functions: list[Callable[[], Any]]) -> None:
        if self._pool is None:
            for function in functions:
                function()
            return
        first, *rest = functions
        others = [self._pool.submit(function) for function in rest]
        try:
            first()
        finally:
            for other in others:
                other.result()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
