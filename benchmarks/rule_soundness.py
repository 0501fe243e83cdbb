"""Proved rules on random shapes, attributes and tensors: both sides computed by PyTorch are the same.

What: every rule that girih uses, and the published properties of TASO's Table 2.2; or those of `--rules FILE`, if they
are proved. Rules that split an input speak of one that was joined. How: 10,000 random choices of sizes, strides,
paddings, groups and dilations (up to 6 each, of which the left side takes all) and tensors of whole numbers, in
float64, so that all but quotients are exact. A right side that PyTorch refuses is counted apart: nothing is replaced
there. Z3, which knows nothing of the proofs, is asked for numbers that make the sides differ for three small choices of
sizes and attributes. Against: TASO, which tests candidates on one case. Floor: none wrong, by either.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note

CASES, QUICK = 10_000, 20
ATTEMPTS = 40  # draws for each case, of which most are too large or do not fit together
MOST = 6


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rules", type=Path, help="a file of rules (default: what girih uses, and TASO's)")
    parser.add_argument("--cases", type=int, default=0, help=f"for each rule (default {CASES}, {QUICK} with --quick)")


def measure(options: argparse.Namespace) -> Report:
    import torch

    from girih.rewrite.prove import Proved, prove
    from girih.rewrite.prove.refutation.instances import InvalidError, difference, instances
    from girih.rewrite.rules.further import arrays, inference, training
    from girih.rewrite.rules.parts import with_parts
    from girih.rewrite.rules.shipped import shipped
    from girih.workshop.files import PROPERTIES, read_rules
    from girih.workshop.solver import second_verdict

    wanted = options.cases or (QUICK if options.quick else CASES)
    rows: list[Row] = []
    misses: list[str] = []
    torch.set_num_threads(1)
    used = (*inference(), *training(), *arrays(), *shipped())
    rules = read_rules(options.rules) if options.rules else (*read_rules(PROPERTIES / "taso.txt"), *used)
    for number, rule in enumerate(map(with_parts, rules)):
        verdict = prove(rule)
        if not isinstance(verdict, Proved):
            misses += [] if options.rules else [f"not proved: {rule}"]
            continue
        row: Row = {"rule": rule.name or str(rule), "cases": 0, "refused": 0, "wrong": 0}
        second = second_verdict(verdict.rule, seconds=60)
        row["Z3"] = second.word
        if second.refuted is not None:
            misses.append(f"{rule}:{second.text}")
        for item in instances(verdict.rule, np.random.default_rng(number), wanted * ATTEMPTS, MOST):
            if row["cases"] == wanted:
                break
            try:
                wrong = difference(verdict.rule, item)
            except InvalidError:
                continue
            if wrong is not None and not wrong.computable:
                row["refused"] += 1
                continue
            row["cases"] += 1
            if wrong is not None:
                row["wrong"] += 1
                misses.append(f"{rule}: {dict(item.symbols)}")
        if row["cases"] < wanted:
            misses.append(f"{rule}: only {row['cases']} of {wanted} cases fit")
        note(row)
        rows.append(row)
    cases, wrong = (sum(row[key] for row in rows) for key in ("cases", "wrong"))
    agreed = sum(row["Z3"] == "agrees" for row in rows)
    if wrong > options.floor:
        misses.insert(0, f"{wrong} cases are wrong")
    return Report(
        "Proved rules on random tensors",
        (("rule", "rule"), ("cases", "cases"), ("refused", "refused"), ("wrong", "wrong"), ("Z3", "Z3")),
        tuple(rows),
        f"{len(rows)} proved rules, {cases} cases: {wrong} wrong; Z3 agrees with {agreed}",
        tuple(misses[:20]),
    )


BENCHMARK = Benchmark("rule_soundness", __doc__ or "", measure, 0.0, "how many may be wrong", options)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
