"""`girih rewrite …`: each action is a function from parsed options to an exit code."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from girih.api import Plan, load
from girih.cli.terminal import BadInputError, clear_errors
from girih.machine.units import format_seconds
from girih.plans.rewritten import prove_all
from girih.plans.rewritten import verdict as verdict_on


def explained(item: Plan) -> list[str]:
    """How a plan's graph was rewritten, as lines: each rule, how often, what it saved, and its proof."""
    if not item.rewrites:
        return ["the plan's graph is as it was captured: no rule was applied"]
    verdicts = prove_all(item.rewrites)
    device = item.machine.device.name
    lines = [f"{len(item.rewrites)} replacements by {len(verdicts)} rules; seconds of one {device} by its data sheet"]
    for text, judged in verdicts.items():
        steps = [step for step in item.rewrites if step.rule == text]
        saved = sum(step.before - step.cost for step in steps)
        lines.append(f"{len(steps)} × {text}")
        lines.append(
            f"  {format_seconds(abs(saved))} {'less' if saved >= 0 else 'more'}; made anew: "
            + "; ".join(", ".join(step.at) for step in steps[:3])
            + ("; …" if len(steps) > 3 else "")
        )
        lines.append(f"  {judged.word}:")
        lines += [f"  {line}" for line in judged.text.splitlines()]
    return lines


def explain(options: argparse.Namespace) -> int:
    """Prints by which rules a plan's graph was rewritten, with their proofs."""
    with clear_errors():
        plans = [load(path) for path in options.rules]
    for item in plans:
        if options.json:
            rows = [{**vars(step), "verdict": verdict_on(step.rule).word} for step in item.rewrites]
            print(json.dumps({"plan": item.file, "rewrites": rows}))
        else:
            print("\n".join(explained(item)))
    return 0


def prove(options: argparse.Namespace) -> int:
    """Judges rules, and prints of each its proof, or the tensors that refute it. 1 if any is not proved."""
    from girih.rewrite.prove import prove as judge
    from girih.rewrite.prove.files import read_rule, read_rules
    from girih.rewrite.prove.verdict import Open, Proved
    from girih.rewrite.rules.rule import RuleError

    try:
        rules = [
            rule for text in options.rules for rule in ([read_rule(text)] if "==" in text else read_rules(Path(text)))
        ]
        verdicts = [judge(rule) for rule in rules]
    except RuleError as error:
        raise BadInputError(str(error)) from error
    if not verdicts:
        raise BadInputError("expected a rule, as 'mm(a, mm(b, c)) == mm(mm(a, b), c)', or a file of rules")
    for verdict in verdicts:
        if options.json:
            print(json.dumps({"rule": str(verdict.rule), "verdict": verdict.word, "text": verdict.text}))
            continue
        print(f"{verdict.word}: {verdict.rule}")
        if len(verdicts) == 1 or not isinstance(verdict, Proved):
            print(verdict.text)
    counts = {word: sum(item.word == word for item in verdicts) for word in ("proved", "refuted", "open")}
    if len(verdicts) > 1 and not options.json:
        print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(any(isinstance(item, Open) or item.word == "refuted" for item in verdicts))
