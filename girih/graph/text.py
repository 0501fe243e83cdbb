"""The text form of a Graph: what people see when they print it; `parse_graph(format_graph(g)) == g`.

graph
  input %w: float32[4, 3]  parameter  "weight"
  %y: float32[2, 4] = aten.mm(self=%x, mat2=%t)  # forward, model.py:12, layers.0
  return %loss loss, %w_new update replaces %w
"""

from __future__ import annotations

import ast
import json
import re

from girih.graph.graph import Argument, Graph, GraphError, Input, Node, Output, Ref, Value

_PHASES = ("forward", "backward", "update")
_VALUE = re.compile(r"%(?P<name>[\w.]+): (?P<dtype>\w+)\[(?P<shape>[\d, ]*)\]")


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|%[\w.]+|\b(?:inf|nan)\b')


def parse_argument(text: str) -> Argument:
    """The inverse of `format_argument`."""
    return _rebuild(ast.literal_eval(_TOKEN.sub(lambda match: _literal(match[0]), text)))


def _literal(token: str) -> str:
    """Python's literal for what it has none for; references become pairs, which arguments never are."""
    if token.startswith('"'):
        return repr(json.loads(token))
    if token.startswith("%"):
        return f'("%", "{token[1:]}")'
    return "1e999" if token == "inf" else '("nan", "")'


def _rebuild(item: object) -> Argument:
    if isinstance(item, tuple):
        return Ref(item[1]) if item[0] == "%" else float("nan")
    if isinstance(item, list):
        return tuple(_rebuild(part) for part in item)
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise ValueError(f"{item!r} is no argument: expected a number, a string, None, %name or a list of these")


def _parse_value(text: str) -> Value:
    match = _VALUE.fullmatch(text.strip())
    if match is None:
        raise GraphError(f"expected `%name: dtype[shape]`, got {text!r}")
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    return Value(match["name"], shape, match["dtype"])


def _split(text: str, separator: str = ",") -> list[str]:
    """Split at separators that stand outside brackets and quotes."""
    parts, depth, quoted, start, index = [], 0, False, 0, 0
    while index < len(text):
        letter = text[index]
        if quoted:
            if letter == "\\":
                index += 1
            elif letter == '"':
                quoted = False
        elif letter == '"':
            quoted = True
        elif letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        elif letter == separator and depth == 0:
            parts.append(text[start:index])
            start = index + 1
        index += 1
    if text[start:].strip():
        parts.append(text[start:])
    return [part.strip() for part in parts]


def parse_graph(text: str) -> Graph:
    """Read the text form.

    Raises:
        GraphError: naming the line that cannot be read.
    """
    values: dict[str, Value] = {}
    nodes: list[Node] = []
    inputs: list[Input] = []
    outputs: list[Output] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line == "graph":
            continue
        try:
            if line.startswith("input "):
                described, role, path = line.removeprefix("input ").split("  ", 2)
                value = _parse_value(described)
                values[value.name] = value
                inputs.append(Input(value.name, role.strip(), json.loads(path)))  # type: ignore[arg-type]
            elif line.startswith("return"):
                for part in _split(line.removeprefix("return")):
                    words = part.split()
                    replaces = words[3][1:] if len(words) == 4 else None
                    outputs.append(Output(words[0][1:], words[1], replaces))  # type: ignore[arg-type]
            else:
                body, _, notes = line.rpartition("  # ")
                made_text, _, call = body.partition(" = ")
                results = [_parse_value(part) for part in _split(made_text)]
                values.update({value.name: value for value in results})
                operator, _, rest = call.partition("(")
                if not results or not rest.endswith(")"):
                    raise ValueError("expected `%name: dtype[shape] = operator(arguments)  # phase`")
                pairs = [part.partition("=") for part in _split(rest[:-1])]
                if wrong := [name for name, _, _ in pairs if not name.isidentifier()]:
                    raise ValueError(f"{wrong[0]!r} is no argument's name")
                phase, *others = notes.split(", ")
                if phase not in _PHASES:
                    raise ValueError(f"{phase!r} is no phase: expected one of {', '.join(_PHASES)}")
                source = next((note for note in others if ":" in note), "")
                scope = next((note for note in others if ":" not in note), "")
                nodes.append(
                    Node(
                        name=results[0].name,
                        operator=operator,
                        arguments=tuple((name, parse_argument(value)) for name, _, value in pairs),
                        outputs=tuple(value.name for value in results),
                        phase=phase,  # type: ignore[arg-type]
                        source=source,
                        scope=scope,
                    )
                )
        except (ValueError, SyntaxError, IndexError, TypeError, RecursionError, MemoryError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            shown = line if len(line) <= 200 else f"{line[:200]}…"
            raise GraphError(f"line {number} of the graph cannot be read ({reason}): {shown!r}") from error
    return Graph(values, tuple(nodes), tuple(inputs), tuple(outputs))
