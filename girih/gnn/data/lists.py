"""Edge lists: text with an edge a line (plain or gzip), and Parquet; read block by block."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from girih.gnn.data.edges import Block, Edges
from girih.gnn.data.errors import DataError
from girih.layout.compiled import compiled

BLOCK_BYTES = 1 << 24
BLOCK_ROWS = 1 << 20
SHOWN = 60
COMMENTS = (b"#", b"%", b"//")
NAMES = (("source", "target"), ("src", "dst"), ("from", "to"), ("read", "reading"))
WEIGHTS = ("weight", "weights", "value")
TABLES = (".parquet", ".pq")


def text_edges(path: Path, vertices: int | None = None, weighted: bool | None = None) -> Edges:
    """The edges of a text file: `source target` or `source target weight` a line, with white space, commas or
    semicolons between; the target reads the source. Lines that are empty, or begin with #, % or //, and a first line of
    names are left out. weighted: whether there is a third column; by default as the first edge says.

    Raises:
        DataError: a line is no edge; with its number and text.
    """
    header, first = _first_edge(path)
    columns = len(_words(first))
    if columns < 2 or (columns > 3 and weighted is not False):
        number = _line_of(path, 0, header)
        raise DataError(
            f"{path}:{number}: expected 'source target' or 'source target weight', got {_shown(first)}"
            + ("; weighted=False leaves out all but the first two columns" if columns > 3 else "")
        )
    if weighted and columns < 3:
        raise DataError(f"{path}:{_line_of(path, 0, header)}: no third column for a weight in {_shown(first)}")
    values = columns == 3 and weighted is not False
    return Edges(
        str(path),
        _text_blocks(path, header, columns, values),
        vertices,
        columns=int(values),
        where=lambda edge: f"{path}:{_line_of(path, edge, header)}",
    )


def _open(path: Path) -> IO[bytes]:
    file: Any = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # noqa: SIM115 (the caller does)
    return file  # type: ignore[no-any-return]


def _is_edge(line: bytes) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith(COMMENTS)


def _words(line: bytes) -> list[bytes]:
    return line.replace(b",", b" ").replace(b";", b" ").split()


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip("\r\n")
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")


def _first_edge(path: Path) -> tuple[bool, bytes]:
    """(whether a line of names comes before, the first line that is an edge)."""
    try:
        with _open(path) as file:
            lines = (line for line in file if _is_edge(line))
            first = next(lines, b"")
            header = first.lstrip(b"\xef\xbb\xbf\" '")[:1].isalpha()
            if header:
                first = next(lines, b"")
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not first:
        raise DataError(f"{path} has no edges: expected a line 'source target' for each")
    return header, first


def _line_of(path: Path, edge: int, header: bool) -> int:
    """The number of the line of an edge."""
    left = edge + header
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if _is_edge(line):
                if not left:
                    return number
                left -= 1
    return 0


def _text_blocks(path: Path, header: bool, columns: int, values: bool) -> Iterator[Block]:
    done, rest = 0, b""
    with _open(path) as file:
        while True:
            try:
                data = file.read(BLOCK_BYTES)
            except (OSError, EOFError) as error:
                raise DataError(f"{path} is damaged behind {done} edges: {error}") from error
            text = rest + (data or b"\n")
            end = text.rfind(b"\n") + 1
            text, rest = text[:end], text[end:]
            if header and end:
                text, header = _without_names(text), False
            if text:
                block = _block(path, text, columns, values)
                yield block
                done += len(block[0])
            if not data:
                return


def _without_names(text: bytes) -> bytes:
    """The lines behind the first that is no comment."""
    kept = b""
    while text:
        line, _, text = text.partition(b"\n")
        if _is_edge(line):
            break
        kept += line + b"\n"
    return kept + text


def _block(path: Path, text: bytes, columns: int, values: bool) -> Block:
    most = len(text) // 4 + 2  # "0 1\n"
    read, reading = np.empty(most, np.int64), np.empty(most, np.int64)
    weights = np.empty(most if values else 1, np.float64)
    count, at, numbers = 0, 0, np.frombuffer(text, np.uint8)
    while at < len(text):
        count, at = _parse(numbers, at, count, columns, values, read, reading, weights)
        if at >= len(text):
            break
        end = text.find(b"\n", at)
        line, at = text[at:end], end + 1
        if _is_edge(line):
            read[count], reading[count], weights[count if values else 0] = _edge(path, line, columns, values)
            count += 1
    own = weights[:count].astype(np.float32)[:, None] if values else None
    return read[:count], reading[:count], own


def _edge(path: Path, line: bytes, columns: int, values: bool) -> tuple[int, int, float]:
    """An edge, by Python: of a small file, or of a line that the compiled parser leaves to it.

    Raises:
        DataError: it is no edge.
    """
    words = _words(line)
    try:
        if len(words) != columns:
            raise ValueError(f"expected {columns} columns, as in the first line, got {len(words)}")
        return int(words[0]), int(words[1]), float(words[2]) if values else 0.0
    except ValueError as error:
        raise DataError(f"{path}:{_line_with(path, line)}: no edge in {_shown(line)}: {error}") from error


def _line_with(path: Path, text: bytes) -> int:
    with _open(path) as file:
        return next((number for number, line in enumerate(file, 1) if line.rstrip(b"\n") == text), 0)


def _nothing(text: Any, at: int, count: int, *_: Any) -> tuple[int, int]:
    """In place of `_parse`: Python takes line by line."""
    return count, at


@compiled(lambda text, at, *_: (len(text) - at) // 4, plain=_nothing)
def _parse(text, at, count, columns, values, read, reading, weights):  # type: ignore[no-untyped-def]
    """Edges of whole lines from a byte on: `count` of them are filled before. Returns how many there are then, and the
    byte at which a line begins that is no edge of plain numbers, or the end of the text."""
    size = len(text)
    while at < size:
        begin = at
        while at < size and (text[at] == 32 or text[at] == 9 or text[at] == 13):
            at += 1
        if at >= size:
            break
        byte = text[at]
        if byte == 10:
            at += 1
            continue
        if byte == 35 or byte == 37 or (byte == 47 and at + 1 < size and text[at + 1] == 47):  # a comment
            while text[at] != 10:
                at += 1
            continue
        column = 0
        good = True
        while good:
            while text[at] == 32 or text[at] == 9 or text[at] == 13 or text[at] == 44 or text[at] == 59:
                at += 1
            if text[at] == 10:
                break
            negative = text[at] == 45
            if negative:
                at += 1
            digits = 0
            scale = 0
            number = 0
            point = seen = False
            while True:
                byte = text[at]
                if 48 <= byte <= 57:
                    if digits < 18:
                        number = number * 10 + (byte - 48)
                        if point:
                            scale -= 1
                        digits += 1 if number > 0 else 0
                    elif column >= 2:
                        if not point:
                            scale += 1
                    else:
                        good = False
                    seen = True
                elif byte == 46 and column >= 2 and not point:
                    point = True
                else:
                    break
                at += 1
            if column >= 2 and (byte == 101 or byte == 69):  # an exponent
                at += 1
                down = text[at] == 45
                if down or text[at] == 43:
                    at += 1
                exponent = 0
                if not 48 <= text[at] <= 57:
                    good = False
                while 48 <= text[at] <= 57:
                    if exponent < 1000:
                        exponent = exponent * 10 + (text[at] - 48)
                    at += 1
                scale += -exponent if down else exponent
            byte = text[at]
            if not (byte == 32 or byte == 9 or byte == 10 or byte == 13 or byte == 44 or byte == 59):
                good = False
            if not good or not seen or scale > 290 or scale < -290:
                good = False
                break
            if column == 0:
                read[count] = -number if negative else number
            elif column == 1:
                reading[count] = -number if negative else number
            elif column == 2 and values:
                real = float(number)
                if scale > 0:
                    real *= 10.0**scale
                elif scale < 0:
                    real /= 10.0**-scale
                weights[count] = -real if negative else real
            column += 1
        if not good or column != columns:
            return count, begin
        count += 1
        at += 1
    return count, size


def table_edges(path: Path, vertices: int | None = None, weighted: bool | None = None) -> Edges:
    """The edges of a Parquet file: columns `source` and `target` (or `src`, `dst`; `from`, `to`), and `weight` where
    there is one; see `text_edges`.

    Raises:
        DataError: it is damaged, or has no such columns, or a value is missing. ImportError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f"{path}: reading Parquet needs pyarrow: pip install 'girih[loops]'") from error
    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is no Parquet file, or damaged: {error}") from error
    names = file.schema_arrow.names
    pair = next((pair for pair in NAMES if set(pair) <= set(names)), None)
    if pair is None:
        raise DataError(f"{path} has the columns {', '.join(names)}: expected source, target and, maybe, weight")
    weight = next((name for name in WEIGHTS if name in names and weighted is not False), None)
    if weighted and weight is None:
        raise DataError(f"{path} has the columns {', '.join(names)}: expected one named weight")
    for name in pair:
        if not pyarrow.types.is_integer(file.schema_arrow.field(name).type):
            raise DataError(f"{path}: the column {name} is {file.schema_arrow.field(name).type}, not whole numbers")

    def blocks() -> Iterator[Block]:
        row = 0
        wanted = [*pair, *([weight] if weight else [])]
        try:
            for batch in file.iter_batches(BLOCK_ROWS, columns=wanted):
                if any(column.null_count for column in batch.columns):
                    raise DataError(f"{path}: a value is missing in rows {row} to {row + len(batch) - 1}")
                one, other, *rest = (batch.column(name).to_numpy(zero_copy_only=False) for name in wanted)
                yield one, other, np.asarray(rest[0], np.float32)[:, None] if rest else None
                row += len(batch)
        except pyarrow.ArrowException as error:
            raise DataError(f"{path} is damaged behind row {row}: {error}") from error

    return Edges(
        str(path), blocks(), vertices, columns=int(weight is not None), where=lambda edge: f"{path}: row {edge}"
    )
