"""`import girih.array as np`: NumPy's names on lazy arrays that girih tiles and distributes.

Nothing is computed until a value is needed: by printing, float(), if, iteration or `compute()`. The graph of all that
is needed is then planned by the exact search, lowered and run by workers: threads of this process, or those of
`girih.cluster`. Live arrays stay with the workers as tiles.

The rooms, from the lowest: `core` (what an array is: its expression, dtype, views, x[…] and x[…] = …), `functions`
(NumPy's, by what they do), `random`, `linalg`, `io` (files, stores, sources), the small modules `fft` and `lib`, and
`methods`, which gives the class Array the functions as its operators and methods. Each imports from lower ones only.
`session` (clusters, plans, limits of memory, what is shown) stands on `core` alone, which asks it for values through
`core.evaluation`.
"""

# fmt: off

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy
from numpy import bool_ as bool
from numpy import isdtype as isdtype
from numpy import (
    False_, True_, base_repr, binary_repr, bool_, broadcast_shapes, byte, cdouble, complex128, complex64,
    complexfloating, csingle, double, dtype, e, errstate, euler_gamma, float16, float32, float64, floating,
    format_float_positional, format_float_scientific, generic, get_printoptions, getbufsize, geterr, geterrcall,
    half, index_exp, inexact, inf, int16, int32, int64, int8, int_, intc, integer, intp, issubdtype, long, longlong,
    mintypecode, nan, ndindex, newaxis, number, pi, printoptions, promote_types, s_, set_printoptions, setbufsize,
    seterr, seterrcall, short, signedinteger, single, typename, ubyte, uint, uint16, uint32, uint64, uint8, uintc,
    uintp, ulong, ulonglong, unsignedinteger, ushort, bytes_, datetime64, str_, timedelta64, datetime_data,
)

