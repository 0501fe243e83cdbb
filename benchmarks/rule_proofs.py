"""Verdicts on the rules of a file: proved for all shapes, refuted with tensors, or open.

What: every rule of `--rules FILE` (text, or TASO's protobuf), by default the 43 published properties of TASO's
Table 2.2 and six of them where they are false. How: `girih.rewrite.prove.prove`, proofs replayed by the checker within
the time, which is the processor's: a busy machine proves as much. Against: TASO, which says that Z3 verified its 743
substitutions in less than ten minutes (§2.9.6), so 808 seconds for 1,000. Floors: under 30 seconds for 1,000 rules;
nothing open that has at most four operators a side.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.common import Benchmark, Report, Row, clock, note, since

FLOOR = 30.0
TASO = 600 / 743 * 1000
SMALL = 4
QUICK = 49


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rules", type=Path, help="a file of rules (default: TASO's properties)")


def measure(options: argparse.Namespace) -> Report:
    from girih.rewrite.prove import Open, prove
    from girih.rewrite.prove.verdict import Verdict
    from girih.rewrite.rules.rule import Rule, RuleError, operators
    from girih.workshop.files import PROPERTIES, read_rules

    def verdict_on(rule: Rule) -> Verdict:
        try:
            return prove(rule)
        except RuleError as error:  # no shapes fit
            return Open(rule, str(error))

    files = [options.rules] if options.rules else [PROPERTIES / "taso.txt", PROPERTIES / "false.txt"]
    rows: list[Row] = []
    misses: list[str] = []
    prove(read_rules(PROPERTIES / "taso.txt")[20])  # what PyTorch does only once
    for file in files:
        rules = read_rules(file)[: QUICK if options.quick else None]
        began = clock()
        verdicts = [verdict_on(rule) for rule in rules]
        seconds = since(began).cpu
        row: Row = {"file": file.name, "rules": len(rules)}
        row |= {word: sum(item.word == word for item in verdicts) for word in ("proved", "refuted", "open")}
        each = 1000 * seconds / max(1, len(rules))
        row |= {"seconds": seconds, "for 1,000": each, "× TASO": each / TASO}
        note(row)
        rows.append(row)
        for item in verdicts:
            most = max(operators(item.rule.source), operators(item.rule.target))
            if isinstance(item, Open) and most <= SMALL:
                misses.append(f"open: {item.rule} ({item.reason[:200]})")
    total, count = sum(row["seconds"] for row in rows), sum(row["rules"] for row in rows)
    each = 1000 * total / max(1, count)
    if each > options.floor:
        misses.append(f"{each:.1f} seconds for 1,000 rules")
    proved, refuted, left = (sum(row[word] for row in rows) for word in ("proved", "refuted", "open"))
    return Report(
        "Proofs of rules",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        f"{count} rules: {proved} proved, {refuted} refuted, {left} open, {each:.1f} s for 1,000 "
        f"(TASO with Z3: {TASO:.0f} s)",
        tuple(misses[:20]),
    )


BENCHMARK = Benchmark("rule_proofs", __doc__ or "", measure, FLOOR, "most seconds for 1,000 rules", options)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
