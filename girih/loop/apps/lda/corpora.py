"""Corpora: a word for each token, document after document, from SciPy's matrices, UCI's files, gensim's, and Parquet.

What is larger than memory goes to files of a directory while it is read, chunk by chunk, and is read from there.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

CHUNK = 1 << 18
SHOWN = 80

Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(document, word, count) of some entries; documents ascend, within a chunk and over chunks."""


@dataclass(frozen=True)
class Corpus:
    """words: [tokens] int32, by document. starts: [documents + 1] int64. vocabulary: how many words there may be."""

    words: np.ndarray
    starts: np.ndarray
    vocabulary: int
    directory: Path | None = None

    @property
    def tokens(self) -> int:
        return int(self.starts[-1])

    @property
    def documents(self) -> int:
        return len(self.starts) - 1


def read_corpus(source: Any, vocabulary: int | None = None, directory: str | Path | None = None) -> Corpus:
    """The corpus of a source.

    source: a matrix of counts, documents × words (SciPy's sparse ones, NumPy's); the path of a UCI bag-of-words file
        (`docword.*.txt`, or `.gz`: three lines with the numbers of documents, words and entries, then `document word
        count` with numbers from 1), or of a Parquet file (columns `document`, `word`, `count` with documents ascending,
        or a column `words` of lists); or an iterable of documents, each of (word, count) pairs, as gensim's.
    vocabulary: how many words there are, where the source does not say (otherwise the largest, and one).
    directory: where the tokens go; None: they stay in memory.

    Raises:
        ValueError: a line or document is damaged, which is named with its number; counts are negative or no integers.
    """
    if isinstance(source, Corpus):
        return source
    words, chunks = _opened(source)
    expected = words if vocabulary is None else vocabulary
    place = None if directory is None else Path(directory)
    return _collected(chunks, expected, place)


def _opened(source: Any) -> tuple[int | None, Callable[[], Iterator[Chunk | int]]]:
    """(number of words if it is known, chunks; an integer among them is the number of documents)."""
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: expected a UCI bag-of-words file or a Parquet file")
        if path.suffix in (".parquet", ".pq"):
            return None, lambda: _parquet(path)
        return _uci_words(path), lambda: _uci(path)
    if hasattr(source, "tocsr"):
        return source.shape[1], lambda: _matrix(source.tocsr())
    if isinstance(source, np.ndarray):
        if source.ndim != 2:
            raise ValueError(f"the array has {source.ndim} dimensions: expected documents × words")
        import scipy.sparse

        return source.shape[1], lambda: _matrix(scipy.sparse.csr_matrix(source))
    if isinstance(source, Iterable):
        return None, lambda: _documents(source)
    raise TypeError(
        f"no corpus can be read from {type(source).__name__}: expected a matrix, a path, or an iterable of documents"
    )


def _matrix(matrix: Any) -> Iterator[Chunk | int]:
    values = matrix.data
    if len(values) and (not np.isfinite(values).all() or (values < 0).any() or (values != np.floor(values)).any()):
        raise ValueError("the matrix has negative or fractional entries: expected counts of words")
    documents = matrix.shape[0]
    step = max(1, int(documents * CHUNK / max(matrix.nnz, 1)))
    for first in range(0, documents, step):
        part = matrix[first : first + step].tocoo()
        order = np.argsort(part.row, kind="stable")
        yield part.row[order] + first, part.col[order], part.data[order].astype(np.int64)
    yield documents


def _documents(source: Iterable[Any]) -> Iterator[Chunk | int]:
    kept: list[tuple[int, int, int]] = []
    number = -1
    for number, document in enumerate(source):
        try:
            kept.extend((number, int(word), int(count)) for word, count in document)
        except (TypeError, ValueError) as error:
            raise ValueError(f"document {number}: expected (word, count) pairs of integers: {error}") from error
        if len(kept) > CHUNK:
            yield _columns(np.array(kept, np.int64))
            kept = []
    if kept:
        yield _columns(np.array(kept, np.int64))
    yield number + 1


def _columns(table: np.ndarray) -> Chunk:
    return table[:, 0], table[:, 1], table[:, 2]


def _text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="ascii", errors="replace")
    return path.open(encoding="ascii", errors="replace")


def _uci_head(file: IO[str], path: Path) -> tuple[int, int, int]:
    numbers = []
    for number, what in enumerate(("documents", "words", "entries"), 1):
        line = file.readline()
        if not line.strip().isdigit():
            raise ValueError(f"{path}:{number}: {_shown(line)} is not the number of {what}, as UCI's files begin")
        numbers.append(int(line))
    return numbers[0], numbers[1], numbers[2]


def _uci_words(path: Path) -> int:
    with _text(path) as file:
        return _uci_head(file, path)[1]


def _uci(path: Path) -> Iterator[Chunk | int]:
    with _text(path) as file:
        documents, words, entries = _uci_head(file, path)
        number, latest, seen = 4, 1, 0
        while lines := list(itertools.islice(file, CHUNK)):
            try:
                table = np.loadtxt(lines, dtype=np.int64, ndmin=2, comments=None)
                whole = table.shape == (len(lines), 3)
            except ValueError:
                whole = False
            if whole:
                low, high = table.min(axis=0), table.max(axis=0)
                whole = bool((low >= 1).all() and high[0] <= documents and high[1] <= words)
                whole = whole and table[0, 0] >= latest and bool((np.diff(table[:, 0]) >= 0).all())
            if not whole:
                kept = _line_by_line(path, number, lines, latest, documents, words)
                if not len(kept):
                    number += len(lines)
                    continue
                table = kept
            latest = int(table[-1, 0])
            number += len(lines)
            seen += len(table)
            yield table[:, 0] - 1, table[:, 1] - 1, table[:, 2]
        if seen != entries:
            raise ValueError(f"{path}:{number}: the file ends after {seen:,} entries of {entries:,}")
        yield documents


