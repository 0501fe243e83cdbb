"""Scaled dot-product attention and its gradients, as one operator each (Dao et al., "FlashAttention", NeurIPS 2022).

On a processor PyTorch's fused kernels compute them, wherever query and value have equally many features; elsewhere the
same is done in blocks of rows, so that no matrix of scores is ever whole. What PyTorch's kernel cannot say is put
together of several calls, exactly:

- heads that share keys: one call for each head of a group;
- rows that begin at `first`, as a piece of a divided plan has them: what all rows see, and the square at the end of
  it, merged by the logarithms of the sums of their exponentials.

`attention_blocks` leaves that merging to the graph: what the rows find in each block of keys, and the logarithms by
which results of several devices are put together (Liu et al., "Ring attention", ICLR 2024). Its gradients read no
result of the whole, but the logarithms and one number of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from girih.ops.derive.temporaries import slice_size

Tensor = Any  # torch is untyped for the type checker
aten = torch.ops.aten

_OPTIONS = "float scale, Tensor? mask=None, bool causal=False, int first=0"
torch.library.define("girih::attention", f"(Tensor query, Tensor key, Tensor value, {_OPTIONS}) -> (Tensor, Tensor)")
torch.library.define(
    "girih::attention_backward",
    f"(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor output, Tensor logsumexp, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor)",
)


def _exact(dtype: Any) -> Any:
    """In what numbers of a dtype are added up."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _results(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    out = query.new_empty((*query.shape[:3], value.shape[3]))
    return out, query.new_empty(query.shape[:3], dtype=_exact(query.dtype))


torch.library.register_fake("girih::attention", lambda query, key, value, *_, **__: _results(query, value))
torch.library.register_fake(
    "girih::attention_backward",
    lambda grad, query, key, value, *_, **__: tuple(item.new_empty(item.shape) for item in (query, key, value)),
)


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, ctx.scale, mask, ctx.causal, ctx.first = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(query, key, value, *output, mask)


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    *tensors, mask = ctx.saved_tensors
    return *torch.ops.girih.attention_backward(grad, *tensors, ctx.scale, mask, ctx.causal, ctx.first), *[None] * 4


torch.library.register_autograd("girih::attention", _differentiate, setup_context=_remember)


def attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None = None, causal: bool = False,
    first: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """([batch, heads, rows, features], [batch, heads, rows]): what each row of the query [batch, heads, rows, width]
    finds under the keys [batch, some heads, keys, width], of the values [batch, some heads, keys, features]; and the
    logarithms of the sums of the exponentials of its scores, 0 where it sees no key.

    mask: added to the scores, or of truth values, true where a row sees a key; it broadcasts. causal: row t sees the
    keys up to t + first.
    """
    _check(query, key, value, mask)
    groups = query.shape[1] // key.shape[1]
    if groups == 1:
        return _rows(query, key, value, scale, _added(mask, query), causal, first)
    out, total = _results(query, value)
    for group in range(groups):
        heads = slice(group, None, groups)
        part = _rows(query[:, heads], key, value, scale, _added(_of_heads(mask, heads), query), causal, first)
        out[:, heads], total[:, heads] = part
        del part
    return out, total


def attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, logsumexp: Tensor, scale: float,
    mask: Tensor | None = None, causal: bool = False, first: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients by query, key and value, of `attention`'s results and operands. first: where it is negative, the
    first rows see no key."""
    _check(query, key, value, mask)
    shapes = (*query.shape[:3], value.shape[3]), query.shape[:3]
    if grad.shape != shapes[0] or output.shape != shapes[0] or logsumexp.shape != shapes[1]:
        raise ValueError(
            f"grad and output must be {list(shapes[0])}, logsumexp {list(shapes[1])}, to fit query and value: got "
            f"{list(grad.shape)}, {list(output.shape)} and {list(logsumexp.shape)}"
        )
    if causal and first < 0:
        grad_, query_, output_, total = (item[:, :, -first:] for item in (grad, query, output, logsumexp))
        seen = mask if mask is None or mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., -first:, :]
        by_query, *others = attention_backward(grad_, query_, key, value, output_, total, scale, seen, causal)
        whole = torch.zeros_like(query, memory_format=torch.contiguous_format)
        whole[:, :, -first:] = by_query
        return (whole, *others)  # type: ignore[return-value]
    groups = query.shape[1] // key.shape[1]
    if groups == 1:
        added = _added(mask, query)
        return _rows_backward(grad, query, key, value, output, logsumexp, scale, added, causal, first)
    by_query = query.new_empty(query.shape)
    sums = [torch.zeros(item.shape, dtype=_exact(item.dtype), device=item.device) for item in (key, value)]
    for group in range(groups):
        heads = slice(group, None, groups)
        grad_, query_, output_, total_ = (item[:, heads] for item in (grad, query, output, logsumexp))
        added = _added(_of_heads(mask, heads), query)
        part = _rows_backward(grad_, query_, key, value, output_, total_, scale, added, causal, first)
        by_query[:, heads] = part[0]
        for total, more in zip(sums, part[1:], strict=True):
            total += more
        del part, more
    return by_query, sums[0].to(key.dtype), sums[1].to(value.dtype)


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    """PyTorch's kernels look at no size.

    Raises:
        ValueError: the operands do not fit together.
    """
    four = query.dim() == key.dim() == value.dim() == 4
    if not four or 0 in key.shape[1:3] or key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0]:
        fits = False
    else:
        fits = query.shape[3] == key.shape[3] and query.shape[1] % key.shape[1] == 0
    if not fits:
        shapes = ", ".join(f"{name} {list(item.shape)}" for name, item in zip("qkv", (query, key, value), strict=True))
        raise ValueError(
            "attention takes query [batch, heads, rows, width], key [batch, some heads, keys, width] and value [batch, "
            f"some heads, keys, features], of whole groups of heads: got {shapes}"
        )
    scores = (*query.shape[:3], key.shape[2])
    if mask is not None and not (
        mask.dim() <= 4 and all(a in (1, b) for a, b in zip(mask.shape[::-1], scores[::-1], strict=False))
    ):
        raise ValueError(f"the mask must broadcast to {list(scores)}, got {list(mask.shape)}")


def _of_heads(mask: Tensor | None, heads: slice) -> Tensor | None:
    return mask if mask is None or mask.dim() < 3 or mask.shape[-3] == 1 else mask[..., heads, :, :]


def _added(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """A mask of four dimensions that is added to scores."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        seen = mask
        mask = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device).masked_fill_(~seen, -torch.inf)
    return mask.to(query.dtype)[(None,) * (4 - mask.dim())]


# ------------------------------------------------------------------------------------------- parts of the keys


def _rows(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool, first: int
) -> tuple[Tensor, Tensor]:
    """Rows of which each has keys of its own head."""
    if not causal or first == 0:
        return _whole(query, key, value, scale, mask, causal)
    if first >= key.shape[2]:
        return _whole(query, key, value, scale, mask, False)
    of_all, square = _two_parts(key.shape[2], query.shape[2], first)
    results = []
    for part in (of_all, square):
        cut = _cut(mask, part)
        results.append(_whole(query, key[:, :, part], value[:, :, part], scale, cut, part is square))
    (out, total), (other, other_total) = results
    del results
    whole = torch.logaddexp(total, other_total)
    out.mul_(total.sub_(whole).exp_().unsqueeze(-1))
    out.add_(other.mul_(other_total.sub_(whole).exp_().unsqueeze(-1)))
    return out, whole


def _rows_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, total: Tensor, scale: float,
    mask: Tensor | None, causal: bool, first: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    operands = out, total, scale
    if not causal or first == 0:
        return _whole_backward(grad, query, key, value, *operands, mask, causal)
    if first >= key.shape[2]:
        return _whole_backward(grad, query, key, value, *operands, mask, False)
    by_key, by_value = key.new_zeros(key.shape), value.new_zeros(value.shape)
    of_all, square = _two_parts(key.shape[2], query.shape[2], first)
    by_query = None
    for part in (of_all, square):
        keys, values = key[:, :, part], value[:, :, part]
        made = _whole_backward(grad, query, keys, values, *operands, _cut(mask, part), part is square)
        by_query = made[0] if by_query is None else by_query.add_(made[0])
        by_key[:, :, part], by_value[:, :, part] = made[1:]
        del made
    return by_query, by_key, by_value


def _two_parts(keys: int, rows: int, first: int) -> tuple[slice, slice]:
    """The keys that all of the rows see, and those behind them that some do."""
    return slice(0, first), slice(first, min(first + rows, keys))


def _cut(mask: Tensor | None, part: slice) -> Tensor | None:
    return mask if mask is None or mask.shape[-1] == 1 else mask[..., part]


