"""What NumPy gives as a number: it sees no later writes and takes none. And functions over axes of what has none."""

from __future__ import annotations

import numpy as np
import pytest

import girih.array as gnp

NUMBERS = [
    "x[()]", "x + 1", "x.sum()", "y[0]", "y.sum()", "y.std()", "y.mean()", "np.max(y)", "np.sqrt(x)", "x * 1", "-x",
    "y[1:][0]", "np.median(y)", "y.sum(0)", "y.argmax()", "y @ y", "np.dot(y, y)", "y.flat[1]", "z[0].real", "z.sum()",
    "np.linalg.norm(y)", "np.var(y)", "y.prod()", "y.any()", "np.ptp(y)", "np.quantile(y, 0.5)",
    "np.vdot(y, y)", "np.average(y)", "np.count_nonzero(y > 1)", "np.nansum(y)", "np.cumsum(y)[0]", "x[...][()]",
]  # fmt: skip
ARRAYS = [
    "x",
    "x[...]",
    "np.array(x[()])",
    "y[0:1]",
    "x.reshape(1)",
    "y[..., 0]",
    "np.array(5.0)",
    "x.reshape(())",
    "x.T",
]


def names(space):
    return {
        "np": space, "x": space.array(5.0), "y": space.array(np.arange(4.0)), "z": space.array(np.arange(3) * 1j),
    }  # fmt: skip


def after_writes(space, text):
    """The value after everything that it may come from was written to; what writing to itself raises."""
    made = names(space)
    got = eval(text, made)
    for name in "xyz":
        made[name][...] = 77
    before = np.asarray(got).tolist()
    try:
        got[()] = 3
    except (TypeError, ValueError) as error:
        return before, type(error), np.asarray(got).tolist()
    return before, None, np.asarray(got).tolist(), [np.asarray(made[name]).tolist() for name in "xyz"]


@pytest.mark.parametrize("text", [*NUMBERS, *ARRAYS])
def test_numbers_and_arrays_of_no_dimension(two, text):
    expected, got = after_writes(np, text), after_writes(gnp, text)
    if text in NUMBERS and isinstance(eval(text, names(np)), np.generic):
        assert got[1] is TypeError
    np.testing.assert_equal(got, expected)


def test_what_is_reshaped_from_a_number_is_a_copy(two):
    x = gnp.array(np.arange(4.0))
    number = x.std()
    view = number.reshape(-1)
    view[0] = 9
    assert float(number) == np.arange(4.0).std()
    y = gnp.array(np.arange(6.0).reshape(2, 3))
    y.flat[:3] = [7, 8]
    np.testing.assert_array_equal(np.asarray(y), [[7, 8, 7], [3, 4, 5]])


PROGRAMS = [
    "np.put(y, [0, -1], [])", "np.put(y, [9], [])", "np.put(number, [0], 7)", "np.putmask(y, y > 1, np.array([1.5]))",
    "np.putmask(k, k > 1, np.array([1.5]))", "np.putmask(k, k > 1, 1.5)", "np.putmask(y, y > 1, np.array([7, 8]))",
    "y[y > 0] = np.ones((1, 3))", "y[y > 0] = np.ones((1, 1))", "y[y > 0] = np.ones(3)", "y[y > 0] = np.ones((2, 2))",
    "w[np.array([True, True])] = np.ones((1, 2, 2))", "w[w > 0] = np.ones((1, 3))",
    "a = number.reshape(()); a += 1; b = np.reshape(number, ()); b[()] = 1",
    "a = np.squeeze(number); a[...] = 1", "a = number.reshape(1).reshape(()); a[...] = 1",
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_random_programs_found(two, program):
    ends = []
    for space in (np, gnp):
        given = names(space)
        given |= {"k": space.array(np.arange(4)), "w": space.array(np.arange(4.0).reshape(2, 2))}
        given["number"] = given["y"].sum()
        error = None
        try:
            exec(program, given)
        except (TypeError, ValueError) as raised:
            error = type(raised)
        kept = sorted(name for name in given if len(name) == 1 or name == "number")
        ends.append((error, [(name, np.asarray(given[name]).tolist()) for name in kept]))
    np.testing.assert_equal(ends[1], ends[0])


OVER_AXES = {
    "sum": (), "prod": (), "min": (), "max": (), "mean": (), "std": (), "var": (), "any": (), "all": (), "argmin": (),
    "argmax": (), "nansum": (), "nanprod": (), "nanmin": (), "nanmax": (), "nanmean": (), "nanstd": (), "nanvar": (),
    "nanargmin": (), "nanargmax": (), "median": (), "nanmedian": (), "quantile": (0.5,), "nanquantile": (0.5,),
    "percentile": (50,), "cumsum": (), "cumprod": (), "nancumsum": (), "nancumprod": (), "sort": (), "argsort": (),
    "partition": (0,), "argpartition": (0,), "count_nonzero": (), "ptp": (), "average": (), "cumulative_sum": (),
    "cumulative_prod": (), "flip": (), "take": (0,), "roll": (1,), "repeat": (2,), "squeeze": (),
    "add.reduce": (), "multiply.reduce": (), "maximum.reduce": (), "add.accumulate": (), "logical_or.reduce": (),
}  # fmt: skip


def outcome(space, name, axis):
    function = space
    for part in name.split("."):
        function = getattr(function, part)
    try:
        made = np.asarray(function(space.array(3.5), *OVER_AXES[name], axis=axis))
    except (TypeError, ValueError, IndexError) as error:
        return type(error)
    return made.shape, made.dtype, made.tolist()


@pytest.mark.parametrize("name", OVER_AXES)
def test_axes_of_what_has_none(two, name):
    for axis in (0, -1, 1, -2, None):
        assert outcome(gnp, name, axis) == outcome(np, name, axis), axis
