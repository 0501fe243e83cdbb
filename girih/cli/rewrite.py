"""`girih rewrite …`: each action is a function from parsed options to an exit code."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from girih.cli.terminal import BadInputError


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
