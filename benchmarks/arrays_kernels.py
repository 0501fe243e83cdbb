"""Single functions of girih.array against NumPy's: those of the array API and the most used others.

Each on middle arrays (1,000,000 elements) and on large ones (5,000,000, which no cache holds). With one worker NumPy
computes both in this process, at once or in blocks; `--border 0` leaves them to the worker. A thread for the kernels of
both. CPU seconds of a later call, its plan known and its operands with the worker, until the result is there: the least
of alternating rounds, NumPy's beside. Results are compared. Matrices have as many elements as pay for the function's
work: O(n³) of them are smaller.
`--floor` times NumPy's is allowed; a call under 20 microseconds may take so many more.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy

from benchmarks.common import Benchmark, Report, Row, note

SHORT = 20e-6
ROUND_SECONDS = 0.02
OF_X = """
abs acos asin atan ceil cos cosh exp expm1 floor isfinite isinf isnan log log1p log2 log10 negative positive reciprocal
round sign signbit sin sinh sqrt square tan tanh trunc logical_not exp2 cbrt rint fabs deg2rad rad2deg degrees radians
sinc nan_to_num isneginf
max mean min prod std sum var all any argmax argmin count_nonzero cumsum cumprod cumulative_sum cumulative_prod diff
median ptp average nanmean nansum nanmax nanmin nanstd nanvar nanprod nanargmax nanmedian nancumsum
sort argsort unique_values unique_counts unique_inverse unique_all unique histogram gradient trapezoid
copy ones_like
"""
OF_TWO = """
add subtract multiply divide floor_divide remainder pow atan2 copysign hypot logaddexp maximum minimum nextafter equal
not_equal less less_equal greater greater_equal fmax fmin fmod isclose allclose array_equal float_power heaviside
logical_and logical_or logical_xor dot inner vdot vecdot append
"""
OF_PAIRS = "concatenate hstack vstack stack column_stack dstack"
OF_WHOLE = "bitwise_and bitwise_or bitwise_xor gcd left_shift"
OTHERS = (
    "acosh(x + 1)", "asinh(x)", "atanh(x * 0.5)", "bitwise_invert(i)", "bitwise_right_shift(i, 1)", "sort(i)",
    "unique_values(i)", "bincount(i)", "sum(i)", "cumsum(i)", "isin(i, i[:50])", "floor_divide(i, 7)",
    "remainder(i, 7)", "sum(b)", "any(b)", "nonzero(b)", "flatnonzero(b)", "argwhere(b)", "invert(b)", "conj(z)",
    "real(z) + 0", "imag(z) + 0", "abs(z)", "exp(z)", "angle(z)", "multiply(z, z)", "flip(x) + 0", "ravel(m) + 0",
    "squeeze(m) + 0", "zeros_like(x) + 1", "empty_like(x) * 0 + 1",
    "clip(x, 0.2, 0.8)", "where(b, x, y)", "where(x > 0.5, x, 0.0)", "full_like(x, 2.0)", "astype(x, np.float32)",
    "astype(i, np.float64)", "tile(x, 2)", "repeat(x, 2)", "roll(x, 1)", "take(x, i)", "x[i]", "x[b]", "x[::-1] + 0",
    "x[::2] + 0", "compress(b, x)", "extract(b, x)", "searchsorted(s, x)", "digitize(x, s[:: len(s) // 10])",
    "interp(x, s[::1000], s[::1000])", "percentile(x, 30)", "quantile(x, 0.3)", "partition(x, 10)",
    "argpartition(x, 10)", "polyval(s[:4], x)", "convolve(x, s[:9])", "correlate(x, s[:9])", "lexsort((x, i))",
    "insert(x, 5, 1.0)", "delete(x, 5)", "pad(x, 3)", "split(x, 2)[0] + 0", "array_split(x, 3)[0] + 0",
    "select([b], [x], 0.0)",
    "choose(i % 2, (x, y))", "intersect1d(i[:5000], i)", "union1d(i, i)", "setdiff1d(i, i[:50])",
    "outer(s[:900], s[:900])", "kron(s[:900], s[:900])", "cov(m[:100])", "corrcoef(m[:100])",
    "maximum.accumulate(x)", "add.reduceat(x, s[:9].astype(np.int64))", "fft.fft(z)", "fft.ifft(z)", "fft.rfft(x)",
    "fft.irfft(z)", "fft.fftn(m)", "fft.fftshift(x)",
    "sum(m, axis=0)", "sum(m, axis=1)", "mean(m, axis=0)", "mean(m, axis=1)", "max(m, axis=0)", "std(m, axis=0)",
    "std(m, axis=1)", "argmax(m, axis=1)", "sort(m, axis=0)", "sort(m, axis=1)", "cumsum(m, axis=0)",
    "cumsum(m, axis=1)", "matrix_transpose(m) + 0", "permute_dims(m, (1, 0)) + 0", "moveaxis(m, 0, 1) + 0",
    "swapaxes(m, 0, 1) + 0", "rot90(m) + 0", "reshape(m, (-1,)) + 0", "expand_dims(m, 0) + 0",
    "broadcast_to(m[:, :1], m.shape) + 0",
    "triu(m)", "tril(m)", "trace(m)", "diagonal(m) + 0", "take_along_axis(m, argsort(m, axis=1), 1)", "m + s[: len(m)]",
    "m * m[:, :1]", "matmul(m, m[:, 0])", "matmul(m[:, :200].T, m[:, :200])", "tensordot(m, m[:2], ((1,), (1,)))",
    "einsum('ij,ij->i', m, m)", "meshgrid(s[:900], s[:900])", "zeros(len(x)) + 1", "ones(len(x))", "full(len(x), 2.0)",
    "arange(len(x))", "linspace(0, 1, len(x))", "eye(len(m))", "cross(x[:300].reshape(-1, 3), y[:300].reshape(-1, 3))",
    "matmul(a, a)", "linalg.inv(a)", "linalg.solve(a, a[0])", "linalg.det(a)", "linalg.slogdet(a)", "linalg.qr(a)",
    "linalg.cholesky(p)", "linalg.norm(a)", "linalg.norm(x)", "linalg.svd(c)", "linalg.svdvals(c)", "linalg.eigh(c)",
    "linalg.eigvalsh(c)", "linalg.pinv(c)", "linalg.matrix_rank(c)", "linalg.matrix_power(a, 3)",
)  # fmt: skip


FREE = ("linalg.qr", "linalg.svd(", "linalg.eigh", "partition", "unique_values(i)", "empty_like")
"""What may have several results, by what is in the text."""


def calls() -> Iterator[str]:
    """The text of each call, of x, y (0 to 1), s (sorted), i (whole, small), b (truth), z (complex), m, a, p, c."""
    yield from (f"{name}(x)" for name in OF_X.split())
    yield from (f"{name}(x, y)" for name in OF_TWO.split())
    yield from (f"{name}((x, y))" for name in OF_PAIRS.split())
    yield from (f"{name}(i, i)" for name in OF_WHOLE.split())
    yield from OTHERS


def function_of(text: str, space: Any, data: dict[str, Any]) -> Callable[[], Any]:
    """The call on these data, by its text: names of functions are the namespace's."""
    return eval(f"lambda: {text}", {**vars(space), **data, "np": space})  # type: ignore[no-any-return]


