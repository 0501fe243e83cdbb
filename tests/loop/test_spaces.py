"""Iteration spaces from arrays, SciPy, text, npz and Parquet; what is wrong in them is named."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import girih.loop as gl
from girih.loop import reading
from girih.loop.code.entries import Ragged, by_turns, sorted_by


def listed(space: gl.Space) -> list[tuple]:
    entries = space.listed()
    return sorted(zip(*(item.tolist() for item in (*entries.keys, *entries.columns)), strict=True))


TRIPLES = [(0, 1, 0.5), (2, 0, 1.5), (1, 1, -2.0)]


def test_all_sources_give_the_same_space(tmp_path: Path) -> None:
    i, j, v = (np.array(item) for item in zip(*TRIPLES, strict=True))
    spaces = [gl.sparse((i, j), v.astype(np.float32))]
    spaces.append(gl.sparse(scipy.sparse.coo_array((v, (i, j)), shape=(3, 2))))
    np.savez(tmp_path / "own.npz", keys0=i, keys1=j, values=v)
    scipy.sparse.save_npz(tmp_path / "scipy.npz", scipy.sparse.csr_matrix((v, (i, j)), shape=(3, 2)))
    (tmp_path / "a.csv").write_text("".join(f"{a},{b},{c}\n" for a, b, c in TRIPLES))
    (tmp_path / "b.txt").write_text("# users items\n" + "".join(f"{a} {b} {c}\n" for a, b, c in TRIPLES))
    spaces += [gl.sparse(tmp_path / name) for name in ("own.npz", "scipy.npz", "a.csv", "b.txt")]
    spaces.append(gl.sparse(tmp_path / "a.csv", parse=lambda line: ((int(line[0]), int(line[2])), float(line[4:]))))
    spaces.append(gl.text(tmp_path / "a.csv").map(lambda line: line.split(",")).map(
        lambda words: ((int(words[0]), int(words[1])), float(words[2]))).space())  # fmt: skip
    for space in spaces:
        assert listed(space) == sorted(TRIPLES)
        assert space.shape == (3, 2)
        assert len(space) == 3


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    i, j, v = (list(item) for item in zip(*TRIPLES, strict=True))
    parquet.write_table(pyarrow.table({"user": i, "item": j, "rating": v}), tmp_path / "r.parquet")
    assert listed(gl.sparse(tmp_path / "r.parquet")) == sorted(TRIPLES)
    assert listed(gl.sparse(tmp_path / "r.parquet", keys=["user", "item"])) == sorted(TRIPLES)
    with pytest.raises(ValueError, match="there is no film"):
        gl.sparse(tmp_path / "r.parquet", keys=["user", "film"])
    parquet.write_table(
        pyarrow.table({"user": [1, None], "item": [0, 1], "rating": [1.0, 2.0]}), tmp_path / "n.parquet"
    )
    with pytest.raises(ValueError, match=r"n\.parquet: column user is int64 with 1 nulls: expected keys"):
        gl.sparse(tmp_path / "n.parquet")


def test_damaged_npz_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, keys0=np.arange(1000), values=np.arange(1000.0))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[2000] ^= 255
    for wrong in (whole[: len(whole) // 2], bytes(flipped), b"no archive"):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"a\.npz is no whole \.npz file"):
            gl.sparse(path)


def test_keys_beyond_what_float64_counts_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    path.write_text("0,9007199254740993,2.5\n")
    assert gl.sparse(path).listed().keys[1][0] == 2**53 + 1
    path.write_text("0,99999999999999999999,2.5\n")
    with pytest.raises(ValueError, match=r"keys\.csv:1: .*below 2\*\*63"):
        gl.sparse(path)
    path.write_text("# nothing\n\n")
    with pytest.raises(ValueError, match=r"keys\.csv has no entries"):
        gl.sparse(path)


def test_the_line_that_numpy_stops_at_is_looked_at_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line before it is parsed one by one, which would take ten times as long."""
    path = tmp_path / "late.csv"
    path.write_text("# users, items\n\n" + "1,2,3.5\n" * 1000 + "1,two,3.5\n")
    monkeypatch.setattr(reading, "_collected", None)
    with pytest.raises(ValueError, match=r"late\.csv:1003: cannot parse '1,two,3\.5'"):
        gl.sparse(path)


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="values of column 0 are <U1: expected numbers"):
        gl.sparse((np.arange(2),), np.array(["a", "b"]))


