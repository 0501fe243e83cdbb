"""Run all benchmarks, each in a process of its own, and print their verdicts: `python -m benchmarks [NAME …]`.

`--check`, `--quick` go to each; `--output FOLDER` keeps what each printed as FOLDER/NAME.txt. Under `--check` the exit
code is 1 if any floor is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

NAMES = (
    "promises",
    "first_use",
    "weight_sizes",
    "operator_coverage",
    "partition_search",
    "planning_time",
    "many_devices",
    "same_training",
    "worker_memory",
    "worker_overhead",
    "transports",
    "partition_quality",
    "whole_space",
    "whole_space_random",
    "transformer_reductions",
    "ring_attention",
    "divided_stages",
    "capped_quality",
    "capped_planning",
    "joint_small",
    "joint_models",
    "joint_grid",
    "joint_runs",
    "simulate_speed",
    "predict_time",
    "predict_bytes",
    "rule_proofs",
    "rules",
    "rule_soundness",
    "memory_random",
    "memory_places",
    "swap_throughput",
    "swap_inference",
    "swap_search",
    "memory_caps",
    "gpu",
    "gpu_rates",
    "memory_gpu",
    "memory_tables",
    "onnx_coverage",
    "export_fx",
    "export_dtensor",
    "optimize_cpu",
    "optimize_gpu",
    "blocked_layouts",
    "rewrite_search",
    "taso_table",
    "pipelines",
    "slow_links",
    "uneven_cuts",
    "soap_search",
    "small_optimum",
    "tiling_random",
    "tiling_als",
    "arrays_numpy",
    "arrays_overhead",
    "arrays_scripts",
    "arrays_kernels",
    "arrays_dask",
    "arrays_bytes",
    "arrays_memory",
    "arrays_outofcore",
    "arrays_faults",
    "arrays_straggler",
    "paper_speedups",
    "array_api",
    "tables_ssp",
    "tables_throughput",
    "tables_bandwidth",
    "loops_faults",
    "loops_analysis",
    "loops_gbt",
    "loops_mf",
    "loops_lda",
    "loops_ordering",
    "loops_prefetch",
    "gnn_epoch",
    "gnn_accuracy",
    "gnn_large",
    "gnn_faults",
    "gnn_partition",
    "gnn_scaling",
    "gnn_memory",
    "hf_models",
    "loop_habits",
    "process_memory",
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; by default all")
    parser.add_argument("--check", action="store_true", help="exit code 1 if any floor is missed")
    parser.add_argument("--quick", action="store_true", help="small models, seconds each")
    parser.add_argument("--output", type=Path, help="a folder for what each printed")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(NAMES)):
        parser.error(f"no benchmark {', '.join(unknown)}: there are {', '.join(NAMES)}")
    flags = [flag for flag, on in (("--check", options.check), ("--quick", options.quick)) if on]
    root = Path(__file__).resolve().parent.parent
    failed = False
    for name in options.names or NAMES:
        command = [sys.executable, "-m", f"benchmarks.{name}", *flags]
        done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True)
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
            (options.output / f"{name}.txt").write_text(done.stdout, encoding="utf-8")
        lines = done.stdout.rstrip().splitlines()
        verdict = lines[-1] if lines else ""
        if not verdict.startswith(("PASS ", "FAIL ")):
            verdict = f"FAIL {name}: ended with code {done.returncode} and no verdict"
        print(verdict, flush=True)
        failed |= done.returncode != 0 or not verdict.startswith("PASS ")
    return 1 if failed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
