"""Scratch memory of libraries' kernels: measured once, kept in a store and in plan files, and bounded elsewhere."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import forked_programs
import pytest
import torch
from counts import LONG

import girih
from girih.api import Plan, load, plan_graph
from girih.capture import TrainingStep
from girih.cost import measure_scratch
from girih.cost.measure_scratch import HostScratch, measured, setting_here
from girih.cost.scratch import BOUND, ESTIMATE, MEASURED, Scratch, ScratchSetting, ScratchStore, Told
from girih.graph import parse_graph
from girih.models import example
from girih.ops.catalogue import catalogue
from girih.ops.derive.temporaries import KernelCall, Operand
from girih.ops.scratch import ScratchCall, at_most
from girih.plans.check import check
from girih.plans.plan import PlanError
from girih.plans.scratch import host_notes
from girih.program.life.accounts import memory_use

WORKER_TESTS = Path(__file__).resolve().parents[1] / "worker"
ELSEWHERE = ScratchSetting("Another Processor; avx2; L2 512K", "torch 2.13.0, oneDNN 3.12.0")


def convolution(batch: int = 4, threads: int = 1, dtype: str = "float32") -> ScratchCall:
    item = getattr(torch, dtype).itemsize
    operands = {
        "input": Operand((batch, 6, 14, 14), item, dtype=dtype),
        "weight": Operand((16, 6, 5, 5), item, dtype=dtype),
    }
    window = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    attributes = {**window, "transposed": False, "output_padding": (0, 0), "bias": None}
    work = KernelCall(attributes, operands, Operand((batch, 16, 10, 10), item, dtype=dtype), threads=threads)
    return ScratchCall("aten.convolution", work, catalogue()["aten.convolution"].temporary)


@pytest.fixture(scope="module")
def lenet() -> Plan:
    made = example("lenet-tiny", batch=4)
    step = TrainingStep(made.module, step=made.step, optimizer=torch.optim.SGD(made.module.parameters(), lr=0.01))
    return girih.plan(step, made.inputs, machine="local:2", compare=(), search="exact:seconds=2", objective="bytes")


# ------------------------------------------------------------------------------------------- processors


def test_what_is_told_is_what_is_held_with_other_instruction_sets() -> None:
    """Libraries read the variable at their first kernel: a process of its own does some of the memory's tests. `make
    test-avx2` does all of them for another one."""
    networks = "lenet or alexnet" if LONG else "lenet"
    chosen = (
        "test_convolutions_hold_what_is_measured and not float64 or "
        f"test_convolutional_networks and ({networks}) and 2 or "
        "test_any_division_needs_no_more and 2 and not exchanges"
    )
    arguments = [str(WORKER_TESTS / "test_run_memory.py"), "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    arguments += ["-s", "-k", chosen]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"ONEDNN_MAX_CPU_ISA": "SSE41", "ONEDNN_VERBOSE": "1"}
    done = forked_programs.run([sys.executable, "-m", "pytest", *arguments], environment, timeout=200)
    assert done.returncode == 0, done.stdout[-4000:]  # 5 where nothing was chosen
    assert "isa:Intel SSE4.1" in done.stdout or platform.machine() != "x86_64"


# ------------------------------------------------------------------------------------------- measuring


def test_a_call_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(measure_scratch, "measured", lambda call: asked.append(call.key) or Told(7, MEASURED))
    store = tmp_path / "scratch.sqlite"
    first = HostScratch(setting_here(), ScratchStore(store))
    assert first(convolution()) == first(convolution()) == Told(7, MEASURED)
    assert HostScratch(setting_here(), ScratchStore(store))(convolution()) == Told(7, MEASURED)
    assert len(asked) == 1
    first(convolution(threads=2))
    HostScratch(ELSEWHERE, ScratchStore(store))(convolution())
    assert len(asked) == 3


def test_measuring_leaves_threads_and_modes_alone() -> None:
    before = torch.get_num_threads()
    found = []
    with torch.inference_mode(), torch._subclasses.FakeTensorMode():
        thread = threading.Thread(target=lambda: found.append(measured(convolution(threads=before + 1))))
        thread.start()
        found.append(measured(convolution(threads=before + 1)))
        thread.join()
    assert found[0] == found[1]
    assert found[0].how == MEASURED
    assert torch.get_num_threads() == before


def test_measuring_beside_a_profiler() -> None:
    expected = measured(convolution())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        assert measured(convolution()) == expected
    assert profiler.events() is not None


def test_what_is_too_large_is_measured_with_fewer_images(monkeypatch: pytest.MonkeyPatch) -> None:
    call = convolution(batch=32)
    exact = measured(call)
    monkeypatch.setattr(measure_scratch, "MOST_OPERATIONS", call.known.operations(call.work) // 3)
    estimate = measured(call)
    assert estimate.how == ESTIMATE
    assert 0 < estimate.bytes <= call.bound
    assert estimate.bytes >= exact.bytes * 0.9
    monkeypatch.setattr(measure_scratch, "MOST_OPERATIONS", 1)
    assert measured(call) == Told(call.bound, BOUND)
    monkeypatch.undo()
    monkeypatch.setattr(measure_scratch, "MOST_BYTES", 1)
    assert measured(call) == Told(call.bound, BOUND)


def test_what_pytorch_refuses_has_a_bound() -> None:
    call = convolution()
    work = replace(call.work, attributes={**call.work.attributes, "groups": 4})
    assert measured(ScratchCall(call.operator, work, call.known)).how == BOUND


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("threads", [1, 4])
def test_products_of_short_numbers_hold_no_more_than_their_bound(dtype: str, threads: int) -> None:
    for rows, terms, columns in ((256, 512, 128), (17, 512, 64), (1, 64, 300), (100, 8, 100)):
        for strides in (None, (1, rows)):
            left = Operand((rows, terms), 2, strides is None, strides, dtype)
            operands = {"self": left, "mat2": Operand((terms, columns), 2, dtype=dtype)}
            work = KernelCall({}, operands, Operand((rows, columns), 2, dtype=dtype), threads=threads)
            call = ScratchCall("aten.mm", work, catalogue()["aten.mm"].temporary)
            assert measured(call).bytes <= call.bound


def test_a_product_of_short_numbers_is_measured_in_a_program() -> None:
    text = """graph
  input %x: bfloat16[64, 256]  batch  "0"
  input %w: bfloat16[256, 96]  batch  "1"
  %y: bfloat16[64, 96] = aten.mm(self=%x, mat2=%w)  # forward
  return %y result"""
    made = plan_graph(parse_graph(text), machine="local:1", objective="bytes")
    (key,) = made.told_scratch.calls
    assert key.startswith("aten.mm(")
    assert made.peak == 2 * (64 * 256 + 256 * 96 + 64 * 96) + made.told_scratch.calls[key].bytes
    longer = plan_graph(parse_graph(text.replace("bfloat16", "float32")), machine="local:1", objective="bytes")
    assert not longer.told_scratch.calls


# ------------------------------------------------------------------------------------------- the store


@pytest.mark.parametrize(
    "text", ["this is no database, but a text of some length\n" * 100, "SQLite format 3\0 cut off"]
)
def test_a_damaged_store_stops_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scratch.sqlite"
    path.write_text(text)
    source = HostScratch(setting_here(), ScratchStore(path))
    with pytest.warns(UserWarning, match="cannot be used as a store of scratch measurements"):
        told = source(convolution())
    assert told.how == MEASURED
    assert source(convolution()) == told
    assert path.read_text() == text


def test_a_store_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    source = HostScratch(setting_here(), ScratchStore(tmp_path / "file" / "scratch.sqlite"))
    with pytest.warns(UserWarning, match="make its folder writable"):
        assert source(convolution()).how == MEASURED
    source(convolution(batch=2))


def test_a_store_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "scratch.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    store = ScratchStore(path)
    store.put(ELSEWHERE, "call", Told(1, MEASURED))
    assert "version 9" in store.trouble
    assert store.every(ELSEWHERE) == {}


def test_rows_that_are_wrong_are_not_believed(tmp_path: Path) -> None:
    store = ScratchStore(tmp_path / "scratch.sqlite")
    store.put(ELSEWHERE, "good", Told(5, MEASURED))
    for key, size, how in (("less", -1, MEASURED), ("text", "many", MEASURED), ("how", 1, "guessed")):
        store.put(ELSEWHERE, key, Told(size, how))  # type: ignore[arg-type]
    assert store.every(ELSEWHERE) == {"good": Told(5, MEASURED)}


def test_several_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "scratch.sqlite"
    trouble = []

    def work(first: int) -> None:
        store = ScratchStore(path)
        for number in range(first, first + 20):
            store.put(ELSEWHERE, str(number), Told(number, MEASURED))
        trouble.append(store.trouble)

    threads = [threading.Thread(target=work, args=(20 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == [""] * 4
    assert len(ScratchStore(path).every(ELSEWHERE)) == 80


def test_the_setting_names_what_kernels_are_chosen_by(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "default"}
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    plain = setting_here.__wrapped__()
    assert plain.library.startswith(f"torch {torch.__version__}, oneDNN ")
    assert torch.backends.cpu.get_cpu_capability() in plain.library
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
        told = setting_here.__wrapped__()  # what is asked again is remembered
        assert f"{name}={value}" in told.library
        assert told.device == plain.device
        assert name not in plain.library


# ------------------------------------------------------------------------------------------- plans


def test_a_plan_says_by_what_its_scratch_was_told(lenet: Plan, tmp_path: Path) -> None:
    told = lenet.told_scratch
    assert told.exact
    assert told.setting == setting_here()
    assert told.calls
    assert "peak memory is exact: scratch of kernels measured on" in str(lenet)
    path = tmp_path / "lenet.json"
    lenet.save(path)
    again = load(path)
    assert again.scratch == told
    assert again.memory_by_device == lenet.memory_by_device
    assert again == lenet


def test_a_loaded_plan_needs_no_torch_and_no_measurement(lenet: Plan, tmp_path: Path) -> None:
    path = tmp_path / "lenet.json"
    lenet.save(path)
    data = json.loads(path.read_text())
    more = {key: [size + 1000, how] for key, (size, how) in data["scratch"]["calls"].items()}
    data["scratch"] = {"setting": vars(ELSEWHERE), "threads": 3, "calls": {}}
    for key, value in more.items():
        data["scratch"]["calls"][key.replace(f", {lenet.told_scratch.threads} threads", ", 3 threads")] = value
    path.write_text(json.dumps(data))
    code = (
        "import sys; from girih.api import load; made = load(sys.argv[1]);"
        "print(made.peak, made.told_scratch.words); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    words, loaded = done.stdout.splitlines()
    assert words == f"{lenet.peak + 1000} exact: scratch of kernels measured on Another Processor, 3 threads"
    assert loaded == "False"


def test_other_machines_have_a_bound(lenet: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_scratch, "measured", None)
    made = plan_graph(lenet.graph, machine="cpu-10g:2", objective="bytes")
    assert made.told_scratch.setting is None
    assert {told.how for told in made.told_scratch.calls.values()} == {BOUND}
    assert "peak memory is a bound" in str(made)
    assert made.peak == max(memory_use(made.program, use.device, 2, at_most).peak for use in made.memory_by_device)


def test_a_plan_from_elsewhere_is_measured_again_before_it_starts(lenet: Plan) -> None:
    fewer = {key: Told(told.bytes // 2, MEASURED) for key, told in lenet.told_scratch.calls.items()}
    other = replace(lenet, scratch=Scratch(ELSEWHERE, lenet.told_scratch.threads, fewer))
    assert other.peak < lenet.peak
    tight = other.but(memory=other.peak)
    check(tight)
    with pytest.raises(PlanError, match=r"does not keep its limit of .* on this host: .*Another Processor") as told:
        tight.start()
    assert "\n" not in str(told.value)
    with other.but(memory=lenet.peak).start() as running:
        assert running.plan.told_scratch.setting == setting_here()
        assert running.plan.peak == lenet.peak


def test_a_capped_plan_is_measured_for_the_threads_that_run_it(lenet: Plan) -> None:
    threads = lenet.told_scratch.threads + 1
    notes = host_notes(threads)
    peak = max(memory_use(lenet.program, device, threads, notes).peak for device in range(2))
    assert notes.record.threads == threads
    more = {key.replace(f", {threads} threads", f", {threads - 1} threads"): told for key, told in notes.calls.items()}
    assert set(more) == set(lenet.told_scratch.calls)
    assert abs(peak - lenet.peak) < lenet.peak


RECORDS = [
    {"setting": None, "threads": 0, "calls": {}},
    {"setting": None, "threads": 1, "calls": {"a": [-1, "measured"]}},
    {"setting": None, "threads": 1, "calls": {"a": [1, "guessed"]}},
    {"setting": None, "threads": 1, "calls": {"a": 1}},
    {"setting": 3, "threads": 1, "calls": {}},
    {"threads": 1},
    [],
]


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_a_record_that_is_wrong_is_refused(record: object, lenet: Plan, tmp_path: Path) -> None:
    path = tmp_path / "lenet.json"
    lenet.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "scratch": record}))
    with pytest.raises(PlanError, match="is damaged: scratch"):
        load(path)


def test_a_plan_from_before_there_was_a_record_has_bounds(lenet: Plan, tmp_path: Path) -> None:
    path = tmp_path / "lenet.json"
    lenet.save(path)
    data = json.loads(path.read_text())
    del data["scratch"]
    path.write_text(json.dumps(data))
    again = load(path)
    assert again.peak >= lenet.peak
    assert again.told_scratch.words.startswith("a bound")
