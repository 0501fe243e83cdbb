"""girih's own operators: against PyTorch's, in pieces, and against Philox's published vectors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from girih.kernels import own
from girih.kernels.own import KERNELS, OVER_FIRST, add_logsumexp_
from girih.kernels.philox import philox

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 1e-1}


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    bound = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound)


def same(name: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(actual, expected), name


def call(name: str, *arguments: object, **attributes: object) -> torch.Tensor:
    """Run a kernel and hold it to its word: it does not write into its arguments."""
    before = [item.clone() if isinstance(item, torch.Tensor) else None for item in arguments]
    result = KERNELS[f"girih.{name}"](*arguments, **attributes)
    for old, item in zip(before, arguments, strict=True):
        if isinstance(item, torch.Tensor):
            same(name, item, old)
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_and_its_gradients(dtype: torch.dtype, affine: bool) -> None:
    x = draw(4, 3, 5, 2, dtype=dtype).requires_grad_()
    weight = draw(3, dtype=dtype, seed=1).requires_grad_() if affine else None
    bias = draw(3, dtype=dtype, seed=2).requires_grad_() if affine else None
    grad = draw(4, 3, 5, 2, dtype=dtype, seed=3)
    y = F.batch_norm(x, None, None, weight, bias, training=True, eps=1e-5)
    expected = torch.autograd.grad(y, [t for t in (x, weight, bias) if t is not None], grad)
    dims, count = (0, 2, 3), 40
    with torch.no_grad():
        wide = [None if t is None else t.reshape(1, 3, 1, 1) for t in (weight, bias)]
        mean = call("mean", x, dims=dims, keepdim=True, count=count)
        scale = (call("centered_square_mean", x, mean, dims=dims, count=count) + 1e-5).rsqrt()
        close(call("normalise", x, mean, scale, *wide), y.detach())
        dot = call("normalised_dot", grad, x, mean, scale, wide[0], dims=dims)
        total = (grad if wide[0] is None else grad * wide[0]).sum(dims, keepdim=True)
        mine = call("normalise_input_gradient", grad, x, mean, scale, wide[0], total, dot, count=count)
        close(mine, expected[0])
        if affine:
            close(call("normalised_dot", grad, x, mean, scale, None, dims=dims).reshape(3), expected[1])


CHANNELS = [(4, 3, 5, 7), (2, 5, 40), (3, 2, 2, 3, 4), (6, 1, 4, 4), (2, 3, 2, 2)]


def as_it_is_written(x: torch.Tensor, grad: torch.Tensor, numbers: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """A normalised tensor, the sums by channel, and the gradient by the input, from their formulas in float64."""
    x, grad = x.double(), grad.double()
    mean, scale, weight, bias, total, dot = (None if item is None else item.double() for item in numbers)
    assert mean is not None
    assert scale is not None
    unit = (x - mean) * scale
    scaled = unit * (1 if weight is None else weight) + (0 if bias is None else bias)
    sums = (grad * unit).sum([d for d in range(x.dim()) if d != 1], keepdim=True)
    weighted = grad if weight is None else grad * weight
    return [scaled, sums, scale * (weighted - (total + unit * dot) / 100)]


@pytest.mark.parametrize("shape", CHANNELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("affine", [True, False])
def test_numbers_of_channels_are_any_and_pieces_add_up(shape: tuple, dtype: torch.dtype, affine: bool) -> None:
    """What PyTorch's own kernels compute of it depends on no moments of theirs: pieces get the whole's."""
    x, grad = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
    wide = (1, shape[1], *(1,) * (len(shape) - 2))
    numbers = [draw(*wide, dtype=dtype, seed=seed) for seed in range(2, 8)]
    mean, scale, weight, bias, total, dot = (
        item if affine or at not in (2, 3) else None for at, item in enumerate(numbers)
    )
    expected = as_it_is_written(x, grad, [mean, scale, weight, bias, total, dot])
    dims = tuple(d for d in range(len(shape)) if d != 1)

    def results(x: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
        alike = torch.empty_strided(x.shape, x.stride(), dtype=dtype).copy_(x)
        over = OVER_FIRST["girih.normalise"](alike, mean, scale, weight, bias)
        same("written over the input", over, call("normalise", x, mean, scale, weight, bias))
        sums = call("normalised_dot", grad, x, mean, scale, None, dims=dims)
        return [over, sums, call("normalise_input_gradient", grad, x, mean, scale, weight, total, dot, count=100)]

    for mine, other in zip(results(x, grad), expected, strict=True):
        close(mine, other.to(dtype))
    turned = results(*(item.transpose(0, -1).contiguous().transpose(0, -1) for item in (x, grad)))  # in no order
    for mine, other in zip(turned, expected, strict=True):
        close(mine, other.to(dtype))
    for dim in (0, len(shape) - 1):
        pieces = [results(*each) for each in zip(x.tensor_split(2, dim), grad.tensor_split(2, dim), strict=True)]
        first, sums, gradient = zip(*pieces, strict=True)
        for mine, other in zip((torch.cat(first, dim), sum(sums), torch.cat(gradient, dim)), expected, strict=True):
            close(mine, other.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmaxes_and_their_gradients(dtype: torch.dtype) -> None:
    x, grad = draw(3, 7, dtype=dtype).requires_grad_(), draw(3, 7, dtype=dtype, seed=1)
    total = call("logsumexp", x.detach(), dims=(1,))
    y = F.softmax(x, 1)
    output = call("softmax_from", x.detach(), total)
    close(output, y.detach())
    dot = call("product_sum", grad, output, dims=(1,))
    close(call("softmax_gradient", grad, output, dot), torch.autograd.grad(y, x, grad)[0])
    z = F.log_softmax(x, 1)
    close(call("log_softmax_from", x.detach(), total), z.detach())
    summed = grad.sum(1, keepdim=True)
    close(call("log_softmax_gradient", grad, z.detach(), summed), torch.autograd.grad(z, x, grad)[0])


@pytest.mark.parametrize("size", [1e4, 1e6])
def test_softmaxes_of_large_numbers_are_exact(size: float) -> None:
    """In float32 a logarithm of a sum of 10⁶ is wrong by 0.03, and so would be each probability."""
    x = draw(4, 9, dtype=torch.float32) + size
    total = call("logsumexp", x, dims=(1,))
    torch.testing.assert_close(call("softmax_from", x, total), F.softmax(x, 1), rtol=1e-6, atol=0)
    torch.testing.assert_close(call("log_softmax_from", x, total), F.log_softmax(x, 1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(OVER_FIRST["girih.log_softmax_from"](x.clone(), total), F.log_softmax(x, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2.0**29, 2.0**30, 2.0**31 + 2.0**8, 1e12, 1e30, torch.finfo(torch.float32).max])
def test_softmaxes_of_rows_that_are_all_masked_are_uniform(dtype: torch.dtype, size: float) -> None:
    """Beside the maximum even float64 has no room for a logarithm: each probability would be 1."""
    size = min(size, torch.finfo(dtype).max)
    x = torch.full((4, 7), -size, dtype=dtype)
    x[1, 2:] = torch.finfo(dtype).min
    x[2] = size
    x[3, 3] = 1.0
    total = call("logsumexp", x, dims=(1,))
    close(call("softmax_from", x, total), F.softmax(x, 1))
    torch.testing.assert_close(call("log_softmax_from", x, total), F.log_softmax(x, 1), rtol=2e-2, atol=1e-5)
    parts = [call("logsumexp", part, dims=(1,)) for part in x.split([3, 1, 3], 1)]
    for part in parts[1:]:
        add_logsumexp_(parts[0], part)
    close(call("softmax_from", x, parts[0]), F.softmax(x, 1))
    nothing = torch.full_like(parts[0], -torch.inf)
    add_logsumexp_(nothing, parts[0])
    close(call("softmax_from", x, nothing), F.softmax(x, 1))


def test_a_softmax_of_nothing_that_counts_is_no_number_as_pytorchs() -> None:
    x = torch.tensor([[-torch.inf, -torch.inf], [-torch.inf, 0.0]])
    output = call("softmax_from", x, call("logsumexp", x, dims=(1,)))
    torch.testing.assert_close(output, F.softmax(x, 1), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pick_and_place_add_up_over_pieces(dtype: torch.dtype) -> None:
    x, index = draw(4, 9, 5, dtype=dtype), torch.randint(-1, 9, (4, 5), generator=torch.Generator().manual_seed(1))
    valid = index >= 0
    expected = x.gather(1, index.clamp(min=0)[:, None])[:, 0] * valid
    close(call("pick", x, index, dim=1), expected)
    pieces = [call("pick", x[:, a:b], index, dim=1, first=a) for a, b in ((0, 4), (4, 5), (5, 9))]
    close(sum(pieces[1:], pieces[0]), expected)
    value = draw(4, 5, dtype=dtype, seed=2)
    whole = call("place", value, index, dim=1, size=9)
    close(whole, torch.zeros_like(x).scatter(1, index.clamp(min=0)[:, None], (value * valid)[:, None]))
    close(torch.cat([call("place", value, index, dim=1, size=b - a, first=a) for a, b in ((0, 4), (4, 9))], 1), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding_and_its_gradient_add_up_over_pieces(dtype: torch.dtype) -> None:
    table = draw(10, 4, dtype=dtype).requires_grad_()
    index = torch.randint(0, 10, (3, 5), generator=torch.Generator().manual_seed(1))
    grad = draw(3, 5, 4, dtype=dtype, seed=2)
    y = F.embedding(index, table, padding_idx=int(index[0, 0]))
    close(call("embedding", table.detach(), index), y.detach())
    pieces = [call("embedding", table.detach()[a:b], index, first=a) for a, b in ((0, 3), (3, 10))]
    close(pieces[0] + pieces[1], y.detach())
    (expected,) = torch.autograd.grad(y, table, grad)
    options = {"padding": int(index[0, 0])}
    close(call("embedding_gradient", grad, index, rows=10, **options), expected)
    halves = [call("embedding_gradient", grad, index, rows=b - a, first=a, **options) for a, b in ((0, 3), (3, 10))]
    close(torch.cat(halves), expected)


def test_philox_vectors() -> None:
    zeros = torch.zeros(1, dtype=torch.int64)
    ones = zeros + 0xFFFFFFFF
    pi = [zeros + word for word in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
    assert [int(w) for w in philox([zeros] * 4, (0, 0))] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(w) for w in philox([ones] * 4, (0xFFFFFFFF,) * 2)] == [
        0x408F276D,
        0x41C83B0E,
        0xA20BC7C6,
        0x6D5451FD,
    ]
    made = [int(w) for w in philox(pi, (0xA4093822, 0x299F31D0))]
    assert made == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("random_uniform", {"dtype": "float32"}),
        ("random_uniform", {"dtype": "float64"}),
        ("random_uniform", {"dtype": "bfloat16"}),
        ("random_normal", {"dtype": "float32"}),
        ("random_mask", {"keep": 0.3}),
        ("random_integers", {"low": -2, "high": 5}),
    ],
)
def test_pieces_draw_what_the_whole_draws(name: str, options: dict) -> None:
    full, seed = (3, 5, 7), torch.tensor(2**40 + 3)
    whole = call(name, seed, stream=2, size=full, start=(0, 0, 0), full=full, **options)
    for start, size in itertools.product([(0, 0, 0), (1, 2, 3), (2, 0, 0)], [(1, 3, 4), (1, 1, 1), (1, 5, 7)]):
        ends = [min(a + b, c) for a, b, c in zip(start, size, full, strict=True)]
        window = tuple(slice(a, b) for a, b in zip(start, ends, strict=True))
        local = tuple(b - a for a, b in zip(start, ends, strict=True))
        same(name, call(name, seed, stream=2, size=local, start=start, full=full, **options), whole[window])
    other = call(name, seed, stream=3, size=full, start=(0, 0, 0), full=full, **options)
    assert not torch.equal(other, whole)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"stream": 0, "size": (6, 50), "start": (0, 0), "full": (6, 50), "dtype": "float64"}
    whole = call("random_normal", torch.tensor(1), **arguments)
    monkeypatch.setattr("girih.kernels.philox.CHUNK_WORDS", 24)
    same("random_normal", call("random_normal", torch.tensor(1), **arguments), whole)


def test_moments() -> None:
    size = (400, 500)
    arguments = {"stream": 0, "size": size, "start": (0, 0), "full": size}
    normal = call("random_normal", torch.tensor(1), **arguments)
    assert abs(float(normal.mean())) < 0.01
    assert abs(float(normal.std()) - 1) < 0.01
    uniform = call("random_uniform", torch.tensor(1), **arguments)
    assert 0 <= float(uniform.min()) < 1e-4 < 1 - 1e-4 < float(uniform.max()) < 1
    mask = call("random_mask", torch.tensor(1), **arguments, keep=0.8)
    assert abs(float(mask.double().mean()) - 0.8) < 0.01
    whole = call("random_integers", torch.tensor(1), **arguments, low=3, high=6)
    assert whole.unique().tolist() == [3, 4, 5]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution_and_pooling_gradients(dtype: torch.dtype, rank: int) -> None:
    x = draw(2, 4, *[9, 8, 7][:rank], dtype=dtype).requires_grad_()
    weight = draw(6, 2, *[3, 2, 3][:rank], dtype=dtype, seed=1).requires_grad_()
    options = {"stride": (2,) * rank, "padding": (1,) * rank, "dilation": (1,) * rank}
    y = (F.conv1d, F.conv2d, F.conv3d)[rank - 1](x, weight, **options, groups=2)
    grad = draw(*y.shape, dtype=dtype, seed=2)
    by_input, by_weight = torch.autograd.grad(y, (x, weight), grad)
    with torch.no_grad():
        mine = call("convolution_input_gradient", grad, weight, input_size=x.shape, **options, groups=2)
        close(mine, by_input)
        mine = call("convolution_weight_gradient", grad, x, weight_size=weight.shape, **options, groups=2)
        close(mine, by_weight)
    window = {"kernel_size": (3,) * rank, **options, "ceil_mode": True}
    y = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1](x, *window.values())
    grad = draw(*y.shape, dtype=dtype, seed=3)
    (expected,) = torch.autograd.grad(y, x, grad)
    close(call("max_pool", x.detach(), **window), y.detach())
    close(call("max_pool_gradient", grad, x.detach(), **window), expected)


def test_apply_mask_and_constant() -> None:
    x = draw(2, 3, dtype=torch.float32)
    mask = torch.tensor([[True, False, True]] * 2)
    close(call("apply_mask", x, mask, scale=2.0), x * mask * 2)
    made = call("constant", ((1, 2), (3, 4)), size=(2, 2), dtype="int64")
    same("constant", made, torch.tensor([[1, 2], [3, 4]]))


def test_ridge_regression_of_every_row_is_that_of_what_is_rated() -> None:
    ratings, features = draw(5, 7), draw(7, 3, seed=1)
    ratings[draw(5, 7, seed=2) < 0] = 0
    ratings[4] = 0
    found = call("ridge_rows", ratings, features, penalty=0.3)
    for row, solution in zip(ratings, found, strict=True):
        rated = row != 0
        near, count = features[rated], int(rated.sum())
        wide = torch.cat([near, (0.3 * count) ** 0.5 * torch.eye(3, dtype=torch.float64)])
        expected = torch.linalg.lstsq(wide, torch.cat([row[rated], torch.zeros(3, dtype=torch.float64)])).solution
        close(solution, expected if count else torch.zeros(3, dtype=torch.float64))


TENTHS = st.integers(-30, 30).map(lambda number: number / 10)


@given(
    edges=st.one_of(
        st.lists(st.one_of(TENTHS, st.floats(allow_nan=False)), min_size=2, max_size=9).map(sorted),
        st.tuples(TENTHS, st.floats(1e-3, 9), st.integers(1, 40)).map(
            lambda t: np.linspace(t[0], t[0] + t[1], t[2] + 1)
        ),
    ),
    numbers=st.lists(st.one_of(TENTHS, st.floats()), max_size=40),
    picked=st.lists(st.integers(0, 40), max_size=9),
    whole=st.booleans(),
)
def test_bins_are_numpys(edges, numbers, picked, whole) -> None:
    """On the edges themselves too, and however they lie."""
    edges = np.asarray(edges, float)
    with np.errstate(all="ignore"):
        near = [np.nextafter(edges[place % len(edges)], side) for place in picked for side in (-np.inf, np.inf)]
        values = np.asarray([*numbers, *near, *edges])
        if whole:
            values, edges = (np.nan_to_num(item).clip(-(2**60), 2**60).astype(np.int64) for item in (values, edges))
    with np.errstate(all="ignore"):
        counts = KERNELS["girih.bin_counts"](torch.from_numpy(values), torch.from_numpy(edges)).numpy()
        np.testing.assert_array_equal(counts, np.histogram(values, edges)[0])


COUNT_BINS = own._count_bins


def test_bins_are_numpys_where_they_are_counted_in_one_pass(monkeypatch) -> None:
    """Of many numbers; those on the edges and beside them belong where NumPy has them."""
    counted = []
    monkeypatch.setattr(own, "_count_bins", lambda *arrays: counted.append(COUNT_BINS.machine(*arrays)))
    random = np.random.default_rng(0).normal(size=20_000)
    for bins in (1, 7, 50, 1000):
        edges = np.linspace(-1.7, 0.9, bins + 1)
        near = [np.nextafter(edges, side) for side in (-np.inf, np.inf)]
        numbers = np.concatenate([random, edges, *near, [np.nan, np.inf, -np.inf]])
        counts = KERNELS["girih.bin_counts"](torch.from_numpy(numbers), torch.from_numpy(edges)).numpy()
        np.testing.assert_array_equal(counts, np.histogram(numbers, bins, (edges[0], edges[-1]))[0])
    assert len(counted) == 4
