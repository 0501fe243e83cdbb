"""NumPy's kernels of arrays: that they write where they are told, and which processors they are for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from girih.kernels import exact, own
from girih.kernels.exact import EXACT_KERNELS, INTO_KERNELS
from girih.kernels.own import KERNELS
from girih.ops.derive.in_place import INTO

PROCESSORS = {
    "AVX2": ({"ff": "X86_V3", "dd": "X86_V3"}, {torch.float32}),
    "AVX2 without loops of its own": ({"ff": "baseline(X86_V2)", "dd": "baseline(X86_V2)"}, set()),
    "AVX-512": ({"ff": "X86_V4", "dd": "X86_V4"}, {torch.float32, torch.float64}),
    "AVX-512 in NumPy 2.3": ({"ff": "AVX512_SKX", "dd": "AVX512F"}, {torch.float32, torch.float64}),
    "another function": ({}, set()),
}


OTHERWISE = {"sgn": "sign", "neg": "negative"} | {
    f"a{name}": f"arc{name}" for name in ("cos", "sin", "tan", "cosh", "sinh", "tanh")
}
"""What NumPy calls a function that PyTorch names otherwise."""


def test_the_planner_knows_which_write_into_memory() -> None:
    assert set(INTO_KERNELS) == INTO


@pytest.mark.parametrize("name", PROCESSORS)
def test_loops_of_doubles_are_wide_with_avx_512_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With AVX2 NumPy's exponential of doubles takes 2.4 times as long as PyTorch's."""
    introspect = pytest.importorskip("numpy.lib.introspect")
    current, expected = PROCESSORS[name]
    loops = {"exp": {kind: {"current": loop, "available": loop} for kind, loop in current.items()}}
    monkeypatch.setattr(introspect, "opt_func_info", lambda func_name: loops if current else {})
    assert exact._wide("exp") == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_doubles_are_numpys_where_its_loops_are_wide(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(exact, "_wide", lambda name: frozenset({torch.float64}))
    kernel = exact._quicker(np.exp, lambda x, out: out.fill_(-1.0))
    x = torch.linspace(-1, 1, 7, dtype=dtype)
    expected = np.exp(x.numpy()) if dtype == torch.float64 else np.full(7, -1.0, np.float32)
    np.testing.assert_array_equal(kernel(x, out=torch.empty_like(x)).numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in sorted(INTO) if name[6:] not in exact.TRUTHS])
def test_results_are_written_where_they_belong(name: str, dtype: torch.dtype) -> None:
    function = getattr(np, OTHERWISE.get(name[6:], name[6:]))
    x = torch.linspace(0.1, 0.9, 24, dtype=dtype).reshape(4, 6) + (1 if name == "girih.acosh" else 0)
    expected = function(x.numpy())
    for operand in (x, x.T.contiguous().T, x[:, ::2]):
        known = torch.from_numpy(np.ascontiguousarray(function(operand.numpy())))
        torch.testing.assert_close(EXACT_KERNELS[name](operand), known)
    out = torch.full_like(x, 7.0)
    assert INTO_KERNELS[name](x, out=out) is out
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
    assert INTO_KERNELS[name](x, out=x) is x
    assert torch.equal(x, out)


@pytest.mark.parametrize("name", exact.TRUTHS)
def test_truths_are_written_where_they_belong(name: str) -> None:
    x, out = torch.tensor([1.0, -torch.inf, torch.nan]), torch.empty(3, dtype=torch.bool)
    INTO_KERNELS[f"girih.{name}"](x, out=out)
    np.testing.assert_array_equal(out.numpy(), getattr(np, name)(x.numpy()))
    assert torch.equal(EXACT_KERNELS[f"girih.{name}"](x), out)


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the arrays in which NumPy looked for places, in a worker of one thread."""
    found: list[tuple[int, ...]] = []

    def watched(x, axis, out):
        found.append(x.shape)
        return find(x, axis=axis, out=out)

    find = np.argmax
    monkeypatch.setattr(own.np, "argmax", watched)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("keepdim", [True, False])
def test_places_in_long_rows_are_numpys(by_numpy: list, dtype: torch.dtype, keepdim: bool) -> None:
    """Of equal numbers the first; NaN is the largest."""
    x = torch.randint(0, 9, (50, 64), generator=torch.Generator().manual_seed(0)).to(dtype)
    x[3, 40] = x[3, 50] = torch.nan
    for dim in (1, -1):
        made = KERNELS["girih.argmax"](x, dim, keepdim)
        np.testing.assert_array_equal(made.numpy(), x.numpy().argmax(1, keepdims=keepdim))
    assert by_numpy == [(50, 64)] * 2


@pytest.mark.parametrize(
    ("x", "dim"),
    [
        (torch.rand(50, 8), 1),  # short rows
        (torch.rand(50, 64), 0),
        (torch.rand(64, 50).T, 1),
        (torch.randint(0, 9, (50, 64)), 1),
    ],
)
def test_other_places_are_pytorchs(by_numpy: list, x: torch.Tensor, dim: int) -> None:
    np.testing.assert_array_equal(KERNELS["girih.argmax"](x, dim).numpy(), x.max(dim)[1].numpy())
    assert by_numpy == []
