"""Plan files are data: what is in them is checked before anything is built, and nothing of theirs is run."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz_plans
import numpy as np
import pytest
import torch
from counts import LONG, random_cases

import girih
from girih.api import plan_graph
from girih.graph import Graph, Input, Node, Output, Ref, Value, parse_graph
from girih.layout import compiled
from girih.ops.functions import text_of
from girih.partition import Strategy
from girih.plans import file as plan_file
from girih.plans.check import check


def double(x: Any) -> Any:
    """A user's function."""
    return 2 * x


class Bomb:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp("plans") / "plan.json"
    fuzz_plans.plan_of("training").save(where)
    return where.read_text()


@pytest.fixture
def data(text: str) -> dict[str, Any]:
    return json.loads(text)


def one_node(operator: str, **arguments: Any) -> Graph:
    """x: float32[4] → y: float32[4], by one node."""
    values = {name: Value(name, (4,), "float32") for name in ("x", "y")}
    node = Node("y", operator, tuple(arguments.items()), ("y",))
    return Graph(values, (node,), (Input("x", "batch", "0"),), (Output("y", "result"),))


def plan_of(graph: Graph) -> girih.Plan:
    return plan_graph(graph, machine="local:2", memory="unlimited", objective="seconds")


def written(folder: Path, data: Any) -> Path:
    path = folder / "hostile.json"
    path.write_text(json.dumps(data))
    return path


def refused(path: Path, trust: bool = False) -> str:
    """The one line by which a file is refused."""
    with pytest.raises(girih.PlanError) as caught:
        girih.load(path, trust=trust)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(path) in message
    return message


def test_mutants_are_refused_in_one_line_or_start(text: str, tmp_path: Path) -> None:
    """`python -m tests.support.fuzz_plans --count 100000` does more of them."""
    count = random_cases(2000)
    result = fuzz_plans.fuzz(text, range(count), 0, tmp_path, every=4)
    assert result.wrong == []
    assert result.ends["refused"] > count // 2
    assert result.ends["started"] > count // 100
    assert result.ends["loaded"] > count // 20


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plan of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    for kind in fuzz_plans.PLANS:
        fuzz_plans.plan_of(kind).save(folder / f"{kind}.json")
    return folder