from girih.array import at_once, fft, lib, linalg, methods, random, stride_tricks
from girih.array.core import evaluation
from girih.array.functions.shapes.arrangement import (
    append, block, copyto, delete, diagflat, dsplit, fill_diagonal, hsplit, may_share_memory, pad, resize,
    shares_memory, trim_zeros, vsplit,
)
from girih.array.core.array import Array
from girih.array.functions.shapes.creation import (
    arange, array, asanyarray, asarray, ascontiguousarray, c_, empty, empty_like, eye, from_dlpack, from_numpy,
    fromfunction, full, full_like, identity, indices, linspace, logspace, meshgrid, mgrid, ogrid, ones, ones_like, r_,
    tri, zeros, zeros_like,
)
from girih.array.functions.elementwise.ufuncs import (
    abs, absolute, acos, acosh, add, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, around, asin,
    asinh, atan, atan2, atanh, ceil, clip, conj, conjugate, copysign, cos, cosh, deg2rad, degrees, divide, divmod,
    exp, exp2, expm1, fabs, fix, floor, floor_divide, fmax, fmin, fmod, gcd, hypot, imag, isclose, lcm, log, log10,
    log1p, log2, logaddexp, logaddexp2, maximum, minimum, mod, multiply, nan_to_num, negative, nextafter, positive,
    pow, power, rad2deg, radians, real, reciprocal, remainder, result_type, rint, round, sign, signbit, sin, sinh,
    sqrt, square, subtract, tan, tanh, true_divide, trunc, where,
    angle, bitwise_count, cbrt, copy, float_power, frexp, heaviside, iscomplex, isneginf, isposinf, isreal, ldexp,
    modf, real_if_close, spacing,
)
from girih.array.io.files import (
    from_function_of_index, from_hdf5, from_memmap, from_npy, from_npz, from_source, from_zarr, load, newarray,
    save, savez, savez_compressed, to_hdf5, to_npy, to_zarr,
)
from girih.array.functions.shapes.picking import (
    argwhere, compress, extract, flatnonzero, nonzero, take, take_along_axis,
)
from girih.array.functions.elementwise.information import (
    __array_namespace_info__, can_cast, finfo, iinfo, min_scalar_type,
)
from girih.array.functions.products import (
    dot, einsum, einsum_path, inner, kron, matmul, outer, tensordot, vdot, vecdot,
)
from girih.array.functions.elementwise.logic import (
    bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift, bitwise_xor,
    equal, greater, greater_equal, invert, isfinite, isinf, isnan, left_shift, less, less_equal, logical_and,
    logical_not, logical_or, logical_xor, not_equal, right_shift,
)
from girih.array.functions.shapes.manipulation import (
    array_split, astype, atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_to, column_stack, concat,
    concatenate, diag, diagonal, dstack, expand_dims, flip, fliplr, flipud, hstack, matrix_transpose, moveaxis,
    permute_dims, ravel, repeat, reshape, roll, rollaxis, rot90, split, squeeze, stack, swapaxes, tile,
    transpose, tril, triu, unstack, vstack,
)
from girih.array.functions.elementwise.numerics import (
    choose, convolve, correlate, cross, i0, interp, matvec, poly1d, polyval, select, sinc, trapezoid, vecmat,
)
from girih.array.functions.reductions.reduce import (
    all, allclose, amax, amin, any, argmax, argmin, array_equal, average, count_nonzero, max, mean, min, prod, ptp,
    std, sum, trace, var,
)
from girih.array.functions.reductions.scans import cumprod, cumsum, cumulative_prod, cumulative_sum, diff, gradient
from girih.array.functions.reductions.sets import (
    intersect1d, isin, setdiff1d, union1d, unique, unique_all, unique_counts, unique_inverse, unique_values,
)
from girih.array.functions.reductions.sorting import (
    argpartition, argsort, bincount, digitize, lexsort, partition, searchsorted, sort, topk,
)
from girih.array.functions.sparse import SparseArray, from_scipy
from girih.array.functions.reductions.statistics import (
    corrcoef, cov, histogram, histogram_bin_edges, median, percentile, quantile,
)
from girih.array.functions.tile_functions import (
    filter, fold, join_update, map, scan, slice, swapaxis, vectorize,
)
from girih.array.functions.reductions.without_nan import (
    nanargmax, nanargmin, nancumprod, nancumsum, nanmax, nanmean, nanmedian, nanmin, nanpercentile, nanprod,
    nanquantile, nanstd, nansum, nanvar,
)
from girih.array.functions.whole import FUNCTIONS as _WHOLE
from girih.array.functions.whole import nditer
from girih.array.core.unsupported import missing

globals().update(_WHOLE)
methods.attach(sys.modules[__name__])
at_once.attach(
    {sys.modules[__name__]: numpy, fft: numpy.fft, linalg: numpy.linalg, stride_tricks: numpy.lib.stride_tricks,
     random: numpy},
    methods.METHODS, methods.UFUNC_METHODS,
)
evaluation.set_default(lambda: __getattr__("Cluster")())
ndarray = Array
__array_api_version__ = "2024.12"


_SESSION = {
    "Cluster": "clusters", "cluster": "clusters", "EvaluationError": "materialised", "Explanation": "explain",
    "MemoryLimitError": "limits", "explain": "explain",
}
"""What has to do with workers, and where: loaded with the first large work, as PyTorch is."""


def __dir__() -> list[str]:
    return [*globals(), *_SESSION]


def __getattr__(name: str) -> Any:
    if name in _SESSION:
        found = globals()[name] = getattr(importlib.import_module(f"girih.array.session.{_SESSION[name]}"), name)
        return found
    if name in ("exceptions", "polynomial", "ma", "char", "strings", "rec"):  # NumPy's own take our arrays
        return importlib.import_module(f"numpy.{name}")
    if name == "testing":  # which takes a while to load
        return importlib.import_module("girih.array.testing")
    raise missing(__name__, name, globals())
