"""What `girih show` prints of a plan, kept in its file, so that showing it derives nothing again.

`girih plan -o` adds it to the file with a digest of all the rest and of girih's version: where either has changed
since, nothing is taken from here, and `show` loads, checks and prices the plan anew. Loading a plan to run it never
reads it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from girih import __version__

if TYPE_CHECKING:
    from rich.table import Table

    from girih.plans import Plan

KEY = "shown"


def keep(path: str | Path, made: Plan, numbers: dict[str, Any]) -> None:
    """Add what is shown of a plan to the file that it was just saved to."""
    from girih.report.tables import alternatives_table, devices_table, head

    where = Path(path)
    data = _read(where)
    tables = [_parts(devices_table(made)), _parts(alternatives_table(made))]
    shown = {"digest": _digest(data), "title": made.model or "program", "head": head(made).plain, "tables": tables}
    data[KEY] = {**shown, "numbers": numbers}
    text = json.dumps(data, indent=1).encode()
    where.write_bytes(gzip.compress(text) if where.suffix == ".gz" else text)


def kept(path: str | Path) -> dict[str, Any] | None:
    """What `keep` added; None where there is none, or where it is not of this plan or this girih."""
    try:
        data = _read(Path(path))
        shown = data[KEY]
        return shown if shown["digest"] == _digest(data) else None
    except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError, zlib.error):
        return None  # loading says what is wrong


def summary(shown: dict[str, Any]) -> Any:
    """What `girih.report.tables.summary` gives, of what was kept."""
    from rich.console import Group
    from rich.text import Text

    text = Text(shown["head"])
    text.stylize("bold", 0, len(shown["title"]))
    return Group(text, *map(_table, shown["tables"]))


def _read(where: Path) -> dict[str, Any]:
    raw = where.read_bytes()
    data: dict[str, Any] = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    return data


def _digest(data: dict[str, Any]) -> str:
    rest = {key: value for key, value in data.items() if key != KEY}
    return hashlib.sha256(json.dumps([__version__, rest]).encode()).hexdigest()


def _parts(table: Table) -> dict[str, Any]:
    columns = [[column.header, column.justify, list(column.cells)]
               for column in table.columns]  # fmt: skip
    return {"columns": columns, "caption": table.caption}


def _table(parts: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(title=None, box=None, pad_edge=False, header_style="bold", caption=parts["caption"])
    for header, justify, _ in parts["columns"]:
        table.add_column(header, justify=justify)
    for row in zip(*(cells for _, _, cells in parts["columns"]), strict=True):
        table.add_row(*row)
    return table