@pytest.mark.parametrize("kind", fuzz_plans.PLANS)
def test_no_mutant_of_any_kind_of_plan_takes_a_loop_out_of_bounds(
    kind: str, plans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In plain Python, where an index out of bounds is an IndexError too, and nothing has to be compiled for that."""
    monkeypatch.setattr(compiled.Compiled, "__call__", lambda loop, *arguments: loop.plain(*arguments))
    count = random_cases(200)
    result = fuzz_plans.fuzz((plans / f"{kind}.json").read_text(), range(count), 1, tmp_path)
    assert result.wrong == []
    assert sum(result.ends.values()) == count


@pytest.mark.skipif(not LONG, reason="`make test` does the same in plain Python")
def test_no_mutant_of_any_kind_of_plan_takes_a_compiled_loop_out_of_bounds(plans: Path, tmp_path: Path) -> None:
    """`NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=… python -m tests.support.fuzz_plans --plan all --compiled` does more."""
    command = [sys.executable, "-m", "tests.support.fuzz_plans", "--plan", "all", "--compiled", "--count", "40",
               "--seed", "1", "--files", str(plans)]  # fmt: skip
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-3000:]}{done.stderr[-1000:]}"
    assert done.stdout.count("      0 something else") == len(fuzz_plans.PLANS)


MANY = [[0, -1, -1, 1, True, False, False]] * 26_000
HELD: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "a step out of bounds": (
        "moved",
        lambda data: data["residency"]["stays"].extend([*MANY, [5, 1, 1, 2**30, True, False, False]]),
        r"residency\.stays\[\d+\]: start, first and last: expected steps from -1 to \d+, .* are 1, 1 and 1073741824",
    ),
    "a storage out of bounds": (
        "moved",
        lambda data: data["residency"]["stays"][3].__setitem__(0, 10**6),
        r"residency\.stays\[3\]: the storage: expected one of \d+, counted from 0, there is 1000000",
    ),
    "a home out of bounds": (
        "moved", lambda data: data["residency"]["home"].append(10**6),
        r"residency\.home: expected numbers of \d+ storages, counted from 0, there is 1000000",
    ),
    "stays that are left out": (
        "moved", lambda data: data["residency"].update(stays=[]), r"residency\.stays: "
    ),
    "a copy of nothing": (
        "moved", lambda data: data["residency"]["stays"][0].__setitem__(4, False),
        r"residency\.stays\[0\] \(of .*\): fresh: expected true",
    ),
    "a step twice": (
        "moved", lambda data: data["sequence"].append([0, 2**22]), "sequence has .* steps: expected at most"
    ),
    "a step that is not there": (
        "computed again", lambda data: data["sequence"].append([5000, 5001]),
        r"sequence: the sequence has step 5000: there are \d+, counted from 0",
    ),
    "a step left out": (
        "computed again", lambda data: data["sequence"].pop(), r"sequence: the sequence leaves out step \d+ of \d+"
    ),
    "no memory": (
        "moved", lambda data: data.update(memory=None), "memory: expected a number of bytes beside a residency"
    ),
    "a piece of no step": (
        "in pieces", lambda data: data["pieces"][0][1][0].__setitem__(0, 2**31),
        "pieces: step 2147483648 cannot be computed in pieces",
    ),
    "an index variable that is not there": (
        "in pieces", lambda data: data["pieces"][0][1][0].__setitem__(1, 64),
        r"pieces: step \d+ cannot be computed in pieces of its index variable 64",
    ),
    "a class too few": (
        "pipeline", lambda data: data["residencies"].pop(),
        "residencies: expected one for each of 2 classes, there are 1"
    ),
    "residencies of other classes": (
        "pipeline", lambda data: data["residencies"].reverse(), r"residencies\[0\]\."
    ),
    "one residency for all": (
        "pipeline", lambda data: data.update(residency=data["residencies"][0]),
        "residency: expected residencies in its pl"
    ),
    "a schedule beside pieces": (
        "in pieces", lambda data: data.update(schedule="1f1b"),
        "schedule: expected 'graph' beside pieces, there is '1f1b'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HELD)
def test_when_and_where_are_checked_by_key_before_they_are_used(what: str, plans: Path, tmp_path: Path) -> None:
    kind, change, message = HELD[what]
    data = json.loads((plans / f"{kind}.json").read_text())
    change(data)
    assert re.search(message, refused(written(tmp_path, data)))


# ------------------------------------------------------------------------------------------- code in files


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("backend", ["threads", "calibrate"])
def test_a_pickled_function_is_never_unpickled(tmp_path: Path, trust: bool, backend: str) -> None:
    target = tmp_path / "ran"
    made = plan_of(one_node("girih.map", tensors=(Ref("x"),), function=f"{__name__}:double", kind="float32"))
    made.save(tmp_path / "plan.json")
    data = json.loads((tmp_path / "plan.json").read_text())
    bomb = f"double|{base64.b85encode(pickle.dumps(Bomb(target))).decode()}"
    data["graph"] = [line.replace(json.dumps(f"{__name__}:double"), json.dumps(bomb)) for line in data["graph"]]
    assert bomb in json.dumps(data["graph"]).encode().decode("unicode_escape")
    message = refused(written(tmp_path, data), trust)
    assert "functions that are pickled are not read from files" in message
    assert not target.exists()


def test_from_file_opens_nothing(tmp_path: Path) -> None:
    target = tmp_path / "grown"
    made = plan_of(one_node("aten.relu", self=Ref("x")))
    made.save(tmp_path / "plan.json")
    call = f'aten.from_file(filename="{target}", shared=True, size=4)'
    data = json.loads((tmp_path / "plan.json").read_text())
    data["graph"] = [line.replace("aten.relu(self=%x)", call) for line in data["graph"]]
    assert any("from_file" in line for line in data["graph"])
    for trust in (False, True):
        assert "aten.from_file" in refused(written(tmp_path, data), trust)
    assert not target.exists()


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a constant of 10^9 elements": lambda data: line(data, "girih.constant(data=[1.0], size=[1000000000], dtype="
                                                     '"float32")', "float32[1000000000]"),
    "a size beyond 64 bits": lambda data: line(data, "aten.full(size=[4], fill_value=0)", f"float32[{10**30}]"),
    "a product of 2^63": lambda data: line(data, "aten.full(size=[4], fill_value=0)", f"float32[{2**31}, {2**32}]"),
    "zero times a lot": lambda data: line(data, "aten.full(size=[4], fill_value=0)", f"float32[0, {2**61}]"),
    "a negative size": lambda data: line(data, "aten.full(size=[4], fill_value=0)", "float32[-4]"),
    "a hundred dimensions": lambda data: line(data, "aten.full(size=[4], fill_value=0)",
                                              f"float32[{', '.join('1' * 100)}]"),
    "no dtype": lambda data: line(data, "aten.full(size=[4], fill_value=0)", "load[4]"),
    "another namespace": lambda data: line(data, "profiler.start(size=[4])", "float32[4]"),
    "a dunder": lambda data: line(data, "aten.__class__(size=[4])", "float32[4]"),
    "a module's insides": lambda data: line(data, "aten._ops(size=[4])", "float32[4]"),
    "dots": lambda data: line(data, "aten.mm.default.__globals__(size=[4])", "float32[4]"),
    "an argument that is code": lambda data: line(data, "aten.full(size=[4], __import__('os').system=1)", "float32[4]"),
    "deep brackets": lambda data: line(data, f"aten.full(size={'[' * 5000}{']' * 5000})", "float32[4]"),
    "a thousand mesh axes": lambda data: data["machine"]["levels"][0].update(axes=[2] * 1000),
    "forty mesh axes": lambda data: data["machine"]["levels"][0].update(axes=[2] * 40),
    "a million devices": lambda data: data["machine"]["levels"][0].update(axes=[1024, 1024]),
    "no device": lambda data: data["machine"]["levels"][0].update(axes=[0, 2]),
    "a negative axis": lambda data: data["machine"]["levels"][0].update(axes=[-2, -2]),
    "a dimension out of range": lambda data: data["layouts"].update({first(data): [7, 7]}),
    "a huge code": lambda data: data["layouts"].update({first(data): [10**40, -1]}),
    "coordinates out of range": lambda data: data["layouts"].update({first(data): [(1 << 12 + 40) - 1, -1]}),
    "shares of a layout that are negative": lambda data: data["layouts"].update({first(data): "S0[-7:3]·R"}),
    "shares of nothing": lambda data: data["layouts"].update({first(data): "S0[0:3]·R"}),
    "shares that are no numbers": lambda data: data["layouts"].update({first(data): "S0[a:b]·R"}),
    "huge shares": lambda data: data["layouts"].update({first(data): f"S0[{10**40}:1]·R"}),
    "too many shares": lambda data: data["layouts"].update({first(data): "S0[1:1:1]·R"}),
    "too few shares": lambda data: data["layouts"].update({first(data): "S0[1]·R"}),
    "a million shares": lambda data: data["layouts"].update({first(data): f"S0[{':'.join('1' * 10**6)}]·R"}),
    "shares that leave nothing": lambda data: data["divisions"].__setitem__(0, "S0[1:1048575]·R"),
    "a layout of no text": lambda data: data["layouts"].update({first(data): "S0;R"}),
    "a layout of one axis": lambda data: data["layouts"].update({first(data): "S0"}),
    "a division of three axes": lambda data: data["divisions"].__setitem__(0, "R·R·R"),
    "a nested layout": lambda data: data["layouts"].update({first(data): [[0], -1]}),
    "an index variable out of range": lambda data: data["divisions"].__setitem__(0, [9, 9]),
    "a layout of nothing": lambda data: data["layouts"].update({"nothing": [-1, -1]}),
    "an unknown key": lambda data: data.update(run="rm"),
    "another version": lambda data: data.update({"girih plan": 1}),
    "a number too many": lambda data: data["initial"].__setitem__("last.bias", ["normal", 0, 1, 2]),
}  # fmt: skip


def line(data: dict[str, Any], call: str, kind: str) -> None:
    """One more node."""
    data["graph"].insert(-1, f"  %hostile: {kind} = {call}  # forward")
    data["layouts"]["hostile"] = "R·R"
    data["divisions"].append("R·R")


def first(data: dict[str, Any]) -> str:
    return str(next(iter(data["layouts"])))


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_plans_are_refused_when_they_are_loaded(data: dict[str, Any], what: str, tmp_path: Path) -> None:
    HOSTILE[what](data)
    refused(written(tmp_path, data))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("memory", "lots", "memory: expected int | null, got str, there is 'lots'"),
        ("objective", "joy", "objective: invalid enum value 'joy', there is 'joy'"),
        ("divisions", [[0.5, 1]], "divisions[0][0]: expected int, got float, there is 0.5"),
        ("ranges", {"0": -1}, "ranges[...]: expected int >= 1"),
        ("overlap", {"fetch": -1}, "overlap.fetch: expected int >= 0, there is -1"),
        ("scalars", [], "scalars: expected object, got array, there is []"),
    ],
)
def test_a_refusal_says_where_what_and_what_was_expected(
    data: dict[str, Any], key: str, value: Any, message: str, tmp_path: Path
) -> None:
    assert refused(written(tmp_path, {**data, key: value})).endswith(f"is damaged: {message}")


def test_a_missing_key_is_named(data: dict[str, Any], tmp_path: Path) -> None:
    del data["machine"]["device"]["launch_seconds"]
    assert "machine.device: object missing required field launch_seconds" in refused(written(tmp_path, data))


def test_a_small_file_that_inflates_without_end_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    start = b'{"girih plan": 2, "model": "'
    path.write_bytes(gzip.compress(start + b"a" * (plan_file.MOST_TEXT + 10_000_000), compresslevel=1))
    began = time.process_time()
    assert "the most that a plan can have" in refused(path)
    assert time.process_time() - began < 5  # inflating the bound alone takes a tenth of that


@pytest.mark.parametrize("cut", [3, 12, 200, -9, -5, -1])
def test_a_gzip_that_ends_early(text: str, cut: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.json.gz"
    path.write_bytes(gzip.compress(text.encode())[:cut])
    assert "cannot be inflated" in refused(path)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x1f\x8b", b"\xff\xfe\x00", b"null", b"[]", b"3", b'{"girih plan": "2"}', b"{}", b'{"girih plan": null}',
     b"[" * 100_000, b'{"a":' * 100_000, b"\x00" * 100],
)  # fmt: skip
def test_what_is_no_plan_at_all(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_bytes(raw)
    refused(path)


def test_a_folder_is_no_plan(tmp_path: Path) -> None:
    assert "cannot be read: Is a directory" in refused(tmp_path)


# ------------------------------------------------------------------------------------------- starting


def test_a_plan_larger_than_the_host_is_refused_before_anything_starts(tmp_path: Path) -> None:
    graph = parse_graph(
        'graph\n  input %x: float32[1000000000000]  batch  "0"\n'
        "  %y: float32[1000000000000] = aten.relu(self=%x)  # forward\n  return %y result"
    )
    plan_of(graph).save(tmp_path / "plan.json")
    loaded = girih.load(tmp_path / "plan.json")
    with pytest.raises(girih.PlanError, match=r"the plan needs 8\.00 TB of memory .* this host has .* start it on"):
        loaded.start(backend="threads")


@pytest.mark.parametrize(
    ("operator", "arguments", "message"),
    [
        ("aten.native_dropout", {"input": Ref("x"), "p": "half", "train": True}, "does not take these arguments"),
        ("aten.frac", {"self": Ref("x"), "more": 1}, "does not take these arguments"),
        ("aten.frac", {}, "does not take these arguments"),
        ("aten.frac", {"self": 3.0}, "does not take these arguments"),
        ("aten.argmax", {"self": Ref("x")}, r"makes y int64\[\], and the plan says float32\[4\]"),
        ("aten.rand", {"size": (10**12,)}, r"makes y float32\[1000000000000\], and the plan says"),
        ("girih.sort_indices", {"input": Ref("x"), "dim": "0"}, "girih.sort_indices does not take these arguments"),
        ("girih.sort_indices", {"input": Ref("x"), "dim": 0, "descending": 3}, "takes descending as bool"),
        ("girih.sort_indices", {"input": Ref("x")}, "does not take these arguments: missing a required argument"),
    ],
)
def test_what_an_operator_does_not_take_is_told_before_workers_start(
    operator: str, arguments: dict[str, Any], message: str
) -> None:
    graph = one_node(operator, **arguments)
    made = plan_of(one_node("aten.relu", self=Ref("x")))
    strategy = Strategy.of_texts(made.machine.mesh, ("R",), dict.fromkeys(graph.values, "R"))
    whole = made.but(graph=graph, strategy=strategy, file="some.json")
    with pytest.raises(girih.PlanError, match=message):
        whole.start(backend="threads")


def test_a_plan_of_version_2_is_read(text: str, tmp_path: Path) -> None:
    """Its layouts and divisions are the codes of solvers."""
    now = girih.load(written(tmp_path, json.loads(text)))
    data = {**json.loads(text), "girih plan": 2}
    data["layouts"] = {name: layout.codes for name, layout in now.strategy.layouts.items()}
    data["divisions"] = [division.codes for division in now.strategy.divisions]
    assert girih.load(written(tmp_path, data)).strategy == now.strategy


def test_an_undescribed_operator_runs_whole_from_a_file(tmp_path: Path) -> None:
    graph = one_node("aten.special_i0e", self=Ref("x"))
    plan_of(graph).save(tmp_path / "plan.json")
    x = torch.linspace(0, 3, 4)
    with girih.load(tmp_path / "plan.json").start(backend="threads") as run:
        (y,) = run.step(x)
    torch.testing.assert_close(y, torch.special.i0e(x))


# ------------------------------------------------------------------------------------------- trust


def test_a_function_travels_by_its_import_name(tmp_path: Path) -> None:
    graph = one_node("girih.map", tensors=(Ref("x"),), function=text_of(double), kind="float32")
    path = tmp_path / "plan.json"
    plan_of(graph).save(path)
    assert f"{__name__}:double" in path.read_text()
    assert "|" not in path.read_text()
    assert "trust=True" in refused(path)
    x = torch.arange(4.0)
    with girih.load(path, trust=True).start(backend="threads") as run:
        (y,) = run.step(x)
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0]
    again = tmp_path / "again.json"
    girih.load(path, trust=True).save(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_function_without_a_name_is_refused_when_the_plan_is_saved(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    graph = one_node("girih.map", tensors=(Ref("x"),), function=text_of(lambda x: x + 1), kind="float32")
    made = plan_of(graph)
    with pytest.raises(girih.PlanError, match=r"cannot be saved: .*lambda.* move it to the top of a module"):
        made.save(tmp_path / "plan.json")
    assert not list(tmp_path.iterdir())
    with made.start(backend="threads") as run:  # in this process it goes on working
        assert run.step(torch.zeros(4))[0].tolist() == [1.0] * 4


def test_a_function_that_is_not_there_is_told_when_it_is_loaded(tmp_path: Path) -> None:
    graph = one_node("girih.map", tensors=(Ref("x"),), function=text_of(double), kind="float32")
    path = tmp_path / "plan.json"
    plan_of(graph).save(path)
    path.write_text(path.read_text().replace(":double", ":gone"))
    assert "there is no function" in refused(path, trust=True)


def test_an_operator_of_the_users_own_needs_trust_in_files_alone(tmp_path: Path) -> None:
    @torch.library.custom_op("girihtests::thrice", mutates_args=())
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    thrice.register_fake(torch.empty_like)
    made = plan_of(one_node("girihtests.thrice", x=Ref("x")))
    check(made)
    path = tmp_path / "plan.json"
    made.save(path)
    assert "girihtests.thrice" in refused(path)
    for plan in (made, girih.load(path, trust=True)):
        with plan.start(backend="threads") as run:
            assert run.step(torch.ones(4))[0].tolist() == [3.0] * 4
    path.write_text(path.read_text().replace("girihtests.thrice", "girihtests.absent"))
    assert "no operator 'girihtests.absent'" in refused(path, trust=True)


def test_a_plan_that_is_changed_after_loading_is_checked_when_it_starts(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    loaded = girih.load(tmp_path / "plan.json")
    nodes = (replace(loaded.graph.nodes[0], operator="profiler.start"), *loaded.graph.nodes[1:])
    with pytest.raises(girih.PlanError, match=r"profiler\.start"):
        replace(loaded, graph=replace(loaded.graph, nodes=nodes)).start(backend="threads")


def test_array_programs_send_lambdas_to_their_own_workers() -> None:
    pytest.importorskip("cloudpickle")
    import girih.array as gnp

    with girih.cluster(workers=2, backend="threads"):
        x = gnp.arange(10.0)
        assert np.array_equal(np.asarray(gnp.map(lambda part: part + 1, x)), np.arange(10.0) + 1)


# ------------------------------------------------------------------------------------------- saving


def test_a_save_that_fails_says_so_and_leaves_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    made = girih.load(path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(girih.PlanError, match="cannot be written"):
        made.save(tmp_path / "folder")
    with pytest.raises(girih.PlanError, match="cannot be written"):
        made.save(path / "below")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "plan.json"]


def test_numbers_that_json_does_not_have_come_back(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    made = girih.load(tmp_path / "plan.json")
    endless = replace(made, certificate=replace(made.certificate, bound=float("-inf")))
    endless.save(tmp_path / "again.json")
    assert girih.load(tmp_path / "again.json").certificate.bound == float("-inf")
    json.loads((tmp_path / "again.json").read_text(), parse_constant=pytest.fail)


def test_loading_needs_no_torch(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    code = "import sys, girih; girih.load(sys.argv[1]); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plan.json")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_mutator_covers_every_field(data: dict[str, Any], text: str) -> None:
    mutator = fuzz_plans.Mutator(text, 0)
    assert {place[0] for place in mutator.ways} == set(data)
    assert mutator.mutant(7) == fuzz_plans.Mutator(text, 0).mutant(7)
    assert copy.deepcopy(data) == mutator.data


@pytest.mark.parametrize(
    "model", ["mlp-9999999-9999999@8", "gpt-tiny@99999999", "gpt-tiny@x", "nothing", "os.py:system"]
)
def test_the_model_that_a_file_names_does_not_decide_how_much_data_is_made(
    text: str, model: str, tmp_path: Path
) -> None:
    from girih.cli.programs import random_batch

    data = json.loads(text)
    data["model"] = model
    loaded = girih.load(written(tmp_path, data))
    assert {path: tuple(item.shape) for path, item in random_batch(loaded, 0).items()} == {"0": (8,), "1": (8,)}


def test_calibrating_with_a_plan_larger_than_the_host_is_refused(tmp_path: Path, capsys: Any) -> None:
    from girih.cli.main import main

    graph = parse_graph(
        'graph\n  input %x: float32[1000000000000]  batch  "0"\n'
        "  %y: float32[1000000000000] = aten.relu(self=%x)  # forward\n  return %y result"
    )
    plan_of(graph).save(tmp_path / "plan.json")
    store = ["--store", str(tmp_path / "costs.sqlite")]
    assert main(["calibrate", str(tmp_path / "plan.json"), "--backend", "threads", *store]) == 2
    assert "the plan needs 8.00 TB of memory" in capsys.readouterr().err


def test_trust_on_the_command_line(tmp_path: Path, capsys: Any) -> None:
    from girih.cli.main import main

    graph = one_node("girih.map", tensors=(Ref("x"),), function=text_of(double), kind="float32")
    path = str(tmp_path / "plan.json")
    plan_of(graph).save(path)
    for command in (["show", path], ["compare", path], ["run", path, "--steps", "1", "--backend", "threads"]):
        assert main(command) == 2
        assert "trust=True" in capsys.readouterr().err
        assert main([*command, "--trust"]) == 0
