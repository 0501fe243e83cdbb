"""What other libraries ask of an array: do two share memory, DLPack's parameters, scikit-learn's estimators."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import girih.array as gnp
from girih.array.core.evaluation import BORDER


def test_scikit_learn_clusters_our_arrays(two):
    from sklearn.cluster import KMeans

    points = np.random.default_rng(0).normal(size=(60, 3))
    expected = KMeans(3, n_init=2, random_state=0).fit(points)
    got = KMeans(3, n_init=2, random_state=0).fit(gnp.array(points))
    np.testing.assert_array_equal(got.labels_, expected.labels_)
    np.testing.assert_allclose(got.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(got.predict(gnp.array(points)), expected.predict(points))


SHARING = [
    "x, x", "x, x[2:5]", "x[2:5], x[4:]", "x[2:5], x[5:]", "x[::2], x[1::2]", "x, x[::-1]", "x, x + 1", "x, x.copy()",
    "x, x[[0, 1]]", "x, x[x > 2]", "x, x[3]", "x[:0], x", "x.reshape(2, 5)[0], x[4:6]", "x.reshape(2, 5).T, x",
    "z.real, z.imag[:1]", "z.real, z", "x, z",
]  # fmt: skip


@pytest.mark.parametrize("pair", SHARING)
def test_arrays_share_elements_as_numpys_do(two, pair):
    answers = []
    for space in (np, gnp):
        x = space.array(np.arange(10.0))
        a, b = eval(pair, {"x": x, "z": space.array(np.arange(3) * 1j)})
        answers.append(np.shares_memory(a, b))
        assert np.may_share_memory(a, b) >= np.shares_memory(a, b)
    # the parts of a complex number are one element of a large array
    assert answers[1] == (answers[0] or ("imag" in pair and BORDER.bytes == 0))


def test_what_is_numpys_is_asked_of_numpy(two):
    x = np.arange(4)
    assert gnp.shares_memory(x, x[1:])
    assert gnp.may_share_memory(x, x[1:])
    assert not gnp.shares_memory(x, gnp.array(x))
    assert not np.may_share_memory(gnp.array(x), x)


def test_dlpack_has_the_standards_parameters(two):
    ours = gnp.array(np.arange(6.0)) * 2
    for given in ({}, {"copy": True}, {"copy": None}, {"max_version": (1, 0)}, {"dl_device": (1, 0)}, {"stream": None}):
        assert type(ours.__dlpack__(**given)).__name__ == "PyCapsule"
    np.testing.assert_array_equal(np.from_dlpack(ours, copy=True), np.arange(6) * 2.0)
    np.testing.assert_array_equal(torch.from_dlpack(ours).numpy(), np.arange(6) * 2.0)
    with pytest.raises(BufferError, match="copy=False"):
        np.from_dlpack(ours, copy=False)
    with pytest.raises(BufferError, match="dl_device"):
        ours.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="no streams"):
        ours.__dlpack__(stream=1)
    with pytest.raises(ValueError, match="copy"):
        gnp.from_dlpack(np.arange(3), copy=False)


def test_what_was_handed_over_is_a_copy(two):
    ours = gnp.array(np.arange(6.0))
    theirs = torch.from_dlpack(ours)
    theirs[0] = 9
    ours[1] = 7
    assert float(ours[0]) == 0
    assert theirs[1] == 1
