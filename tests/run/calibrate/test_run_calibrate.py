"""Calibration on real workers, with a tiny budget: what comes out is positive, ascends and is kept."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from run_programs import Example, program_of

import girih
from girih import gnn
from girih.cost.calls import Call, Operand
from girih.cost.device_calls import local_calls
from girih.cost.profile import ALL_TO_ALL, RING, SEND, load_profile, parse_profile
from girih.cost.setting import METHOD, setting_of, threads_of
from girih.cost.store import Store
from girih.cost.work import Work
from girih.graph import Ref
from girih.layout import Mesh
from girih.machine import MachineError, machine
from girih.ops.derive.kinds import KINDS
from girih.run.calibrate.calibrate import _named, calibrate, idle_program, measured_handing, measured_links
from girih.run.calibrate.common_calls import common_calls
from girih.run.calibrate.measure_links import patterns, sizes_of
from girih.run.calibrate.measure_operators import measure, prepare, samples_of, tensor_of
from girih.run.engines.threads import ThreadCrew
from girih.run.worker.service import Options

LARGEST = 1 << 18


@pytest.fixture(scope="module")
def calibrated(example: Example, tmp_path_factory: pytest.TempPathFactory):
    """(profile, store's path, program, what was observed)"""
    path = tmp_path_factory.mktemp("costs") / "costs.sqlite"
    program = program_of(example.graph, Mesh((2,)), 1)
    told: list[tuple[str, float]] = []
    profile = calibrate(
        "local:2",
        store_path=path,
        programs=[program],
        budget_seconds=0.5,
        largest_bytes=LARGEST,
        observe=lambda what, share: told.append((what, share)),
    )
    return profile, path, program, told


def test_tables_are_positive_and_ascend(calibrated) -> None:
    profile, *_ = calibrated
    assert [name for name, _ in profile.links] == [SEND, RING]
    for table in (*(table for _, table in profile.links), profile.copy, profile.combine):
        assert table.sizes == sizes_of(RING, 2, LARGEST)
        assert min(table.all_seconds) > 0
        assert all(first <= second for first, second in pairwise(table.all_seconds))
        assert all(spread >= 0 for spread in table.spreads)


def test_every_call_is_in_the_store(calibrated) -> None:
    profile, path, program, _ = calibrated
    wanted = [*local_calls(program, over=True).calls, *(call for call in common_calls() if call.work.bytes <= LARGEST)]
    with Store(path) as store:
        known = store.measured(profile.setting, wanted)
        assert known.keys() == {call.key for call in wanted}
        assert all(found.seconds > 0 and found.repeats >= 3 for found in known.values())  # some are one worker's alone
        assert store.count() == len(known)
    assert profile.setting == setting_of(threads_of(2), 2)
    assert profile.roofline.error is not None
    assert profile.roofline.error.measurements == len(known)
    assert {name for name, _ in profile.roofline.rates} & set(KINDS) >= {"matmul", "element-wise", "reduction", "view"}


def test_the_profile_is_kept_and_gives_the_machine_its_numbers(calibrated) -> None:
    profile, path, *_ = calibrated
    with Store(path) as store:
        assert load_profile(store, "local:2") == profile
        assert load_profile(store, "local:2", "threads") is None
        assert load_profile(store, "local:2:2") == profile  # the same processes, on axes as a user writes them
        assert load_profile(store, "local:3") is None
        assert load_profile(store, "local:4:2x2") is None
    assert machine("local:2:2", profile).levels[0].points == machine("local:2", profile).levels[0].points
    item, plain = machine("local:2", profile), machine("local:2")
    assert item.device == replace(profile.device, memory_bytes=plain.device.memory_bytes)
    assert (item.mesh, item.name) == (plain.mesh, plain.name)
    table = profile.link(RING)
    assert item.levels[0].points == table.points
    assert item.levels[0].message_seconds(LARGEST) == pytest.approx(table.all_seconds[-1])
    assert (item.links.latency[0], 1 / item.links.seconds_per_byte[0]) == pytest.approx(table.line())
    assert profile.setting.device in item.source
    with pytest.raises(MachineError, match="the profile is of local:2, not of local:4"):
        machine("local:4", profile)
    with pytest.raises(MachineError, match="no profile"):
        parse_profile('{"machine": "local:2"}')


def test_progress_is_told(calibrated) -> None:
    *_, told = calibrated
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert {what.partition(" ")[0] for what, _ in told} == {"start", "steps", "operators", "links", "copies", "done"}


def test_what_is_known_is_not_measured_again(calibrated, tmp_path: Path) -> None:
    profile, path, *_ = calibrated
    copy = tmp_path / "costs.sqlite"
    copy.write_bytes(path.read_bytes())
    told: list[str] = []
    with Store(copy) as store:
        before = store.samples(profile.setting)
    calibrate(
        "local:2", store_path=copy, budget_seconds=0.2, largest_bytes=4096, observe=lambda what, _: told.append(what)
    )
    with Store(copy) as store:
        assert store.samples(profile.setting) == before
    assert not [what for what in told if what.startswith("operators")]


def test_what_an_older_girih_measured_is_measured_anew(calibrated, tmp_path: Path) -> None:
    profile, path, *_ = calibrated
    copy = tmp_path / "costs.sqlite"
    copy.write_bytes(path.read_bytes())
    for table in ("operators SET library", "profiles SET measured = '2026-11-20', library", "profiles SET profile"):
        column = table.split()[-1]
        with sqlite3.connect(copy) as connection:
            connection.execute(f"UPDATE {table} = replace({column}, ', method {METHOD}', '')")
        connection.close()
    with Store(copy) as store:
        old = load_profile(store, "local:2")
        assert old == replace(profile, setting=replace(profile.setting, library=f"torch {torch.__version__}"))
        assert "by an older girih" in old.caution
        assert store.count(old.setting) > store.count(profile.setting) == 0
    told: list[str] = []
    calibrate(
        "local:2", store_path=copy, budget_seconds=0.2, largest_bytes=4096, observe=lambda what, _: told.append(what)
    )
    assert [what for what in told if what.startswith("operators")]
    with Store(copy) as store:
        new = load_profile(store, "local:2")
        assert (new.setting, new.caution) == (profile.setting, "")
        assert store.count(new.setting) > 0


def test_one_device_and_threads(tmp_path: Path) -> None:
    alone = calibrate("local:1", store_path=tmp_path / "a", budget_seconds=0.2, backend="threads", largest_bytes=4096)
    assert (alone.links, alone.setting.together) == ((), 1)
    assert machine("local:1", alone).levels == machine("local:1").levels
    three = calibrate("local:3", store_path=tmp_path / "a", budget_seconds=0.2, backend="threads", largest_bytes=4096)
    assert [name for name, _ in three.links] == [SEND, RING, ALL_TO_ALL]
    assert three.setting.device != setting_of(1, 3).device


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("dgx-h100", {}, "only local:N and cuda:N can be calibrated"),
        ("local:2", {"backend": "ray"}, "no backend 'ray': expected an Engine, or one of processes, threads"),
        ("local:zwei", {}, "no machine 'local:zwei'"),
    ],
)
def test_what_cannot_be_calibrated(tmp_path: Path, name: str, options: dict, expected: str) -> None:
    with pytest.raises(MachineError, match=expected):
        calibrate(name, store_path=tmp_path / "costs.sqlite", **options)
    assert not (tmp_path / "costs.sqlite").exists()