def test_a_line_that_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    """In line 7,000,000 as in line 70,000."""
    path = tmp_path / "ratings.csv"
    lines = ["1,2,3.5\n"] * 70_000
    lines[69_998] = "1,2,three\n"
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=r"ratings\.csv:69999: cannot parse '1,2,three': ValueError"):
        gl.sparse(path)

    def parse(line: str):
        a, b, c = line.split(",")
        return (int(a), int(b)), float(c)

    with pytest.raises(ValueError, match=r"ratings\.csv:69999: cannot parse '1,2,three'"):
        gl.sparse(path, parse=parse)
    path.write_text("1,2,3\n1,2\n")
    with pytest.raises(ValueError, match=r":2: cannot parse '1,2'"):
        gl.sparse(path, parse=parse)
    path.write_text("1,2,3\n-1,2,4\n")
    with pytest.raises(ValueError, match=r":2: the key is"):
        gl.sparse(path, parse=parse)
    lines[69_998] = "1,2,ä\n"
    path.write_text("".join(lines), encoding="latin-1")  # Text is decoded in blocks, of which no error names the line.
    with pytest.raises(ValueError, match=r"ratings\.csv:69999: no UTF-8 text"):
        gl.sparse(path, parse=parse)


def test_a_value_of_another_kind_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINES", 64)
    path = tmp_path / "ratings.csv"
    for wrong, kind in (("[1, 2]", "a number"), ("'x'", "a number"), ("7", "a list of numbers"), ("[[1]]", "a list")):
        right = "1" if kind == "a number" else "[1, 2]"
        path.write_text(f"0 {right}\n\n" + f"1 {right}\n" * 200 + f"2 {wrong}\n")
        words = f"{path}:203: the value is {wrong}: expected {kind}"
        with pytest.raises(ValueError, match=re.escape(words)):
            gl.sparse(path, parse=lambda line: (int(line[0]), ast.literal_eval(line[2:])) if line else None)


def test_bad_entries_are_named() -> None:
    with pytest.raises(ValueError, match=r"entry 1 has key -3 in dimension 0"):
        gl.sparse((np.array([0, -3]), np.array([0, 1])))
    with pytest.raises(ValueError, match=r"entry 0 has key 5 in dimension 1: expected 0 ≤ key < 4"):
        gl.sparse((np.array([0]), np.array([5])), shape=(2, 4))
    with pytest.raises(ValueError, match="columns of 2, 3 entries"):
        gl.sparse((np.array([0, 1]), np.array([0, 1, 2])))
    with pytest.raises(ValueError, match="expected integers"):
        gl.sparse((np.array([0.5]),))
    with pytest.raises(ValueError, match="expected 0 ≤ start ≤ stop"):
        gl.range((3, 1))


def test_group_by_map_and_split() -> None:
    space = gl.sparse((np.array([0, 2, 0]), np.array([1, 1, 0])), np.array([1.0, 2.0, 3.0]))
    assert listed(space.map(lambda v: 2 * v)) == [(0, 0, 6.0), (0, 1, 2.0), (2, 1, 4.0)]
    sums = gl.array(np.zeros(3))

    @gl.parallel_for(space.group_by(0), workers=2)
    def loop(i, v, sums):
        others, values = v
        for k in range(len(others)):
            sums[i] += values[k] * (1 + others[k])

    loop(sums)
    assert sums.numpy().tolist() == [5.0, 0.0, 4.0]
    first, second = gl.range(50, 20).split(0.25)
    assert len(first) + len(second) == 1000
    assert 150 < len(second) < 350


def test_randomized_keys_spread_heavy_rows() -> None:
    i = np.concatenate([np.arange(10), np.zeros(200, int)])
    j = np.concatenate([np.arange(10), np.arange(200) % 10])
    space = gl.sparse((i, j), np.arange(210.0))
    other = space.randomize(0, seed=3)
    labels = dict(other.relabelled)[0]
    assert sorted(labels) == list(range(10))
    assert np.array_equal(labels[other.entries.keys[0]], i)
    assert np.array_equal(other.entries.keys[1], j)


def test_ragged_columns_follow_their_entries() -> None:
    column = Ragged(np.arange(6.0), np.array([0, 1, 3, 6]))
    space = gl.sparse((np.array([2, 0, 1]),), (column,))
    found = gl.array(np.zeros(3))

    @gl.parallel_for(space, ordered=True, workers=2)
    def loop(i, v, found):
        (values,) = v
        found[i] = values.sum()

    loop(found)
    assert found.numpy().tolist() == [3.0, 12.0, 0.0]


def test_rows_by_turns_is_a_permutation_within_groups() -> None:
    draw = np.random.default_rng(0)
    rows, group = draw.integers(0, 40, 500), draw.integers(0, 4, 500)
    order = sorted_by(group, 4, sorted_by(rows, 40, np.arange(500)))
    turns = by_turns(order, rows, group, 8)
    assert sorted(turns) == list(range(500))
    assert group[turns].tolist() == sorted(group)
    neighbours = rows[turns]
    assert (neighbours[1:] == neighbours[:-1]).mean() < (rows[order][1:] == rows[order][:-1]).mean() / 5