def _line_by_line(path: Path, number: int, lines: list[str], latest: int, documents: int, words: int) -> np.ndarray:
    """The entries of lines that are not all as they should be; empty ones are left out.

    Raises:
        ValueError: the first damaged line.
    """
    kept = []
    for at, line in enumerate(lines, number):
        if not line.strip():
            continue
        parts = line.split()
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            raise ValueError(f"{path}:{at}: {_shown(line)} is damaged: expected `document word count`, integers from 1")
        document, word, count = (int(part) for part in parts)
        if not (1 <= document <= documents and 1 <= word <= words and count >= 1):
            raise ValueError(
                f"{path}:{at}: {_shown(line)}: expected a document up to {documents:,}, a word up to {words:,} and a "
                "count, all from 1"
            )
        if document < latest:
            raise ValueError(f"{path}:{at}: document {document} follows document {latest}: expected ascending ones")
        latest = document
        kept.append((document, word, count))
    return np.array(kept, np.int64).reshape(-1, 3)


def _shown(line: str) -> str:
    line = line.rstrip("\n")
    return repr(line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…")


def _parquet(path: Path) -> Iterator[Chunk | int]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{path}: reading Parquet needs pyarrow: pip install 'girih[loops]'") from error
    file = pyarrow.parquet.ParquetFile(path)
    names = file.schema_arrow.names
    if "words" in names:
        number = 0
        for batch in file.iter_batches(max(CHUNK // 64, 1), columns=["words"]):
            lists = batch.column(0)
            lengths = np.diff(lists.offsets.to_numpy(zero_copy_only=False))
            words = lists.flatten().to_numpy(zero_copy_only=False)
            if lists.null_count or len(words) != lengths.sum():
                raise ValueError(f"{path}: a list of words is missing in rows {number} … {number + len(lists) - 1}")
            rows = np.repeat(np.arange(number, number + len(lists)), lengths)
            yield rows, words, np.ones(len(words), np.int64)
            number += len(lists)
        yield number
        return
    wanted = ["document", "word", "count"]
    if not set(wanted) <= set(names):
        raise ValueError(f"{path} has the columns {', '.join(names)}: expected document, word and count, or words")
    latest, row = 0, 0
    for batch in file.iter_batches(CHUNK, columns=wanted):
        if any(column.null_count for column in batch.columns):
            raise ValueError(f"{path}: a value is missing in rows {row} … {row + len(batch) - 1}")
        table = np.column_stack([column.to_numpy(zero_copy_only=False) for column in batch.columns])
        steps = np.diff(table[:, 0], prepend=latest)
        if (steps < 0).any():
            raise ValueError(f"{path}: row {row + int(np.argmax(steps < 0))}: documents do not ascend")
        latest, row = int(table[-1, 0]), row + len(table)
        yield _columns(table)
    yield latest + 1 if row else 0


def _collected(chunks: Callable[[], Iterator[Chunk | int]], vocabulary: int | None, directory: Path | None) -> Corpus:
    kept: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    file = None
    latest, largest, documents = -1, -1, 0
    pending = 0
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / "words").open("wb")
    try:
        for chunk in chunks():
            if isinstance(chunk, int):
                documents = chunk
                continue
            document, word, count = chunk
            if not len(document):
                continue
            low, high = int(word.min()), int(word.max())
            limit = vocabulary if vocabulary is not None else 1 << 31
            if low < 0 or high >= limit or int(count.min()) < 0:
                bad = int(np.argmax((word < 0) | (word >= limit) | (count < 0)))
                raise ValueError(
                    f"document {int(document[bad])}: word {int(word[bad])}, count {int(count[bad])}: expected words "
                    f"from 0 to {limit - 1:,} and counts from 0"
                )
            largest = max(largest, high)
            tokens = np.repeat(word.astype(np.int32), count)
            sizes = np.bincount(document - max(latest, 0), weights=count).astype(np.int64)
            if latest >= 0:
                sizes[0] += pending
            lengths.append(sizes[:-1])
            pending, latest = int(sizes[-1]), int(document[-1])
            if file is None:
                kept.append(tokens)
            else:
                file.write(tokens.tobytes())
    finally:
        if file is not None:
            file.close()
    every = np.zeros(documents, np.int64)
    if latest >= 0:
        seen = np.concatenate([*lengths, [pending]])
        every[: len(seen)] = seen
    starts = np.concatenate([[0], np.cumsum(every)]).astype(np.int64)
    if starts[-1] == 0 and (vocabulary is None or directory is not None):
        raise ValueError("the corpus has no tokens: expected at least one word in one document")
    if directory is None:
        words = np.concatenate([np.zeros(0, np.int32), *kept])
    else:
        words = np.memmap(directory / "words", np.int32, "r")
    return Corpus(words, starts, largest + 1 if vocabulary is None else vocabulary, directory)