# ------------------------------------------------------------------------------------------- one call


def _fused(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Does PyTorch's kernel take these?"""
    known = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    sizes = query.shape[3] == key.shape[3] == value.shape[3]
    return query.is_cpu and query.dtype in known and sizes and 0 not in (*query.shape, *key.shape)


def _dense(item: Tensor) -> Tensor:
    """Features side by side, as PyTorch's kernel reads them."""
    return item if item.stride(-1) == 1 else item.contiguous()


def _whole(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    if not _fused(query, key, value):
        return _by_blocks(query, key, value, scale, mask, causal)
    operands = _dense(query), _dense(key), _dense(value)
    out, total = aten._scaled_dot_product_flash_attention_for_cpu(*operands, 0.0, causal, attn_mask=mask, scale=scale)
    del operands
    return out.contiguous(), total.contiguous()


def _whole_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, total: Tensor, scale: float,
    mask: Tensor | None, causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    if not _fused(query, key, value):
        return _by_blocks_backward(grad, query, key, value, out, total, scale, mask, causal)
    dense = [_dense(item) for item in (grad, query, key, value, out)]
    results = list(
        aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *dense, total, 0.0, causal, attn_mask=mask, scale=scale
        )
    )
    del dense
    for number in range(3):
        results[number] = results[number].contiguous()
    return tuple(results)  # type: ignore[return-value]


def _blocks(query: Tensor, keys: int) -> Iterator[slice]:
    """Rows of which the scores are small."""
    row = max(query.shape[0] * query.shape[1] * keys * _exact(query.dtype).itemsize, 1)
    extent = max(slice_size(query.is_cuda) // row, 1)
    return (slice(start, start + extent) for start in range(0, query.shape[2], extent))


def _scores(
    query: Tensor, key: Tensor, scale: float, mask: Tensor | None, causal: bool, rows: slice, first: int = 0
) -> Tensor:
    scores = (query[:, :, rows].to(key.dtype) * scale) @ key.mT
    if mask is not None:
        scores += mask if mask.shape[-2] == 1 else mask[:, :, rows]
    if causal:
        row = torch.arange(first + rows.start, first + rows.start + scores.shape[2], device=query.device)
        hidden = row[:, None] < torch.arange(key.shape[2], device=query.device)
        scores.masked_fill_(hidden, -torch.inf)
    return scores


def _by_blocks(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    out, total = _results(query, value)
    key, value = key.to(total.dtype), value.to(total.dtype)
    for rows in _blocks(query, key.shape[2]):
        scores = _scores(query, key, scale, mask, causal, rows)
        sums = torch.logsumexp(scores, -1)
        sums.masked_fill_(sums == -torch.inf, 0.0)
        out[:, :, rows] = scores.sub_(sums.unsqueeze(-1)).exp_() @ value
        total[:, :, rows] = sums
    return out, total


def _by_blocks_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, total: Tensor, scale: float,
    mask: Tensor | None, causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    def mean(rows: slice) -> Tensor:
        return (grad[:, :, rows].to(total.dtype) * out[:, :, rows]).sum(-1, keepdim=True)

    return _from_mean(grad, query, key, value, mean, total, scale, mask, causal)


def _from_mean(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mean: Callable[[slice], Tensor], total: Tensor,
    scale: float, mask: Tensor | None, causal: bool, first: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients. mean: of some rows the products of the result and its gradient, added up over the features."""
    exact = total.dtype
    own_key, own_value = key.to(exact), value.to(exact)
    by_query = query.new_empty(query.shape)
    by_key, by_value = (torch.zeros(item.shape, dtype=exact, device=item.device) for item in (key, value))
    for rows in _blocks(query, key.shape[2]):
        scores = _scores(query, own_key, scale, mask, causal, rows, first)
        shares = scores.sub_(total[:, :, rows].unsqueeze(-1)).exp_()
        grads = grad[:, :, rows].to(exact)
        by_value += shares.mT @ grads
        change = (grads @ own_value.mT).sub_(mean(rows)).mul_(shares).mul_(scale)
        by_query[:, :, rows] = change @ own_key
        by_key += change.mT @ query[:, :, rows].to(exact)
    return by_query, by_key.to(key.dtype), by_value.to(value.dtype)


# ------------------------------------------------------------------------------------------- blocks of keys


def attention_blocks(
    query: Tensor, key: Tensor, value: Tensor, scale: float, blocks: int, mask: Tensor | None = None,
    causal: bool = False, first: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """([blocks, batch, heads, rows, features], [blocks, batch, heads, rows, 1]): `attention` under each of so many
    equal blocks of the keys. A row that sees no key of a block finds zeros there, and the logarithm is -inf.

    first: as in `attention`, also negative: then the first rows see no key at all. A mask, or causal.
    """
    _check(query, key, value, mask)
    made = [
        _block(query, key[:, :, keys], value[:, :, keys], scale, _cut(mask, keys), causal, first - keys.start)
        for keys in _equal(key, blocks)
    ]
    if blocks == 1:
        return made[0][0].unsqueeze(0), made[0][1].unsqueeze(0)
    return torch.stack([out for out, _ in made]), torch.stack([total for _, total in made])


def attention_blocks_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mean: Tensor, logsumexp: Tensor, scale: float, blocks: int,
    mask: Tensor | None = None, causal: bool = False, first: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients by the query, of each block of keys [blocks, batch, heads, rows, width], by key, and by value.

    logsumexp: [batch, heads, rows], of all keys there are; mean: [batch, heads, rows, 1], the products of what all of
    them gave and `grad`, added up over the features.
    """
    _check(query, key, value, mask)
    by_query = query.new_zeros((blocks, *query.shape))
    sums = [torch.zeros(item.shape, dtype=_exact(item.dtype), device=item.device) for item in (key, value)]
    groups = query.shape[1] // key.shape[1]
    for block, keys in enumerate(_equal(key, blocks)):
        own = first - keys.start
        rows = _seeing(query, causal, own)
        if rows.start == query.shape[2]:
            continue
        seen = _of_rows(_cut(mask, keys), rows)
        for group in range(groups):
            heads = slice(group, None, groups)
            grad_, query_, means, total = (item[:, heads, rows] for item in (grad, query, mean, logsumexp))
            added = _added(_of_heads(seen, heads), query)
            operands = grad_, query_, key[:, :, keys], value[:, :, keys], partial(_part, means), total
            part = _from_mean(*operands, scale, added, causal, max(own, 0))
            by_query[block, :, heads, rows] = part[0]
            for total, more in zip(sums, part[1:], strict=True):
                total[:, :, keys] += more
            del part, more
    return by_query, sums[0].to(key.dtype), sums[1].to(value.dtype)


def _part(of_rows: Tensor, rows: slice) -> Tensor:
    return of_rows[:, :, rows]


def _equal(key: Tensor, blocks: int) -> Iterator[slice]:
    """Raises ValueError where blocks of keys are not equal."""
    extent, rest = divmod(key.shape[2], blocks)
    if rest:
        raise ValueError(f"{key.shape[2]} keys are no {blocks} equal blocks")
    return (slice(start, start + extent) for start in range(0, key.shape[2], extent))


def _seeing(query: Tensor, causal: bool, first: int) -> slice:
    """The rows that see a key of a block, which begins `first` keys before them."""
    return slice(min(max(-first, 0), query.shape[2]) if causal else 0, query.shape[2])


def _of_rows(mask: Tensor | None, rows: slice) -> Tensor | None:
    return mask if mask is None or mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., rows, :]


def _block(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool, first: int
) -> tuple[Tensor, Tensor]:
    """What the rows find in one block, and the logarithms [batch, heads, rows, 1]."""
    rows = _seeing(query, causal, first)
    if rows.start:
        out, total = _results(query, value)
        out[:, :, : rows.start], total[:, :, : rows.start] = 0.0, -torch.inf
        if rows.start < query.shape[2]:
            seen = _of_rows(mask, rows)
            out[:, :, rows], total[:, :, rows] = attention(query[:, :, rows], key, value, scale, seen, causal, 0)
    else:
        out, total = attention(query, key, value, scale, mask, causal, first)
    total = total.unsqueeze(-1)
    if mask is not None:
        hidden = mask.logical_not() if mask.dtype == torch.bool else mask == -torch.inf
        total.masked_fill_(hidden.all(-1, keepdim=True), -torch.inf)
    return out, total


ATTENTION_KERNELS: dict[str, Callable[..., Any]] = {
    "girih.attention": attention,
    "girih.attention_backward": attention_backward,
    "girih.attention_blocks": attention_blocks,
    "girih.attention_blocks_backward": attention_blocks_backward,
}