def arrays(size: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(0)
    side, small = int(size**0.5), max(8, int(size**0.5) // 5)
    a = random.random((side // 2, side // 2)) + side * numpy.eye(side // 2)
    return {
        "x": random.random(size), "y": random.random(size), "s": numpy.linspace(0, 1, size),
        "i": random.integers(0, 200, size), "b": random.random(size) < 0.5,
        "z": random.random(size // 2) + 1j * random.random(size // 2), "m": random.random((side, side)),
        "a": a, "p": a @ a.T, "c": (lambda c: c + c.T)(random.random((small, small))),
    }  # fmt: skip


def there(result: Any) -> Any:
    """The result, computed."""
    if isinstance(result, (tuple, list)):
        return [there(part) for part in result]
    return result.persist() if hasattr(result, "persist") else result


def same(expected: Any, found: Any) -> bool:
    if isinstance(expected, (tuple, list)):
        return len(expected) == len(found) and all(map(same, expected, found))
    return numpy.allclose(numpy.asarray(found), expected, rtol=1e-6, atol=1e-9, equal_nan=True)


def seconds(work: Callable[[], Any], calls: int) -> float:
    began = time.process_time()
    for _ in range(calls):
        there(work())
    return (time.process_time() - began) / calls


def compared(text: str, size: int, known: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> Row:
    expected = known()
    agrees = any(name in text for name in FREE) or same(expected, there(ours()))
    del expected
    count = max(1, int(ROUND_SECONDS / max(seconds(known, 1), 1e-7)))
    seconds(ours, 2)  # planned anew: the operands lie with the worker now; then compiled
    pairs = [(seconds(known, count), seconds(ours, count)) for _ in range(rounds)]
    numpys, own = min(one for one, _ in pairs), min(other for _, other in pairs)
    ratio = own / max(numpys, 1e-9)
    return {"call": text, "elements": size, "milliseconds": round(numpys * 1e3, 3), "ratio": round(ratio, 2),
            "more": own - numpys, "same": agrees}  # fmt: skip


@contextmanager
def one_thread(border: float | None) -> Iterator[None]:
    import torch
    from threadpoolctl import threadpool_limits

    import girih

    with threadpool_limits(1, "blas"), girih.cluster(1, backend="threads", small=border) as cluster:
        torch.set_num_threads(1)
        cluster.run.crew.command("measure", [{"task": _one_thread}])
        yield


def _one_thread(*_: Any) -> None:
    import torch

    torch.set_num_threads(1)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--select", default="", metavar="WORD", help="only calls whose text has it")
    parser.add_argument("--border", type=float, metavar="BYTES", help="from which on arrays are left to the worker")
    parser.add_argument("--size", choices=("middle", "large", "both"), default="both", help="of the arrays")


def measure(given: argparse.Namespace) -> Report:
    import girih.array

    rounds = 1 if given.quick else 3
    sizes = {"middle": 2_000, "large": 20_000} if given.quick else {"middle": 1_000_000, "large": 5_000_000}
    chosen = [text for text in calls() if given.select in text]
    chosen = chosen[:: 12 if given.quick and not given.select else 1]
    rows: list[Row] = []
    misses = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with one_thread(100_000 if given.quick and given.border is None else given.border):
            for size in (sizes[name] for name in sizes if given.size in (name, "both")):
                content = arrays(size)
                ours = {name: girih.array.asarray(x).persist() for name, x in content.items()}
                for text in chosen:
                    pair = [function_of(text, space, data) for space, data in ((numpy, content), (girih.array, ours))]
                    row = compared(text, size, *pair, rounds)
                    note(row)
                    rows.append(row)
                    if not row["same"]:
                        misses.append(f"{text}, {size:,}: another result than NumPy's")
                    if row["ratio"] > given.floor and row["more"] > SHORT:
                        misses.append(f"{text}, {size:,}: {row['ratio']:.2f} times NumPy's")
    worst = max((row for row in rows if row["more"] > SHORT), key=lambda row: row["ratio"], default=rows[0])
    summary = f"{len(rows)} calls, at most {worst['ratio']:.2f} times NumPy's ({worst['call']})"
    columns = (("call", "call"), ("elements", "elements"), ("NumPy, ms", "milliseconds"), ("ours ×", "ratio"))
    return Report("Single functions, one thread", columns, tuple(rows), summary, tuple(misses))


BENCHMARK = Benchmark("arrays_kernels", __doc__ or "", measure, 1.2, "times NumPy's", options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
