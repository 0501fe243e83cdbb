"""The programs in examples/loops/ run and learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import girih.loop as gl
from examples.loops import boosted_trees, lda, logistic_regression, matrix_factorisation

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "loops"


def test_matrix_factorisation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    errors = matrix_factorisation.main()
    assert errors[-1] < errors[0]
    assert "H travels in" in capsys.readouterr().out
    entries = matrix_factorisation.made_up(60, 40, 3000).entries
    table = np.column_stack([*entries.keys, entries.columns[0]])
    np.savetxt(tmp_path / "r.csv", table, delimiter=",", fmt="%g")
    assert len(matrix_factorisation.main(str(tmp_path / "r.csv"), epochs=2)) == 2


def test_logistic_regression(tmp_path: Path) -> None:
    losses, parts = logistic_regression.main()
    assert losses[-1] < losses[0] < np.log(2)
    assert parts[-1] > 0.95
    (tmp_path / "s.svm").write_text("1 1:0.5 3:1\n-1 2:1\n+1 1:1 2:0.25 3:1\n" * 5)
    samples = logistic_regression.read(str(tmp_path / "s.svm"))
    assert len(samples) == 15
    assert logistic_regression.sparse_regression(samples, 3, epochs=2)[-1] < np.log(2)


def test_boosted_trees(tmp_path: Path) -> None:
    assert boosted_trees.main() > 0.7
    np.savetxt(tmp_path / "r.csv", boosted_trees.made_up(500), delimiter=",")
    assert boosted_trees.main(str(tmp_path / "r.csv"), trees=10) > 0.6


def test_lda(tmp_path: Path) -> None:
    model, lines = lda.main()
    assert model.likelihoods_[-1][1] > model.likelihoods_[0][1]
    # Each subject's own words make up some topic.
    for subject in lda.SUBJECTS:
        assert max(len(set(line.split()) & set(subject.split())) for line in lines) >= 4
    (tmp_path / "docword.txt").write_text("3\n4\n5\n1 1 2\n1 4 1\n2 2 3\n3 1 1\n3 3 2\n")
    (tmp_path / "vocab.txt").write_text("red green blue black\n")
    _, lines = lda.main(str(tmp_path / "docword.txt"), str(tmp_path / "vocab.txt"), topics=2)
    assert set(lines[0].split()) == {"red", "green", "blue", "black"}


def test_examples_are_tested() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert {"boosted_trees", "lda", "matrix_factorisation", "logistic_regression"} <= names
    assert gl.workers() >= 1