def test_a_program_for_another_number_of_devices(example: Example, tmp_path: Path) -> None:
    program = program_of(example.graph, Mesh((2,)), 1)
    with pytest.raises(MachineError, match="for 2 devices cannot be measured on local:4"):
        calibrate("local:4", store_path=tmp_path / "costs.sqlite", programs=[program])


# ------------------------------------------------------------------------------------------- the parts


def test_common_calls_cover_the_kinds_and_run() -> None:
    calls = common_calls()
    assert {call.work.kind for call in calls} >= set(KINDS) - {"opaque", "view"}
    assert 80 < len(calls) < 150
    small = [call for call in calls if call.work.bytes < 1e5 and call.work.operations < 1e6]
    for call, sample in zip(small, measure(small, 0.01), strict=True):
        assert not isinstance(sample, str), f"{call.key}: {sample}"


def test_what_fails_on_random_inputs_is_told_and_the_rest_is_measured() -> None:
    square = Operand((3, 3), "float32")
    work = Work("opaque", "aten.linalg_cholesky", 1.0, 1.0)
    fails = Call("aten.linalg_cholesky", (("self", Ref("0")),), (square,), ((3, 3),), work)
    wrong = Call("aten.neg", (("self", Ref("0")),), (square,), ((3, 4),), work)
    good = Call("aten.neg", (("self", Ref("0")),), (square,), ((3, 3),), work)
    first, second, third = measure([fails, wrong, good], 0.01)
    assert isinstance(first, str)
    assert "its piece has shape [3, 3], the program says [3, 4]" in str(second)
    assert not isinstance(third, str)


