"""Pipelines in the order of GPipe, one forward, one backward, and interleaved: peak memory, and simulated seconds.

What: a GPT of eight layers cut into stages on 4 devices, its batch into 8 and 16 micro-batches; the same stages in both
orders (`--search pipeline`, `pipeline-1f1b`), and with two runs of layers on each (`pipeline-1f1b:chunks=2`). How:
peaks are the liveness of storages, exact (`girih.program.life.accounts`); seconds are simulated by the machine's data
sheet; the least that a device waits is the step without the work of the busiest one. Against: GPipe (Huang et al.
2019), PipeDream-flush (Narayanan et al. 2021, §2.2: of m micro-batches the first of p stages holds p, and the bubble is
the same), and Megatron-LM's interleaved order (Narayanan et al., SC 2021, §2.2: the bubble is half as long). Floors:
with m micro-batches the largest activations of a device, state aside, are at most `--floor` of GPipe's for m = 4 p,
half as far from 1 for m = 2 p; the step takes at most 2 % longer; interleaved stages wait at most three quarters as
long.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from benchmarks.common import Benchmark, Report, Row, note, training_step

MACHINE, STAGES = "local:4", 4
LONGER, WAITING = 1.02, 0.75
COUNTS = (8, 16)
SIZES = {"batch": 32, "layers": 8, "width": 512, "heads": 8, "sequence": 128, "vocabulary": 512}


def measure(options: argparse.Namespace) -> Report:
    import girih

    rows: list[Row] = []
    misses = []
    for count in COUNTS[:1] if options.quick else COUNTS:
        step, batch = training_step("gpt-tiny", **({"batch": 32} if options.quick else SIZES))
        cut = replace(step, micro_batches=count)
        plans = [
            girih.plan(cut, batch, machine=MACHINE, search=search, objective="seconds", compare=())
            for search in ("pipeline", "pipeline-1f1b", "pipeline-1f1b:chunks=2")
        ]
        peaks = [plan.peak for plan in plans]
        held = [max(use.peak - use.state for use in plan.memory_by_device) for plan in plans]
        timelines = [plan.predict().timeline for plan in plans]
        took = [timeline.seconds for timeline in timelines]
        waits = [timeline.seconds - float(timeline.busy().max()) for timeline in timelines]
        row: Row = {
            "micro-batches": count,
            "gpipe peak": peaks[0],
            "1f1b peak": peaks[1],
            "peak ratio": round(peaks[1] / peaks[0], 3),
            "activations ratio": round(held[1] / held[0], 3),
            "gpipe seconds": round(took[0], 6),
            "1f1b seconds": round(took[1], 6),
            "seconds ratio": round(took[1] / took[0], 4),
            "interleaved peak": peaks[2],
            "interleaved seconds": round(took[2], 6),
            "waiting ratio": round(waits[2] / waits[1], 3),
        }
        rows.append(row)
        note(row)
        allowed = options.floor if count >= 4 * STAGES else (1 + options.floor) / 2
        if not options.quick and held[1] > allowed * held[0]:
            misses.append(f"{count} micro-batches: activations {held[1] / held[0]:.2f} of GPipe's, above {allowed:.2f}")
        if not options.quick and waits[2] > WAITING * waits[1]:
            misses.append(f"{count} micro-batches: interleaved stages wait {waits[2] / waits[1]:.2f} of what 1F1B's do")
        if peaks[1] > peaks[0] or took[1] > LONGER * took[0]:
            misses.append(
                f"{count} micro-batches: peak {peaks[1] / peaks[0]:.2f}, seconds {took[1] / took[0]:.2f} of GPipe's"
            )
    last = rows[-1]
    return Report(
        f"Stages on {STAGES} devices: one forward, one backward beside GPipe",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"with {last['micro-batches']} micro-batches 1F1B's peak is {last['peak ratio']} of GPipe's, its step "
        f"{last['seconds ratio']}; interleaved stages wait {last['waiting ratio']} of what 1F1B's do",
        tuple(misses),
    )


BENCHMARK = Benchmark(
    "pipelines",
    __doc__ or "",
    measure,
    0.5,
    "largest share of GPipe's activations that 1F1B may hold with four micro-batches for each stage",
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
