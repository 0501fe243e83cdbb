"""`girih rewrite …`: each action is a function from parsed options to an exit code."""

from __future__ import annotations

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from girih.api import Plan, load
from girih.cli.terminal import BadInputError, TerminalProgress, check_output, clear_errors, print_rows
from girih.host import cores_here
from girih.machine.units import format_seconds
from girih.plans.rewritten import prove_all
from girih.plans.rewritten import verdict as verdict_of

if TYPE_CHECKING:
    from girih.rewrite.rules.rule import Rule
    from girih.workshop.solver import Second

PUBLISHED = ("28744", "17346", "743")
"""TASO's Table 2.3, for 4 operators."""


def explained(item: Plan) -> list[str]:
    """How a plan's graph was rewritten, as lines: each rule, how often, what it saved, and its proof."""
    rewrites = item.choice.rewrites
    if not rewrites:
        return ["the plan's graph is as it was captured: no rule was applied"]
    verdicts = prove_all(rewrites)
    device = item.machine.device.name
    lines = [f"{len(rewrites)} replacements by {len(verdicts)} rules; seconds of one {device} by its data sheet"]
    for text, judged in verdicts.items():
        steps = [step for step in rewrites if step.rule == text]
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
    if options.z3:
        raise BadInputError("girih rewrite explain takes no --z3: that is for prove")
    if not options.rules:
        raise BadInputError("expected a plan, as girih plan --rewrite -o plan.json writes one")
    with clear_errors():
        plans = [load(path) for path in options.rules]
    for item in plans:
        if options.json:
            rows = [{**vars(step), "verdict": verdict_of(step.rule).word} for step in item.choice.rewrites]
            print(json.dumps({"plan": item.file, "rewrites": rows}))
        else:
            print("\n".join(explained(item)))
    return 0


def prove(options: argparse.Namespace) -> int:
    """Judges rules, and prints of each its proof, or the tensors that refute it. 1 if any is not proved, 2 if any is
    none, after all have been judged."""
    from girih.rewrite.prove import prove as judge
    from girih.rewrite.prove.verdict import Open, Proved
    from girih.rewrite.rules.rule import RuleError
    from girih.workshop.files import read_rule

    if options.output is not None:
        raise BadInputError(f"girih rewrite prove writes nothing, got -o {options.output[:60]!r}: that is for rules")
    if options.z3 and find_spec("z3") is None:
        raise BadInputError("--z3 needs Z3: pip install 'girih[proofs]'")
    try:
        rules = [rule for text in options.rules for rule in ([read_rule(text)] if "==" in text else _of_file(text))]
        verdicts, none = [], {}
        for rule in rules:
            try:
                verdicts.append(judge(rule))
            except RuleError as error:
                if len(rules) == 1:
                    raise
                none[rule] = str(error)
        second = {item.rule: _second(item.rule) for item in verdicts if options.z3 and item.word != "refuted"}
    except RuleError as error:
        raise BadInputError(str(error)) from error
    if not rules:
        raise BadInputError("expected a rule, as 'mm(a, mm(b, c)) == mm(mm(a, b), c)', or a file of rules")
    for verdict in verdicts:
        if options.json:
            row = {"rule": str(verdict.rule), "verdict": verdict.word, "text": verdict.text}
            also = {"z3": second[verdict.rule].word} if verdict.rule in second else {}
            print(json.dumps(row | also))
            continue
        print(f"{verdict.word}: {verdict.rule}")
        if len(rules) == 1 or not isinstance(verdict, Proved):
            print(verdict.text)
        if verdict.rule in second:
            print(second[verdict.rule].text)
    for rule, why in none.items():
        if options.json:
            print(json.dumps({"rule": str(rule), "verdict": "no rule", "text": why}))
        else:
            print(f"no rule: {rule}\n  {why}")
    counts = {word: sum(item.word == word for item in verdicts) for word in ("proved", "refuted", "open")}
    counts |= {"no rule": len(none)} if none else {}
    if len(rules) > 1 and not options.json:
        print(", ".join(f"{count} {word}" for word, count in counts.items()))
    if none:
        return 2
    wrong = any(isinstance(item, Open) or item.word == "refuted" for item in verdicts)
    return int(wrong or any(item.refuted is not None for item in second.values()))


def _of_file(text: str) -> tuple[Rule, ...]:
    from girih.workshop.files import read_rules

    if "(" in text and not os.path.exists(text):
        raise BadInputError(f"{text[:60]!r} is no rule, and no file: a rule has two sides, as 'mm(a, b) == mm(c, d)'")
    return read_rules(Path(text))


def _second(rule: Rule) -> Second:
    from girih.workshop.solver import second_verdict

    return second_verdict(rule)


def rules(options: argparse.Namespace) -> int:
    """Generates rules, proves them, and prints how many are left after each stage, then each of them. 0 if there are
    any."""
    from girih.rewrite.rules.rule import split_outside
    from girih.workshop.files import write_rules
    from girih.workshop.generate import Generation
    from girih.workshop.generate.vocabulary import TABLE

    if options.z3:
        raise BadInputError("girih rewrite rules takes no --z3: write the rules with -o, and have that file proved")
    if options.rules:
        raise BadInputError(f"girih rewrite rules generates rules; to judge those of {options.rules[0]}, say prove")
    check_output(options.output)
    names = [name.strip() for name in split_outside(options.operators or "table", ",") if name.strip()]
    if not names:
        raise BadInputError(f"--operators {options.operators!r} names none: expected names such as 'mm, relu, cat'")
    names = [one for name in names for one in (TABLE if name == "table" else (name,))]
    with clear_errors(), TerminalProgress() as progress:
        generation = Generation(tuple(names), options.size, options.limit or 0, processes=cores_here())
        found = generation.generate(progress)
    if options.output:
        head = f"Rules of up to {options.size} operators a side over {', '.join(names)}: generated and proved by girih."
        write_rules(Path(options.output), found.rules, head)
    if options.json:
        counts = [vars(item) for item in found.counts]
        listed = [{"rule": str(item.rule), "verdict": item.word} for item in found.verdicts]
        print(json.dumps({"counts": counts, "verdicts": listed, "rules": [str(rule) for rule in found.rules]}))
        return int(not found.rules)
    rows: list[tuple[str, ...]] = [
        ("operators", "terms", "equal", "after renaming", "after common subgraphs", "not implied by others")
    ]
    for item in found.counts:
        numbers = (item.size, item.terms, item.initial, item.renamed, item.unshared, item.unimplied)
        rows.append(tuple(map(str, numbers)))
    if options.size == 4:
        rows.append(("TASO, 4", "", *PUBLISHED, ""))
    print_rows(rows)
    words = {word: len(found.with_word(word)) for word in ("proved", "open")}
    false = sum(item.unproved for item in found.counts) - words["open"]
    print(f"{words['proved']} proved, and {len(found.joined)} of them once more with two results; {false} refuted, "
          f"{words['open']} open and never used")  # fmt: skip
    for rule in found.rules:
        print(rule)
    for verdict in found.with_word("open"):
        print(f"open: {verdict.rule}")
    if options.output:
        print(f"written to {options.output}")
    return int(not found.rules)
