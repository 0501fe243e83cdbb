"""What all tests share: helper modules in this folder, and golden files (`--update-golden` rewrites them)."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import forked_programs
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from ray_nodes import RayNodes

# Threads of libraries that wait for work look for it all the time, and take the core from whoever shares it: tests of
# two threads took twice the CPU seconds. NumPy's own have tiny arrays. Both are read as the libraries are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The same examples in every run; how many, and how long one may take, is each test's own.
settings.register_profile("girih", derandomize=True, deadline=None)
settings.load_profile("girih")
# Hypothesis also draws constants from the modules imported so far, which differ between the processes of a run by the
# tests dealt to them: a failure in one run was not seen in another. It has no setting for that.
providers._get_local_constants = lambda: providers._local_constants

# Libraries that log warnings do not print them: tests look at what is printed.
logging.getLogger().addHandler(logging.NullHandler())

# Clusters of Ray that tests start ask for a token of their own: Ray's default, a file in the home, would be made by
# whichever test comes first, and a cluster that began before it refuses all that come after.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

# Loading PyTorch takes two seconds of a core, and each kind of worker process, with each number of threads, would.
forked_programs.nurse_fork_servers()

# What is measured is kept in the user's cache: that of a run of the tests is its own, shared by all its processes.
if "PYTEST_XDIST_WORKER" not in os.environ and "GIRIH_TESTS_CACHE" not in os.environ:
    os.environ["XDG_CACHE_HOME"] = os.environ["GIRIH_TESTS_CACHE"] = tempfile.mkdtemp(prefix="girih-tests-")
    atexit.register(shutil.rmtree, os.environ["GIRIH_TESTS_CACHE"], ignore_errors=True)


PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What is imported and collected stays: no garbage is looked for meanwhile. Only what is imported up to here is
    kept compiled: a program that a test writes twice within a second would be taken for the first."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        sys.dont_write_bytecode = True


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[pytest.CollectReport]:
    """Each process of a run begins with another part of a folder: what has never been imported is compiled by the one
    that comes first, and found compiled by the others, where all would compile it at once."""
    report = yield
    if isinstance(collector, pytest.Directory):
        found = report.result
        first = len(found) * PROCESS // PROCESSES
        report.result = [*found[first:], *found[:first]]
    return report


# Files whose single tests take tens of seconds. They come first: where one of them came last, all other processes of a
# run would wait for it.
LONG_FIRST = ("tests/benchmarks/", "tests/test_documentation.py", "tests/run/", "tests/search/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> tuple[bool, bool, tuple[str, ...]]:
        return not on_ray(item), not item.nodeid.startswith(LONG_FIRST), item.path.parts

    items.sort(key=place)  # those of a file stay as they are


def on_ray(item: pytest.Item | None) -> bool:
    return "ray_nodes" in getattr(item, "fixturenames", ())


RAY_NODES = RayNodes()


@pytest.fixture(scope="session")
def ray_nodes() -> RayNodes:
    """Called, it gives a Ray cluster of two nodes, which the tests that ask for it share."""
    return RAY_NODES


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        return (yield)
    finally:
        if not on_ray(nextitem):
            RAY_NODES.end()


@pytest.fixture(scope="module", autouse=True)
def what_is_here_stays() -> None:
    """From each file of tests on, a collection of garbage goes through newer objects only. What was imported and
    collected is millions of them, and takes two seconds each time; measuring memory collects before each step."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # plans are many small objects: looked through each 700, they take a sixth longer


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test begins with the same random numbers and with one thread of PyTorch's, on any processor and whatever its
    process ran before. Tensors are tiny, several processes share the cores, and sums and kernels' scratch memory depend
    on the number of threads. Tests that want more say so."""
    import torch

    # The processor's generator alone: where there is no GPU, `torch.manual_seed` keeps a call for one, with the stack
    # of who asked as text, which takes 0.4 ms each time.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    torch.set_num_threads(1)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What any logger says during a test, in the place of `caplog`: for that, pytest puts a handler on each of
    PyTorch's dozens of loggers three times a test, also where nobody asks (`-p no:logging`)."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    root = logging.getLogger()
    named = [item for item in root.manager.loggerDict.values() if isinstance(item, logging.Logger)]
    loggers = [root, *(item for item in named if not item.propagate)]
    level = root.level
    root.setLevel(logging.DEBUG)
    for logger in loggers:
        logger.addHandler(handler)
    yield records
    for logger in loggers:
        logger.removeHandler(handler)
    root.setLevel(level)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what golden tests get in place of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("mlp.txt", text)`: equal to `golden/mlp.txt` beside the test's file."""
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} does not exist: run pytest --update-golden and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; --update-golden if that is meant"

    return compare
