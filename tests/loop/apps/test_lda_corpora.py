"""Corpora: every source gives the same tokens, in memory and on disk; what is damaged is named."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from girih.loop.apps.lda import corpora, read_corpus

DOCUMENTS = [[(0, 2), (3, 1)], [], [(1, 1)], [(0, 1), (2, 2)], []]
TABLE = scipy.sparse.csr_matrix([[2, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 2, 0], [0, 0, 0, 0]])
UCI = "5\n4\n5\n1 1 2\n1 4 1\n3 2 1\n4 1 1\n4 3 2\n"


def uci(place: Path) -> Any:
    (place / "docword.x.txt").write_text(UCI)
    return place / "docword.x.txt"


def zipped(place: Path) -> Any:
    with gzip.open(place / "docword.x.txt.gz", "wt") as file:
        file.write(UCI)
    return str(place / "docword.x.txt.gz")


def parquet_counts(place: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    rows = [(d, w, c) for d, document in enumerate(DOCUMENTS) for w, c in document]
    columns = dict(zip(("document", "word", "count"), map(list, zip(*rows, strict=True)), strict=True))
    pyarrow.parquet.write_table(pyarrow.table(columns), place / "x.parquet")
    return place / "x.parquet"


def parquet_lists(place: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    lists = [[w for w, c in document for _ in range(c)] for document in DOCUMENTS]
    table = pyarrow.table({"words": pyarrow.array(lists, pyarrow.list_(pyarrow.int32()))})
    pyarrow.parquet.write_table(table, place / "lists.parquet")
    return place / "lists.parquet"


SOURCES: list[Callable[[Path], Any]] = [
    uci, zipped, parquet_counts, parquet_lists, lambda _: TABLE, lambda _: TABLE.toarray(), lambda _: TABLE.tocoo(),
    lambda _: DOCUMENTS, lambda _: (document for document in DOCUMENTS),
]  # fmt: skip


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("chunk", [2, 1 << 18])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_tokens(
    source: Callable[[Path], Any], chunk: int, on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "CHUNK", chunk)
    corpus = read_corpus(source(tmp_path), directory=tmp_path / "kept" if on_disk else None)
    np.testing.assert_array_equal(corpus.words, [0, 0, 3, 1, 0, 2, 2])
    # Entries by (document, word, count) do not tell of empty documents at the end.
    np.testing.assert_array_equal(corpus.starts[:5], [0, 3, 3, 4, 7])
    assert corpus.documents == (4 if source is parquet_counts else 5)
    assert corpus.vocabulary == 4
    assert corpus.tokens == 7
    assert read_corpus(corpus) is corpus
    assert isinstance(corpus.words, np.memmap) == on_disk


@pytest.mark.parametrize("chunk", [2, 1 << 18])
@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (2, "four", "2: 'four' is not the number of words"),
        (6, "3 x 1", "6: '3 x 1' is damaged: expected `document word count`"),
        (6, "3 2", "6: '3 2' is damaged"),
        (7, "4 1 1.5", "7: '4 1 1.5' is damaged"),
        (5, "1 5 1", "5: '1 5 1': expected a document up to 5, a word up to 4"),
        (5, "0 1 1", "5: '0 1 1': expected a document up to 5"),
        (8, "2 3 2", "8: document 2 follows document 4: expected ascending"),
        (3, "6", "the file ends after 5 entries of 6"),
    ],
)
def test_a_damaged_line_is_named(
    line: int, text: str, message: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "CHUNK", chunk)
    lines = UCI.splitlines()
    lines[line - 1] = text
    path = tmp_path / "docword.bad.txt"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=message) as caught:
        read_corpus(path)
    assert str(path) in str(caught.value)


def test_empty_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "docword.txt"
    path.write_text("1\n4\n2\n1 1 2\n\n1 4 1\n\n")
    np.testing.assert_array_equal(read_corpus(path).words, [0, 0, 3])


def test_bad_sources_are_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_corpus(tmp_path / "nothing.txt")
    with pytest.raises(TypeError, match="no corpus can be read from int"):
        read_corpus(3)
    with pytest.raises(ValueError, match="negative or fractional"):
        read_corpus(np.array([[0.5, 1]]))
    with pytest.raises(ValueError, match="1 dimensions"):
        read_corpus(np.array([1, 2]))
    with pytest.raises(ValueError, match="document 1: expected"):
        read_corpus([[(0, 1)], [(1,)]])
    with pytest.raises(ValueError, match="document 1: word -1"):
        read_corpus([[(0, 1)], [(-1, 1)]])
    with pytest.raises(ValueError, match="no tokens"):
        read_corpus([[], []])
    with pytest.raises(ValueError, match="word 7, count 1: expected words from 0 to 4"):
        read_corpus([[(7, 1)]], vocabulary=5)
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(ValueError, match="has the columns a: expected document, word and count"):
        read_corpus(path)
    table = pyarrow.table({"document": [1, 0], "word": [0, 0], "count": [1, 1]})
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(ValueError, match="row 1: documents do not ascend"):
        read_corpus(path)
