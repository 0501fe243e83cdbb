"""What stands beside descriptions for NumPy is what PyTorch computes, where PyTorch has a kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checking import apply, to_torch
from samples import SAMPLES

from girih.kernels.evaluate import call
from girih.kernels.numpy_fallback import numpy_call, with_numpy
from girih.kernels.own import KERNELS
from girih.ops import TensorType
from girih.ops.catalogue import catalogue

WRITTEN = sorted(name for name, item in catalogue().items() if item.numpy is not None)


@pytest.mark.parametrize("operator", WRITTEN)
def test_numpy_computes_what_pytorch_does(operator: str) -> None:
    for seed in range(20):
        arguments = {name: to_torch(value) for name, value in SAMPLES[operator](np.random.default_rng(seed)).items()}
        whole = apply(operator, arguments, None)
        output = TensorType(tuple(whole.shape), str(whole.dtype).removeprefix("torch."))
        if arguments.get("reduce") == "mean" or not arguments.get("include_self", True):
            with pytest.raises(NotImplementedError, match="NumPy only sum, prod, amax, amin"):
                numpy_call(operator, arguments, output)
            continue
        np.testing.assert_allclose(numpy_call(operator, arguments, output), whole.numpy(), rtol=1e-12)


def test_complex_numbers_are_sorted_as_numpy_does() -> None:
    values = torch.tensor([2 + 1j, 1 + 5j, 2 + 0j])
    names = ["self", "stable", "dim", "descending"]
    sort = with_numpy("aten.sort.stable", torch.ops.aten.sort.stable, names, 0, values.shape, "complex64")
    assert sort(values, stable=True, dim=0)[0].tolist() == [1 + 5j, 2 + 0j, 2 + 1j]
    assert sort(values, stable=True, dim=0, descending=True)[0].tolist() == [2 + 1j, 2 + 0j, 1 + 5j]


def test_infinities_stay_where_pytorch_multiplies_by_one_first() -> None:
    infinite = torch.tensor([complex(float("inf"), 0)])
    names = ["self", "other", "alpha"]
    assert torch.sub(torch.zeros_like(infinite), infinite).isnan().all()
    sub = with_numpy("aten.sub.Tensor", torch.sub, names, None, infinite.shape, "complex64")
    assert not sub(torch.zeros_like(infinite), infinite).isnan().any()


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten.zeros", {"size": (2, 3)}),
        ("aten.full", {"size": (2, 3), "fill_value": 1.0}),
        ("aten.arange.start_step", {"start": 0, "end": 6}),
        ("girih.constant", {"data": (1, 2), "size": (2,), "dtype": "int64"}),
    ],
)
def test_what_makes_tensors_makes_them_on_the_device(operator: str, arguments: dict[str, object]) -> None:
    assert call(operator, arguments, torch.device("meta")).device.type == "meta"
    assert call(operator, arguments).device.type == "cpu"


def test_kernels_without_a_device_are_called_without_one() -> None:
    assert "girih.head_product" in KERNELS
    product = call("girih.head_product", dict.fromkeys(("self", "mat2"), torch.ones(1, 1, 2, 2)), torch.device("cpu"))
    assert product.tolist() == [[[[2.0, 2.0], [2.0, 2.0]]]]
