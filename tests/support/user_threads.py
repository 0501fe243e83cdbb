"""Several threads of a program evaluate arrays at the same time."""

from __future__ import annotations

import threading

import numpy as np

import girih.array as gnp

THREADS, ROUNDS = 8, 6
DATA = np.arange(3600.0).reshape(60, 60)


def evaluated_by_threads() -> list[BaseException]:
    """Each thread computes with the same array and with one of its own, keeps values with the workers and reads tiles;
    what went wrong."""
    shared = gnp.asarray(DATA)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            own = gnp.asarray(DATA + number)
            for turn in range(ROUNDS):
                assert float((shared * number + turn).sum()) == (DATA * number + turn).sum()
                kept = (shared @ own.T + turn).persist()
                assert np.array_equal(kept[turn].compute(), (DATA @ (DATA + number).T + turn)[turn])
                assert np.array_equal(np.asarray(kept - turn), DATA @ (DATA + number).T)
                own = own + 0.0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    assert not any(thread.is_alive() for thread in threads), failures
    return failures
