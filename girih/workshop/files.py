"""Files of rules: one rule after another as text (a line that is indented goes on with the one above; # comments), or
TASO's protobuf (`rules.taso`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from girih.rewrite.rules.rule import Rule, RuleError, parse
from girih.workshop.taso import decoded

MOST_BYTES = 1 << 24
MOST_LETTERS = 8192
"""Characters of one rule."""
MOST_DEPTH = 64
PROPERTIES = Path(__file__).parent / "properties"
"""`taso.txt` and `false.txt`: the published properties, and where they do not hold."""


def read_rule(text: str) -> Rule:
    """One rule, not so long or deep that reading it would not end.

    Raises:
        RuleError: what is none.
    """
    if len(text) > MOST_LETTERS:
        raise RuleError(f"a rule of {len(text)} letters is not read: at most {MOST_LETTERS}")
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    if deepest > MOST_DEPTH or "\0" in text:
        raise RuleError(f"{text[:60]!r}… is no rule: brackets are {deepest} deep, at most {MOST_DEPTH} are read")
    return parse(text)


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a file.

    Raises:
        RuleError: naming the line of what is no rule.
        OSError: no such file.
    """
    if path.stat().st_size > MOST_BYTES:
        raise RuleError(f"{path} has {path.stat().st_size} bytes; rule files have at most {MOST_BYTES}")
    data = path.read_bytes()
    if path.suffix == ".pb" or not _is_text(data):
        try:
            return decoded(data)
        except RuleError as error:
            raise RuleError(f"{path} is no text, and no rules in TASO's protobuf: {error}") from error
    text = data.decode()
    rules = []
    for line, item in _rules(text):
        try:
            rules.append(read_rule(item))
        except RuleError as error:
            raise RuleError(f"{path}:{line}: {error}") from error
    return tuple(rules)


def _is_text(data: bytes) -> bool:
    """UTF-8 without control characters, but for white space."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(letter >= " " or letter in "\t\n\r\f" for letter in text)


def write_rules(path: Path, rules: Sequence[Rule], head: str = "") -> None:
    """A file of rules as text, one on each line, behind comments."""
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    path.write_text("\n".join([*lines, *map(str, rules)]) + "\n", encoding="utf-8")


def _rules(text: str) -> Iterator[tuple[int, str]]:
    """(number of its first line, rule)."""
    first = 0
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0].isspace() and parts:
            parts.append(line.strip())
            continue
        if parts:
            yield first, " ".join(parts)
        first, parts = number, [line.strip()]
    if parts:
        yield first, " ".join(parts)
