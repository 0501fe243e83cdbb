"""Functions of fewer users, and options of all, against NumPy's: values, shapes and dtypes, on one worker and three."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from array_cases import same

import girih.array as gnp


@pytest.fixture(scope="module", params=[1, 3], ids=lambda workers: f"workers{workers}")
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        yield made


CASES = [
    "np.add(a, b, where=t)[t]", "np.multiply(a, 2, dtype=np.float32)", "np.add(i, j, dtype=np.float64)",
    "np.add.reduce(a)", "np.add.reduce(a, axis=1, keepdims=True)", "np.multiply.reduce(p, axis=(0, 1))",
    "np.add.reduce(i, initial=5)", "np.maximum.reduce(a, axis=None)", "np.logical_or.reduce(t)", "np.fmax.reduce(a)",
    "np.bitwise_xor.reduce(i, axis=1)", "np.gcd.reduce(j, axis=0)", "np.logaddexp.reduce(a, axis=1)",
    "np.hypot.reduce(a, axis=0)", "np.add.reduce(a, where=t)", "np.maximum.reduce(a, initial=-9.0, where=t)",
    "np.add.accumulate(a)", "np.add.accumulate(t)", "np.multiply.accumulate(t)", "np.add.accumulate(t, dtype=bool)",
    "np.multiply.accumulate(p, axis=1)", "np.maximum.accumulate(a, axis=1)",
    "np.minimum.accumulate(w)", "np.logical_or.accumulate(t, axis=0)", "np.fmin.accumulate(a)", "np.add.outer(v, w)",
    "np.subtract.outer(v, a)", "np.less.outer(v, w)", "np.maximum.outer(v, u)", "np.add.reduceat(w, [0, 3, 2, 5])",
    "np.multiply.reduceat(a, [0, 2, 4], axis=0)", "np.divmod(i, j)", "np.modf(a)", "np.frexp(a)", "np.ldexp(a, 3)",
    "np.spacing(a)", "np.nextafter(a, b)", "np.bitwise_count(i)", "np.gcd(i, j)", "np.lcm(i, j)",
    "np.logaddexp2(a, b)", "np.float_power(p, 2)", "np.modf(n)", "np.frexp(n)", "np.heaviside(a, 0.5)", "np.rint(z)",
    "np.absolute(z)", "np.sign(n)", "np.signbit(n)", "np.isposinf(n)", "np.isneginf(n)", "np.iscomplex(z)",
    "np.isreal(z)", "np.angle(z)", "np.angle(z, deg=True)", "np.real_if_close(z)", "np.real_if_close(z + 0)",
    "np.clip(a, None, 0.5)", "np.clip(a, a_min=-0.5, a_max=0.5)", "np.round(a, 2)", "np.round(i, -1)",
    "np.nan_to_num(n, nan=1.0, posinf=2.0)", "np.sinc(a)", "np.i0(a)", "np.positive(i)",
    # reductions
    "np.sum(a, where=t)", "np.sum(a, axis=1, where=t, initial=2.0)", "np.prod(p, where=p > 0.5)",
    "np.mean(a, where=t)", "np.mean(a, axis=1, where=b > -9)", "np.var(a, where=t)", "np.std(a, axis=0, ddof=1)",
    "np.var(a, mean=a.mean())", "np.std(a, axis=0, where=b > -9)", "np.max(a, initial=9.0)",
    "np.min(a, axis=1, initial=0.0, where=t)", "np.any(t, where=a > 0)", "np.all(t, axis=0, where=a > 0)",
    "np.sum(i, dtype=np.int16)", "np.sum(t)", "np.sum(i.astype(np.uint8))", "np.cumsum(i, dtype=np.int32)",
    "np.prod(i.astype(np.int8), axis=0, dtype=np.int8)", "np.var(z)", "np.std(z, axis=0)", "np.mean(z)",
    "np.mean(f, dtype=np.float64)", "np.mean(a.astype(np.float16))", "np.average(a, weights=b * b, axis=1)",
    "np.average(a, axis=1, weights=np.arange(5) + 1, returned=True)", "np.average(i, returned=True)",
    "np.ptp(a, axis=0)", "np.argmax(a, axis=1, keepdims=True)", "np.max(z)", "np.count_nonzero(i, axis=0)",
    "np.array_equiv(a, a[None])", "np.sum(a, axis=())", "np.median(a, axis=(0, 1))", "np.median(f, axis=(0, 2))",
    "np.median(a, axis=1, keepdims=True)", "np.mean(t)", "np.sort(z)", "np.argmax(z)",
    # without NaN
    "np.nansum(n)", "np.nanprod(n[1:2])", "np.nanmean(n[:2])", "np.nanvar(n[4:])", "np.nanstd(n[4:], ddof=1)",
    "np.nancumsum(n[:2])", "np.nancumprod(n[:2])", "np.nanargmax(n)", "np.nanargmin(n)", "np.nanmedian(n[:2])",
    "np.nanquantile(n[[0, 1, 5, 6]], 0.3)", "np.nanpercentile(n[[0, 1, 5, 6]], [10, 90])", "np.nanmean(i)",
    "np.nanmedian(np.where(t, a, np.nan), axis=0)", "np.nanmean(np.where(t, a, np.nan), axis=0)",
    "np.nanvar(np.where(t, a, np.nan), axis=1)", "np.nanmax(np.where(t, a, np.nan), axis=1)",
    # scans and differences
    "np.diff(a, 2)", "np.diff(a, prepend=0.0)", "np.diff(a, axis=0, append=a[:1])", "np.ediff1d(w)",
    "np.ediff1d(w, to_begin=[7.0], to_end=[8.0, 9.0])", "np.gradient(w)", "np.gradient(a)",
    "np.gradient(a, 2.0, axis=1)", "np.gradient(w, np.arange(9) ** 2.0)", "np.gradient(a, edge_order=2)",
    "np.gradient(w, np.arange(9) ** 2.0, edge_order=2)", "np.gradient(i, 1, 2)",
    "np.unwrap(np.cumsum(a, axis=1) * 3)", "np.unwrap(i, period=4)",
    # order and sets
    "np.partition(w, 3)[3]", "np.sort(np.partition(a, 2, axis=0)[:2], axis=0)", "np.lexsort([u % 2, u])",
    "np.lexsort([i[:, 0], i[:, 1]])", "np.sort_complex(w)", "np.searchsorted(np.sort(w), a, side='right')",
    "np.searchsorted(w, v, sorter=np.argsort(w))", "np.searchsorted(np.sort(n), n)",
    "np.digitize(w, [1.0, 0.0, -1.0])", "np.bincount(u, minlength=3)", "np.bincount(u[:0])", "np.unique(i, axis=0)",
    "np.unique(i % 2, axis=1, return_counts=True)", "np.unique(i, return_inverse=True, return_counts=True)",
    "np.unique_all(i)", "np.unique_counts(u)", "np.unique_inverse(i)", "np.unique(n, equal_nan=False)",
    "np.setxor1d(u, [1, 2, 99])", "np.isin(i, np.arange(40) - 20)", "np.isin(a, b)",
    "np.intersect1d(i, j, return_indices=True)", "np.setdiff1d(i, j)", "np.unique(z.real > 0)",
    "np.sort(i.astype(np.uint16), axis=0)", "np.argsort(i.astype(np.uint64) % 5, axis=1)", "np.extract(t, a)",
    # statistics
    *(f"np.quantile(a, [0.0, 0.3, 1.0], axis=1, method={name!r})" for name in
      ("lower", "higher", "nearest", "midpoint", "hazen", "weibull", "median_unbiased", "normal_unbiased",
       "interpolated_inverted_cdf")),
    "np.percentile(f, 40, axis=(0, 2))", "np.percentile(a, [[5, 10], [50, 75]], axis=0, keepdims=True)",
    "np.quantile(n, 0.5)", "np.cov(a, b)", "np.cov(a, bias=True)", "np.cov(a, fweights=[1, 2, 1, 1, 3])",
    "np.cov(a, aweights=[0.1, 0.2, 0.3, 0.4, 0.5])", "np.cov(z)", "np.corrcoef(a, b)", "np.corrcoef(a, rowvar=False)",
    "np.histogram(a, bins=7, density=True)", "np.histogram(u)", "np.histogram(w, bins='auto')",
    "np.histogram(w, bins='sturges')", "np.histogram(a, bins='fd')", "np.histogram(a, bins='scott')",
    "np.histogram(w, bins=[-1.0, 0.0, 0.0, 2.0])", "np.histogram(u, bins=3, weights=u)",
    "np.histogram_bin_edges(w, 5)", "np.histogram2d(a[:, 0], a[:, 1], bins=3)[0]",
    "np.histogram2d(a[:, 0], a[:, 1], bins=[2, 3], density=True)", "np.histogramdd(a[:, :3], bins=2)[0]",
    "np.histogramdd(a[:, :2], bins=(2, 3), weights=a[:, 2])[0]",
    # numerics
    "np.interp(w, [0.0, 1.0, 2.0], [3.0, 5.0, 4.0], left=-7.0, right=7.0)", "np.interp(n, [0.0, 1.0], [1.0, 2.0])",
    "np.interp(w, [0.2, 1.2, 2.9], [1.0, 2.0, 0.0], period=3.0)",
    "np.trapezoid(a, x=np.cumsum(p, axis=0)[:1, :1] + np.arange(5))", "np.trapezoid(a, x=np.sort(b, axis=0), axis=0)",
    "np.convolve(w, v)", "np.convolve(w, v, 'same')", "np.convolve(v, w, 'valid')", "np.convolve(u, [1, 2])",
    "np.correlate(w, v)", "np.correlate(w, v, 'full')", "np.correlate(v, w, 'full')",
    "np.correlate(z[0], z[1], 'same')", "np.correlate(w, v[:4], 'same')", "np.correlate(v[:4], w, 'same')",
    "np.correlate(v, w, 'same')", "np.cross(a[:, :2], b[:, :3])", "np.cross(a[:3].T, b[:3].T)",
    "np.cross(a[:3], b[:3], axis=0)", "np.choose(u[:5] % 3, [v, 2 * v, 3 * v])", "np.choose(i, [a, b], mode='wrap')",
    "np.choose(i, [a, b, a], mode='clip')", "np.piecewise(a, [a < 0, a > 1], [-1, lambda x: x * 2, 5])",
    "np.piecewise(w, w < 0, [lambda x: -x, 0])", "np.apply_along_axis(lambda row: row.sum() * 2, 1, a)",
    "np.apply_along_axis(lambda row: row[:2], 0, a)", "np.apply_over_axes(np.sum, f, [0, 2])",
    "np.polyval([1.0, -2.0, 3.0], a)", "np.matvec(f, v)", "np.vecmat(z, z)", "np.mask_indices(3, np.triu)",
    "np.polyadd(v, [1.0, 2.0])", "np.polysub([1], v)", "np.polymul(v, [1.0, 2.0])", "np.polyder(v)",
    "np.polyder(v, 2)", "np.polyint(v)", "np.polyint(v, 2, [1.0, 2.0])", "np.poly([1.0, -2.0, 3.0])",
    "np.sort(np.roots([1.0, -6.0, 11.0, -6.0]))", "np.polyfit(w, np.cos(w), 3)",
    "np.polyfit(w, np.arange(18.0).reshape(9, 2), 2)", "np.polyfit(w, w**2, 2, w=w**2 + 1)", "np.hanning(7)",
    "np.hamming(6)", "np.blackman(8)", "np.bartlett(9)", "np.kaiser(7, 5.0)", "np.hanning(1)",
    # transforms
    "np.fft.fft(z)", "np.fft.ifft(a, axis=0)", "np.fft.fft(a, 8, norm='ortho')", "np.fft.rfft(a)",
    "np.fft.irfft(z, 7)", "np.fft.hfft(z)", "np.fft.ihfft(a)", "np.fft.fft2(f)", "np.fft.ifft2(z)", "np.fft.rfftn(f)",
    "np.fft.irfftn(z, axes=(0, 1))", "np.fft.fftn(f, s=(3, 4), axes=(0, 1))", "np.fft.fftfreq(7, 0.5)",
    "np.fft.rfftfreq(8)", "np.fft.fftshift(a)", "np.fft.ifftshift(a, axes=1)", "np.fft.fft(i)", "np.fft.rfft2(a)",
    "np.fft.irfft2(z)",
    # shapes and positions
    "np.hsplit(a, [2])", "np.vsplit(a, [3])", "np.dsplit(f, [1, 3])", "np.block([[a, a], [b, b]])",
    "np.block([v, w])", "np.insert(a, 2, 7.0, axis=0)", "np.insert(a, [1, 3], v[:2], axis=1)",
    "np.insert(w, [0, 0, 9], [1.0, 2.0, 3.0])", "np.insert(a, 1, v, axis=0)", "np.delete(a, 2, axis=0)",
    "np.delete(w, [0, -1])", "np.delete(a, slice(1, 3), axis=1)", "np.resize(v, (2, 4))",
    "np.trim_zeros(np.array([0, 0, 1, 0, 2, 0]))", "np.diagflat(v)", "np.tril_indices(3)", "np.triu_indices_from(a)",
    "np.diag_indices(3)", "a[np.ix_([0, 2], [1, 3])]", "np.unravel_index(u, (3, 2))",
    "np.ravel_multi_index(([0, 2], [1, 3]), (7, 5))", "np.ravel_multi_index(([0, 9], [1, 7]), (7, 5), mode='wrap')",
    "np.size(a, 1)", "np.ndim(a)", "np.shape(a)", "np.broadcast_shapes((3, 1), (1, 4))", "np.copy(a)",
    # borders
    "np.pad(a, 2)", "np.pad(a, ((1, 2), (0, 3)), constant_values=7)",
    "np.pad(a, 1, constant_values=((1, 2), (3, 4)))", "np.pad(a, {0: (1, 2)})", "np.pad(a, 3, 'edge')",
    "np.pad(a, (2, 4), 'reflect')", "np.pad(a, 9, 'symmetric')", "np.pad(a, (8, 1), 'wrap')",
    "np.pad(v, (2, 3), 'reflect', reflect_type='odd')", "np.pad(a, 2, 'maximum')",
    "np.pad(v, 2, 'symmetric', reflect_type='odd')", "np.pad(a, 2, 'mean', stat_length=2)", "np.pad(i, 1, 'mean')",
    "np.pad(i, 2, 'median')", "np.pad(a, ((0, 0), (1, 1)), 'minimum', stat_length=((1, 2),))",
    "np.pad(a, (3, 2), 'linear_ramp', end_values=(-1, 4))", "np.pad(i, 3, 'linear_ramp')", "np.pad(t, 1)",
    # creation
    "np.linspace([0.0, 1.0], [1.0, 3.0], 4)", "np.linspace(0, 1, 4, axis=0, retstep=True)",
    "np.linspace(v, 1, 3, axis=1)", "np.logspace(0, 3, 4, base=2)", "np.geomspace(-1, -8, 4)",
    "np.geomspace(1, 1000, 4, dtype=int)", "np.arange(0, 5, 0.5, dtype=int)", "np.arange(3, dtype=np.uint16)",
    "np.full((2, 2), [1, 2])", "np.full(3, 2**63, dtype=np.uint64)", "np.full(2, 1j)",
    "np.meshgrid(v, w, sparse=True)", "np.indices((2, 3), sparse=True)", "np.vander(u[:3])",
    "np.frombuffer(b'12', np.uint8)", "np.fromiter(range(3), float)", "np.array([[v], [v]])",
    "np.eye(2, dtype=np.uint32)", "np.zeros((0, 3))", "np.zeros_like(a, shape=(2,))", "np.asarray(a, np.float32)",
    "np.tri(3, dtype=bool)",
    # dtypes
    "i.astype(np.uint16)", "i.astype(np.uint32) + 1", "i.astype(np.uint64) * np.uint64(3)",
    "i.astype(np.uint16).sum(0)", "i.astype(np.uint32) @ j.T.astype(np.uint32)", "i.astype(np.uint16)[::-1, [0, 2]]",
    "i.astype(np.uint16) / 2", "np.where(t, i.astype(np.uint32), 0)", "i.astype(np.uint32).max(1)",
    "np.tril(i.astype(np.uint16))", "i.astype(np.uint16) // 3", "-i.astype(np.uint32)", "~i.astype(np.uint16)",
    "i.astype(np.uint16) << 2", "np.cumsum(i.astype(np.uint16), axis=0)", "i.astype(np.uint64) < 5",
    "np.concatenate([u.astype(np.uint16), u])", "a.astype(np.float16) * 2", "a.astype(np.float16).sum(0)",
    "z.astype(bool)", "z + np.inf", "z < z[::-1]", "np.maximum(z, z.T)", "z.max(0)", "np.result_type(i, 1.0)",
    "np.can_cast(np.int8, np.int16)", "np.min_scalar_type(300)", "np.issubdtype(i.dtype, np.integer)",
    "np.promote_types(np.uint8, np.int8)", "np.iscomplexobj(z)", "np.isrealobj(a)",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", list(dict.fromkeys(CASES)))
def test_as_numpy(cluster: gnp.Cluster, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(text)
