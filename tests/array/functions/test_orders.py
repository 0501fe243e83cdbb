"""Quantiles and partitions: NumPy's dtypes, infinities, no needless sorting; and options of functions beside them."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from array_cases import DATA, same
from borders import of_large

import girih.array as gnp
from girih.capture.lazy.expressions import Expression

SHARES = ("0.3", "1", "[0.3, 0.4]", "[0, 1]", "np.float32(0.3)", "np.array([0.25], np.float32)")
METHODS = ("lower", "closest_observation", "hazen")
HALF = "np.array([[1, np.inf], [-np.inf, 1], [np.inf, np.inf]])"
CASES = [
    *(f"np.quantile({x}, {q})" for x in ("f[0, 0]", "u", "w.astype(np.float16)", "i > 0") for q in SHARES
      if x != "i > 0" or q == "1"),
    *(f"np.quantile({x}, {q}, method='{method}')" for x in ("f[0, 0]", "u") for q in ("0.3", "[0.3, 0.4]")
      for method in METHODS),
    "np.percentile(f[0], [10, 50], axis=1)", "np.percentile(f, 40)", "np.nanpercentile(f, 40.0)",
    "np.nanquantile(u, [0.2], method='lower')",
    "np.quantile(np.array([2**60 + 1, 2**60 + 3]), 0.2, method='lower')",
    f"np.median({HALF}, axis=1)", f"np.nanmedian({HALF}, axis=1)", "np.median(np.array([1.0, np.nan]))",
    "np.median(np.zeros((3, 0)), axis=0)", "np.median(n[n > 0], keepdims=True)", "np.median(z)",
    "np.partition(a, (1, -2), axis=0)[[1, -2]]", "np.partition(z.ravel(), 3)[3]", "np.partition(i, 4, axis=None)[4]",
    "np.take_along_axis(a, np.argpartition(a, 2, axis=0), 0)[2]", "np.sort(a.T, axis=0)", "np.sort(t, axis=0)",
    # what linspace and its like are made in
    "np.linspace(f[0, 0, 0], f[0, 0, 1], 4)", "np.linspace(np.float16(1), 2, 4)", "np.linspace(f, 1, 3, axis=-1)",
    "np.linspace(1, f[0, 0, 1], 3, retstep=True)", "np.logspace(0, np.float32(2), 3)", "np.linspace(u, 9, 3)",
    "np.geomspace(1j, 16j, 5)", "np.geomspace([1, 2], [4, -8j], 3, axis=1)", "np.geomspace(np.float32(1), 8, 4)",
    # options
    "np.nan_to_num(z * np.nan)", "np.nan_to_num(np.array([complex(np.inf, 1)]), posinf=7)",
    "np.cov(f[0], dtype=np.float32)", "np.corrcoef(f[0], dtype=np.float32)", "np.roll(a, 1, axis=(0, 1))",
    "np.roll(a, (1, 2), axis=0)", "np.roll(a, np.array([1, -2]), (0, 1))", "np.nanmean(n, where=n > 0)",
    "np.nanstd(a, axis=0, where=a > -1)", "np.nanmax(np.array([[np.nan, 1], [np.nan, np.nan]]), axis=1, initial=-3)",
    "np.nanmin(a, axis=0, initial=9, where=a > 0)", "np.polyfit(w, w**3, 2, cov=True)",
    "np.polyfit(w, np.stack([w, w**3], 1), 1, cov='unscaled')", "np.polyfit(w, w**3, 2, full=True)[:4]",
    *(f"np.packbits(i > 0{rest})" for rest in ("", ", axis=0", ", axis=1, bitorder='little'")),
    *(f"np.unpackbits(u.astype(np.uint8).reshape(11, 1){rest})" for rest in
      ("", ", axis=0, count=-5", ", axis=1, count=11, bitorder='little'")),
    "[index + (float(value),) for index, value in np.ndenumerate(a)]",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0):
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", CASES)
def test_as_numpy(text: str) -> None:
    same(text)


def operators(x: Expression) -> set[str]:
    return {x.operator}.union(*(operators(item) for item in x.inputs))


@of_large
def test_what_is_sought_at_known_places_is_not_sorted() -> None:
    x = gnp.array(DATA["w"])
    for made in (gnp.median(x), gnp.percentile(x, [5, 95]), gnp.partition(x, 3)):
        assert {"girih.partition"} <= operators(made.expression)
        assert not {"girih.sort", "girih.sort_indices"} & operators(made.expression)


def test_numbers_in_place() -> None:
    x = gnp.array([1.0, np.nan, np.inf])
    assert gnp.nan_to_num(x, copy=False, posinf=4) is x
    assert x.tolist() == [1.0, 0.0, 4.0]


def test_another_order_of_bytes() -> None:
    for x in (gnp.array(np.arange(3, dtype=">i4")), gnp.asarray(np.arange(3.0).astype(">f8")[::-1])):
        assert x.compute().dtype.isnative
        assert x.compute().dtype == x.dtype
        assert float(x.sum()) == 3


def test_open_files_are_whatever_is_no_path() -> None:
    file = io.BytesIO()
    gnp.save(file, gnp.arange(3))
    file.seek(0)
    assert gnp.load(file).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="PathLike"):
        gnp.load(None)
