"""A NumPy script with another import, and code that knows NumPy only, give on girih arrays what they give on NumPy."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import girih.array as gnp
from girih.array.core.evaluation import BORDER

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "arrays"


@pytest.fixture(autouse=True, params=[0, None], ids=["large", "small"])
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with (
        gnp.cluster(workers=3, backend="threads", timeout=60.0, small=request.param) as made,
        np.errstate(all="ignore"),
    ):
        yield made


def test_a_script_of_which_the_import_was_changed(capsys: pytest.CaptureFixture[str]) -> None:
    path = FOLDER / "unchanged.py"
    text = path.read_text(encoding="utf-8")
    runpy.run_path(str(path))
    got = capsys.readouterr().out
    assert text.count("girih") == 1
    exec(compile(text.replace("import girih.array as np", "import numpy as np"), "unchanged", "exec"), {})
    assert got == capsys.readouterr().out
    assert "beats per second: [1.25 3.5 ]" in got


def test_code_that_knows_numpy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import protocols

    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert protocols.main(["--rows", "500"]) == pytest.approx(expected(protocols))
    assert "Array of 0." in shown.getvalue()
    x = gnp.array(protocols.data(30)[0])
    assert isinstance(protocols.Scaler().fit(x).transform(x), gnp.Array)
    del sys.modules["protocols"]


def expected(protocols: object) -> float:
    x, y = protocols.data(500)  # type: ignore[attr-defined]
    scaled = protocols.Scaler().fit(x).transform(x)  # type: ignore[attr-defined]
    return float(protocols.score(y, protocols.Ridge().fit(scaled, y).predict(scaled)))  # type: ignore[attr-defined]


def test_scikit_learn_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    monkeypatch.syspath_prepend(str(FOLDER))
    import scikit_learn
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge

    x, y = scikit_learn.data(400)
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        r2, accuracy = scikit_learn.main(["--rows", "400"])
    assert "Array, R²" in shown.getvalue()
    scaled = (x - x.mean(0)) / x.std(0)
    assert r2 == pytest.approx(Ridge(solver="svd").fit(scaled, y).score(scaled, y))
    assert accuracy == pytest.approx(LinearDiscriminantAnalysis().fit(x, y > 0).score(x, y > 0))
    del sys.modules["scikit_learn"]


def test_functions_and_methods_of_numpy() -> None:
    """Dispatch of functions, of functions in submodules, and of universal functions' methods."""
    x = np.arange(12.0).reshape(3, 4)
    ours = gnp.array(x)
    for function in (
        lambda a: np.concatenate([a, a]),
        lambda a: np.fft.rfft(a),
        lambda a: np.linalg.norm(a, axis=1),
        lambda a: np.add.reduce(a, axis=1),
        lambda a: np.multiply.accumulate(a + 1, axis=1),
        lambda a: np.subtract.outer(a[0], a[1]),
        lambda a: np.where(a > 3, a, 0),
        lambda a: np.einsum("ij,kj->ik", a, a),
        lambda a: np.maximum(np.ones(4), a),
        lambda a: np.float64(2) * a,
        lambda a: x + a,
        lambda a: np.median(a, axis=0),
        lambda a: np.clip(a, 1, 5),
        lambda a: np.gradient(a, axis=0),
        lambda a: np.nanmean(a, axis=0, keepdims=True),
    ):
        got = function(ours)
        assert isinstance(got, gnp.Array)
        np.testing.assert_allclose(got.compute(), function(x), atol=1e-12)


def test_what_is_not_there_says_so() -> None:
    x = gnp.zeros(3)
    with pytest.raises(TypeError, match=r"girih.array has no bmat: use np.block"):
        x.__array_function__(np.bmat, (gnp.Array,), (x,), {})
    with pytest.raises(AttributeError, match=r"girih.array has no frompyfunc: its results are Python objects"):
        _ = gnp.frompyfunc
    with pytest.raises(AttributeError, match=r"girih.array has no meann, and NumPy has none either.* is mean"):
        _ = gnp.meann
    with pytest.raises(AttributeError, match=r"girih.array.fft has no fft3"):
        _ = gnp.fft.fft3
    if BORDER.bytes == 0:  # of small arrays NumPy has them
        with pytest.raises(TypeError, match=r"girih.array has no divide.at"):
            np.divide.at(x, [0], 2.0)
        with pytest.raises(TypeError, match=r"girih.array.power has no reduce"):
            gnp.power.reduce(x)