@pytest.mark.parametrize(
    "operand",
    [
        Operand((3, 4, 5), "float32"),
        Operand((3, 4, 5), "float32", strides=(4, 1, 12)),
        Operand((3, 4, 5), "bfloat16", held=(6, 4, 7)),
        Operand((3, 4, 5), "float64", held=(6, 4, 7), strides=(1, 42, 6)),
        Operand((3, 4, 5), "float32", strides=(1, 0, 3)),
        Operand((3, 4), "float32", strides=(100, 3)),
        Operand((), "int64", high=9),
        Operand((0, 4), "int32"),
        Operand((7,), "bool"),
    ],
)
def test_operands_lie_in_memory_as_they_say(operand: Operand) -> None:
    made = tensor_of(operand, torch.Generator().manual_seed(0), "cpu")
    assert tuple(made.shape) == (operand.held or operand.shape)
    assert made.dtype == getattr(torch, operand.dtype)
    if operand.strides is None:
        assert made.is_contiguous()
    else:
        assert made.stride() == operand.strides
    if made.is_floating_point() and made.numel():
        assert float(made.min()) >= 0.09  # as bfloat16 rounds 0.1
        assert float(made.max()) <= 1
    if made.dtype == torch.int64:
        assert 0 <= int(made) < operand.high


def test_medians_are_lengthened_where_workers_stop_each_other() -> None:
    took = np.full((10, 2), 1e-3)
    took[3, 0] = 11e-3
    quiet, crowded = samples_of(took, False), samples_of(took, True)
    assert [item.seconds for item in quiet] == pytest.approx([1e-3, 1e-3])
    assert sum(item.seconds for item in crowded) * 10 == pytest.approx(took.sum())
    assert quiet[0].spread == 0
    assert quiet[0].repeats == 10


def test_medians_are_lengthened_where_every_round_is_stopped_somewhere() -> None:
    took = np.full((10, 5), 1e-3) + 2e-3 * np.eye(5).repeat(2, axis=0)  # another call in each round
    found = samples_of(took, False)
    assert [item.seconds for item in found] == pytest.approx([7e-3 / 5] * 5)


def test_patterns_and_sizes() -> None:
    assert patterns(1) == ()
    assert patterns(2) == (SEND, RING)  # all to all is a ring
    assert patterns(4) == (SEND, RING, ALL_TO_ALL)
    assert sizes_of(RING, 4)[-1] == 64 << 20
    assert sizes_of(ALL_TO_ALL, 64)[-1] * 63 <= 128 << 20
    assert sizes_of(RING, 4, 1) == (4096,)


