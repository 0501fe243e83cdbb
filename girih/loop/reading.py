"""Entries from lines of text: parsed and mapped line by line, without a copy of the text (Orion, thesis §5.2.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from girih.loop.code.entries import Column, Ragged

Parse: TypeAlias = Callable[[str], "tuple[Any, Any] | None"]
"""Takes a line without its end and returns (key, value), or None to leave the line out."""
SHOWN = 80
LINES = 1 << 16
EXACT = 2**53  # from here on float64 does not have every whole number


Read: TypeAlias = tuple[tuple[np.ndarray, ...], tuple[Column, ...], bool]


def read_text(path: Path, parse: Parse | None, keys: int | None) -> Read:
    """(keys of each dimension, columns of values, whether a value is a tuple) of a file.

    Without `parse`, a line is numbers with commas, semicolons or white space between: `keys` of them (by default all
    but the last) are the key, the rest the value. Lines that are empty or begin with # are left out.

    Raises:
        ValueError: a line cannot be parsed; its number and text are in the message, and nothing is returned.
    """
    if parse is None:
        fast = _numbers(path, keys)
        if fast is not None:
            return fast
        parse = _plain(keys)
    return _collected(_parsed(path, parse), path)


def _numbers(path: Path, keys: int | None) -> Read | None:
    """All lines at once; None: they are no plain table of numbers, and each is looked at for itself."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = next((line for line in file if line.strip() and not line.startswith("#")), "")
    if not first:
        return None
    separator = next((item for item in (",", ";", "\t") if item in first), None)
    try:
        table = np.loadtxt(path, delimiter=separator, ndmin=2, comments="#", dtype=np.float64)
    except ValueError as error:
        _look_at(path, _plain(keys), re.search(r"could not convert .* at row (\d+)", str(error)))
        return None
    count = table.shape[1] - 1 if keys is None else keys
    if not 1 <= count <= table.shape[1] or not len(table):
        return None
    indices = table[:, :count]
    if (indices != np.floor(indices)).any() or not ((indices >= 0) & (indices < EXACT)).all():
        return None
    values = table[:, count:].astype(np.float32)
    columns: tuple[Column, ...] = ()
    if values.shape[1]:
        columns = (np.ascontiguousarray(values[:, 0] if values.shape[1] == 1 else values),)
    return tuple(indices[:, dim].astype(np.int64) for dim in range(count)), columns, False


def _look_at(path: Path, parse: Parse, row: re.Match[str] | None) -> None:
    """Parse the line that NumPy could not convert, if it says which, so that the error of a late line comes soon.

    Raises:
        ValueError: the line cannot be parsed. Other lines are not looked at.
    """
    if row is None:
        return
    with path.open("rb") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.partition(b"#")[0].strip())
        number, line = next(islice(lines, int(row[1]), None), (0, b""))
    text = line.decode(errors="replace")
    try:
        parse(text.rstrip("\r\n"))
    except ValueError as error:
        raise _unparsed(path, number, text, error) from error


def _plain(keys: int | None) -> Parse:
    def parse(line: str) -> tuple[tuple[int, ...], Any] | None:
        if not line.strip() or line.startswith("#"):
            return None
        words = line.replace(",", " ").replace(";", " ").split()
        count = len(words) - 1 if keys is None else keys
        if len(words) < max(count, 1) or count < 1:
            raise ValueError(f"expected {count} numbers and a value" if keys else "expected a key and a value")
        key = tuple(int(word) for word in words[:count])
        if min(key) < 0 or max(key) >= 2**63:
            raise ValueError("expected keys from 0, below 2**63")
        rest = [float(word) for word in words[count:]]
        return key, rest[0] if len(rest) == 1 else np.array(rest, np.float32)

    return parse


def _parsed(path: Path, parse: Parse) -> Iterator[tuple[int, Any]]:
    """(line number, what it was parsed to)."""
    number, line = 0, ""
    with path.open(encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                found = parse(line.rstrip("\n"))
                if found is None:
                    continue
                if not (isinstance(found, tuple) and len(found) == 2):
                    raise ValueError(f"parse gave {found!r}: expected (key, value)")
                yield number, found
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}:{_undecodable(path)}: no UTF-8 text ({error.reason})") from error
        except Exception as error:
            raise _unparsed(path, number, line, error) from error


