"""Descriptions computed for many tensors at once, in whole numbers: the same as PyTorch, however large they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from girih.ops import TensorType
from girih.ops.describe import describe_call
from girih.workshop.generate.exact import function_of, hashes

CALLS = [
    ("aten.mm", {"self": (3, 4), "mat2": (4, 2)}, {}, (3, 2), lambda a, b: a @ b),
    ("aten.t", {"self": (3, 4)}, {}, (4, 3), lambda a: a.T),
    ("aten.relu", {"self": (3, 4)}, {}, (3, 4), lambda a: np.maximum(a, 0)),
    ("aten.add.Tensor", {"self": (3, 4), "other": (4,)}, {}, (3, 4), lambda a, b: a + b),
    ("aten.cat", {"tensors.0": (2, 3), "tensors.1": (4, 3)}, {"dim": 0}, (6, 3), lambda a, b: np.concatenate((a, b))),
    ("aten.amax", {"self": (3, 4)}, {"dim": (1,)}, (3,), lambda a: a.max(1)),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
@given(seed=st.integers(0, 1000))
def test_many_tensors_at_once_are_as_each_alone(call: tuple, seed: int) -> None:
    name, shapes, attributes, shape, oracle = call
    types = {key: TensorType(item, "float64") for key, item in shapes.items()}
    description = describe_call(name, types, attributes, TensorType(shape, "float64"))
    random = np.random.default_rng(seed)
    operands = [random.integers(-(1 << 62), 1 << 62, (5, *item)) for item in shapes.values()]
    results = function_of(description, exact=True)([item.reshape(5, -1) for item in operands])
    for number, result in enumerate(results):
        with np.errstate(over="ignore"):
            assert np.array_equal(result.reshape(shape), oracle(*(item[number] for item in operands)))


@given(seed=st.integers(0, 1000))
def test_windows_are_as_pytorch_has_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, w = random.integers(-9, 10, (4, 1, 4, 5, 3)) * 9, random.integers(-9, 10, (4, 2, 2, 3, 3))
    types = {"input": TensorType((1, 4, 5, 3), "float64"), "weight": TensorType((2, 2, 3, 3), "float64")}
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
    attributes = {"bias": None, **window, "transposed": False, "output_padding": (0, 0), "groups": 2}
    convolution = describe_call("aten.convolution", types, attributes, TensorType((1, 2, 5, 3), "float64"))
    results = function_of(convolution, exact=True)([x.reshape(4, -1), w.reshape(4, -1)])
    for number, result in enumerate(results):
        expected = torch.nn.functional.conv2d(
            *(torch.from_numpy(item[number]).double() for item in (x, w)), padding=1, groups=2
        )
        assert np.array_equal(result.reshape(expected.shape), expected.numpy())
    pooling = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1)}
    mean = describe_call("aten.avg_pool2d", {"self": types["input"]}, pooling, types["input"])
    for number, result in enumerate(function_of(mean, exact=True)([x.reshape(4, -1)])):
        expected = torch.nn.functional.avg_pool2d(torch.from_numpy(x[number]).double(), 3, 1, 1)
        assert np.array_equal(result.reshape(expected.shape), expected.numpy().round())


def test_equal_contents_of_other_shapes_differ() -> None:
    values = np.arange(6)[None]
    assert hashes(values, 1) != hashes(values, 2)
    assert hashes(values.astype(float), 1) == hashes(values * (1 + 1e-13), 1)
    assert hashes(values.astype(float), 1) != hashes(values * (1 + 1e-6), 1)