@pytest.mark.parametrize("between", ["nothing", "own clocks"])
def test_links_of_any_crew(between: str) -> None:
    """As between hosts, where nothing but the crew itself is known."""
    crew = ThreadCrew(idle_program(3), Options())
    try:
        found = dict(measured_links(crew, 0.05, 1 << 14, between=between))
        handing = measured_handing(crew, 1 << 10)
    finally:
        crew.close()
    assert tuple(found) == (SEND, RING, ALL_TO_ALL)
    for table in (*found.values(), handing):
        assert min(table.all_seconds) > 0
        assert all(first <= second for first, second in pairwise(table.all_seconds))


def test_neighbours_are_drawn_as_a_power_law_has_them() -> None:
    neighbours = Operand((1 << 16,), "int32", high=1000, skewed=True)
    drawn = tensor_of(neighbours, torch.Generator().manual_seed(0), torch.device("cpu"))
    assert int(drawn.min()) >= 0
    assert 900 < int(drawn.max()) < 1000
    reads = torch.bincount(drawn, minlength=1000).sort(descending=True).values
    assert reads[:100].sum() > 0.6 * len(drawn), "most edges read few vertices"
    assert "skewed" in str(neighbours)
    evenly = tensor_of(Operand((1 << 16,), "int32", high=1000), torch.Generator().manual_seed(0), torch.device("cpu"))
    assert torch.bincount(evenly, minlength=1000).max() < 150


def test_a_sum_over_neighbours_is_measured_with_skewed_ones() -> None:
    data = gnn.rmat(200, 1000, features=6, classes=3, seed=1)
    network = gnn.GCN(6, 4, 3)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
    calls = local_calls(girih.plan(step, data, machine="local:1", search="single", compare=()).program).calls
    sums = [call for call in calls if call.operator == "girih.neighbour_sum"]
    assert sums
    for call in sums:
        assert [(item.ascending, item.skewed) for item in call.operands if item.dtype.startswith("int")] == [
            (True, False),
            (False, True),
        ]


def test_calls_on_data_of_the_program_are_measured_on_that_data() -> None:
    data = gnn.rmat(50, 400, features=4, classes=3)
    network = gnn.GCN(4, 8, 3)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
    plan = girih.plan(step, data, machine="local:1", search="single", compare=())
    own = plan.origin.data.data_tensors()
    sums = [call for call in local_calls(plan.program, over=True).calls if "neighbour_sum" in call.operator]
    assert sums
    for call in sums:
        named = [operand.source for operand in call.operands]
        assert sum(source in own for source in named) >= 2  # offsets and neighbours; weights, where it has them
        _, slots = prepare(call, torch.device("cpu"), own)
        drawn = prepare(call, torch.device("cpu"))[1]
        for source, given, other in zip(named, slots, drawn, strict=False):
            assert (given is own[source]) if source else torch.equal(given, other)


def test_data_beyond_what_is_sent_to_workers_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call("neg", (), (Operand((4,), "int64", source="edges"),), ((4,),), Work("copy", "neg", 1.0, 64.0, "int64"))
    edges = torch.arange(4)
    assert _named([call], {"edges": edges, "others": edges}) == {"edges": edges}
    monkeypatch.setattr("girih.run.calibrate.calibrate.CHUNK_BYTES", 31)
    assert _named([call], {"edges": edges}) == {}


def test_data_of_another_program_is_refused(tmp_path: Path) -> None:
    network = gnn.GCN(4, 8, 3)
    step = girih.TrainingStep(network, loss=gnn.loss, optimizer=torch.optim.SGD(network.parameters(), lr=0.1))
    plans = [
        girih.plan(step, gnn.rmat(50, edges, features=4, classes=3), machine="local:1", search="single", compare=())
        for edges in (300, 400)
    ]
    own, other = (plan.origin.data.data_tensors() for plan in plans)
    programs, store = [plans[0].program], tmp_path / "costs.sqlite"
    with pytest.raises(MachineError, match=r"the program was planned with .* give the data of its plan"):
        calibrate("local:1", store_path=store, programs=programs, data=[other])
    with pytest.raises(MachineError, match="data of 2 programs: expected as many as there are programs, 1"):
        calibrate("local:1", store_path=store, programs=programs, data=[own, other])