def _unparsed(path: Path, number: int, line: str, error: Exception) -> ValueError:
    shown = line.rstrip("\r\n")
    shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"
    return ValueError(f"{path}:{number}: cannot parse {shown!r}: {type(error).__name__}: {error}")


def _undecodable(path: Path) -> int:
    """The first line that is no UTF-8. Text is decoded in blocks of many lines, so that an error does not say it."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 0


def _collected(pairs: Iterable[tuple[int, Any]], path: Path) -> Read:
    """Columns of what lines were parsed to; all of one form, which the first sets."""
    keys: list[tuple[int, ...]] = []
    values: list[Any] = []
    kept_keys: list[np.ndarray] = []
    kept_values: list[list[Any]] = []
    numbers: list[int] = []
    kept_numbers: list[np.ndarray] = []
    form: tuple[int, int] | None = None
    for number, (key, value) in pairs:
        whole = key if isinstance(key, tuple) else (key,)
        parts = len(value) if isinstance(value, tuple) else -1
        if form is None:
            form = (len(whole), parts)
        elif form != (len(whole), parts):
            raise ValueError(
                f"{path}:{number}: a key of {len(whole)} numbers and {_parts(parts)}, where the first line has "
                f"{form[0]} and {_parts(form[1])}"
            )
        if any(not isinstance(item, int | np.integer) or not 0 <= item < 2**63 for item in whole):
            raise ValueError(f"{path}:{number}: the key is {key!r}: expected integers from 0, below 2**63")
        keys.append(whole)
        values.append(value)
        numbers.append(number)
        if len(keys) == LINES:
            kept_keys.append(np.array(keys, np.int64))
            kept_values.append(values)
            kept_numbers.append(np.array(numbers))
            keys, values, numbers = [], [], []
    if form is None:
        raise ValueError(f"{path} has no entries")
    if keys:
        kept_keys.append(np.array(keys, np.int64))
        kept_values.append(values)
        kept_numbers.append(np.array(numbers))
    lines = np.concatenate(kept_numbers)
    table = np.concatenate(kept_keys)
    flat = [value for chunk in kept_values for value in chunk]
    columns: tuple[Column, ...]
    if form[1] < 0:
        columns = () if all(value is None for value in flat) else (_column(flat, path, lines),)
    else:
        columns = tuple(_column([value[at] for value in flat], path, lines) for at in range(form[1]))
    return tuple(table[:, dim] for dim in range(form[0])), columns, form[1] >= 0


def _parts(count: int) -> str:
    return "a value" if count < 0 else f"{count} values"


def _column(values: list[Any], path: Path, lines: np.ndarray) -> Column:
    """Numbers, rows of one length, or arrays of different lengths. lines: the number of each one's line.

    Raises:
        ValueError: one is of another kind than the first, or no number.
    """
    single = np.ndim(values[0]) == 0
    try:
        if single:
            found = np.array(values)
            if found.dtype.kind in "biuf" and found.ndim == 1:
                return found.astype(np.float32) if found.dtype == np.float64 else found
        else:
            arrays = [np.asarray(value) for value in values]
            data = np.concatenate(arrays)
            if data.dtype.kind in "biuf" and data.ndim == 1:
                bounds = np.concatenate([[0], np.cumsum([len(item) for item in arrays])])
                return Ragged(data.astype(np.float32) if data.dtype == np.float64 else data, bounds)
    except (ValueError, TypeError):
        pass
    expected = "a number" if single else "a list of numbers"
    for line, value in zip(lines.tolist(), values, strict=True):
        item = np.array(value, object) if isinstance(value, list | tuple) else np.asarray(value)
        kinds = {type(one) for one in np.ravel(item).tolist()}
        if item.ndim != (0 if single else 1) or not kinds <= {bool, int, float}:
            shown = repr(value)
            shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"
            raise ValueError(f"{path}:{line}: the value is {shown}: expected {expected}, as of the first line")
    raise ValueError(f"{path}: the values are no numbers that fit into one type")
