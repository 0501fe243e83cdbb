"""Workers that are threads of this process: with how many threads their kernels compute."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from run_programs import Example, program_of

from girih.layout import Mesh
from girih.run.engines.threads import ThreadCrew
from girih.run.worker.service import Options, Service


def in_a_new_thread() -> int:
    numbers: list[int] = []
    thread = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return numbers[0]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_workers_have_the_number_that_is_said_or_this_threads_own(
    example: Example, threads: int, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = []

    class Noting(Service):
        def __init__(self, *arguments: Any) -> None:
            numbers.append(torch.get_num_threads())
            super().__init__(*arguments)

    monkeypatch.setattr("girih.run.engines.threads.Service", Noting)
    other = threading.Thread(target=torch.set_num_threads, args=(5,))  # which new threads have then, and this has not
    other.start()
    other.join()
    assert (torch.get_num_threads(), in_a_new_thread()) == (2, 5)
    crew = ThreadCrew(program_of(example.graph, Mesh((2,)), 0), Options(timeout=60.0, threads=threads))
    try:
        assert numbers == [threads or 2] * crew.size
        assert torch.get_num_threads() == in_a_new_thread() == 2
    finally:
        crew.close()
