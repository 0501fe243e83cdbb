"""Every benchmark in its quick version: it measures, prints its verdict last, and keeps its floor or says so."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import forked_programs
import pytest
from counts import LONG, but_long

from benchmarks import loops_mf
from benchmarks.__main__ import NAMES
from benchmarks.common import Benchmark, Report

ROOT = Path(__file__).resolve().parents[2]

# A floor that nothing can keep: seconds and ratios below 0, and shares above 1.
IMPOSSIBLE = {"operator_coverage": "1.01"}


def benchmark(name: str) -> Benchmark:
    found = importlib.import_module(f"benchmarks.{name}").BENCHMARK
    assert isinstance(found, Benchmark)
    assert found.name == name
    return found


# Their floors are times, which decide no test: a loaded machine, or kernels compiled for the first time, would fail it.
TIMED = {
    "arrays_dask", "arrays_faults", "arrays_kernels", "arrays_numpy", "arrays_outofcore", "arrays_overhead",
    "arrays_scripts",
    "arrays_straggler",
    "blocked_layouts", "first_use", "gnn_epoch", "gnn_partition", "gnn_scaling", "joint_runs",
    "loops_lda", "loops_prefetch", "many_devices", "partition_search", "planning_time", "predict_time",
    "rewrite_search", "rules", "simulate_speed", "slow_links", "small_optimum", "tables_bandwidth",
    "tables_throughput", "taso_table", "tiling_als", "tiling_random", "transports", "worker_overhead",
}  # fmt: skip

# Those whose quick forms take as long as a hundred tests are run by `make test-long`. `make test` looks at what they
# measure in tests of their own: the first use in test_first_use.py, slow links in run/engines/test_run_ranks.py and
# loop/test_hosts.py, memory in search/memory, published/memory and run/worker/test_run_memory.py, bytes in
# run/worker and run/engines, rules in workshop/generate, rewrite/prove and rewrite/rules, optimised models in
# inference, predictions in cost and simulate, plans by simulated time in search, the speed of the simulator where it is
# the work that is counted, in simulate, the optimum in published/test_optimum.py, plans under a limit in
# partition/test_memory_constrained.py, searches in partition/test_searches.py, what papers report in
# published/divisions, pipelines in program/test_schedule.py and published/divisions/test_pipeline.py, the sizes of
# models in models/test_model_sizes.py, training in plans/test_plans.py and run/training, transports in run/transport,
# programs of arrays in array and examples/test_array_examples.py, their memory in array/session/test_limits.py and
# test_block_memory.py, tables in loop/shared_tables, dependences in loop/capture/test_loop_analysis.py, topics, trees
# in loop/apps, kills in loop/test_loop_faults.py, loop/shared_tables/test_run_tables_faults.py and
# store/test_store_kills.py, graph networks in gnn, loops and batches in run/training; each case of `promises` in the
# tests of what it promises.
LONG_ONES = {
    "array_api", "arrays_dask", "arrays_kernels", "arrays_memory", "arrays_numpy", "arrays_outofcore",
    "capped_planning", "capped_quality",
    "divided_stages",
    "export_dtensor", "export_fx",
    "first_use", "gnn_accuracy", "gnn_epoch", "gnn_large", "gnn_partition", "gnn_scaling", "hf_models",
    "joint_grid", "joint_models", "joint_runs", "joint_small", "loops_analysis",
    "loops_faults", "loops_gbt", "loops_lda", "memory_caps", "memory_tables", "optimize_cpu",
    "paper_speedups", "partition_search", "pipelines", "predict_bytes", "predict_time", "process_memory", "promises",
    "rule_soundness", "rules", "same_training", "simulate_speed", "slow_links", "small_optimum", "soap_search",
    "swap_inference", "swap_search", "swap_throughput", "tables_bandwidth", "tables_throughput", "taso_table",
    "transports", "weight_sizes", "worker_memory",
}  # fmt: skip


def test_every_benchmark_is_there() -> None:
    assert all(callable(benchmark(name).measure) for name in NAMES)
    assert set(NAMES) > LONG_ONES


@pytest.mark.parametrize("name", but_long(NAMES, LONG_ONES))
def test_quick_benchmarks_keep_their_floors(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = benchmark(name).main(["--quick"] if name in TIMED else ["--quick", "--check"])
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert lines[0].startswith(f"{name} (quick): ")
    if name in TIMED:
        assert lines[-1].startswith((f"PASS {name}: ", f"FAIL {name}: "))
        assert code == 0
        return
    assert lines[-1].startswith(f"PASS {name}: ")
    assert code == 0


@pytest.mark.parametrize("name", but_long(["planning_time", "operator_coverage"], {"planning_time"}))
def test_a_missed_floor_fails_only_when_checked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--floor", IMPOSSIBLE.get(name, "-1")]
    assert benchmark(name).main([*arguments, "--check"]) == 1
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith(f"FAIL {name}: ")


@pytest.mark.skipif(not LONG, reason="plans by simulated time are tested in tests/search")
def test_many_devices_by_simulated_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark("many_devices").main(["--quick", "--objective", "time", "--seconds", "2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["devices"] == 64
    assert row["judged"] >= 1
    assert 0 < row["bound"] <= row["cost"]


def test_without_check_a_missed_floor_is_only_said(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Report("title", (("case", "case"),), ({"case": "a"},), "all well", ("a took 3 s",))
    made = Benchmark("example", "about", lambda options: measured, 1.0, "seconds")
    assert made.main([]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == "FAIL example: a took 3 s"
    assert made.main(["--check"]) == 1


def test_a_quick_form_has_a_floor_of_its_own() -> None:
    asked = []

    def measure(options: argparse.Namespace) -> Report:
        asked.append(options.floor)
        return Report("title", (("case", "case"),), (), "all well")

    made = Benchmark("example", "about", measure, 2.0, "times as fast", quick_floor=1.5)
    for arguments in ([], ["--quick"], ["--quick", "--floor", "0.5"]):
        made.main(arguments)
    assert asked == [2.0, 1.5, 0.5]


def test_a_peer_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "libmf" else name)
    assert loops_mf.peers_of(loops_mf.EXTRAS) == (
        {"ALS"},
        ("LIBMF was not measured: libmf is not installed; get it by `pip install 'girih[benchmarks-compiled]'`",),
    )
    assert loops_mf.peers_of(()) == (frozenset(), ())


def test_a_benchmark_that_breaks_down_has_a_verdict_too(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(options: object) -> Report:
        raise RuntimeError("no such device")

    assert Benchmark("example", "about", measure, 1.0, "seconds").main([]) == 1
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == "FAIL example: RuntimeError: no such device"


def test_json_has_rows_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Report("title", (("case", "case"),), ({"case": "a", "seconds": 3.0},), "all well")
    assert Benchmark("example", "about", lambda options: measured, 1.0, "seconds").main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == [{"case": "a", "seconds": 3.0}]
    assert found["verdict"] == "PASS example: all well"
    assert {"processor", "cores", "load", "python", "torch"} <= set(found)


def test_the_command_line_runs_those_that_are_named() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--check", "rule_proofs"]
    done = forked_programs.run(command, timeout=120, folder=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS rule_proofs: ")
    assert len(done.stdout.splitlines()) == 1
    unknown = forked_programs.run([*command[:3], "nothing"], timeout=60, folder=ROOT)
    assert unknown.returncode == 2
    assert "no benchmark nothing" in unknown.stderr
