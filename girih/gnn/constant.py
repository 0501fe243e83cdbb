"""Edges that stay, found while a network runs: gathers and scatters over constant indices are sums over neighbours.

A network that is written with an `edge_index` takes for each edge the row of the vertex that is read
(`x.index_select(0, edge_index[0])`), and adds the rows up for the vertex that reads (`index_add`, `scatter_add`,
`scatter_reduce`). While `Folding` is on, what is computed of edges alone (self loops, degrees, their normalisation) is
computed once, with numbers; a row for each edge is not made before somebody needs it, so that where it is added up this
is `gnn.aggregate`, with its gradient, by compressed rows. All else is as it comes. What the network needs of the edges
becomes buffers of `Constants`, which a plan holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, wraps
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from girih.gnn.adjacency import Adjacency
from girih.gnn.neighbours import GraphBuffers, aggregate
from girih.kernels.neighbours import operators

Tensor = Any  # torch is untyped for the type checker
T = TypeVar("T")
_FLOATS = (torch.float32, torch.float64, torch.bfloat16)
_FACTORIES = {torch.arange, torch.zeros, torch.ones, torch.full}
_FILLED = {
    "new_zeros": torch.zeros, "new_ones": torch.ones, "new_full": torch.full, "zeros_like": torch.zeros,
    "ones_like": torch.ones,
}  # fmt: skip
"""What makes a tensor of one number, in the type of another tensor."""
_PRODUCTS = {"mul", "multiply", "__mul__", "__rmul__"}
_MATRIX_PRODUCTS = {"mm", "_sparse_mm", "matmul", "__matmul__"}
_SUMS = {
    "index_add": ("self", "dim", "index", "src"),
    "scatter_add": ("self", "dim", "index", "src"),
    "scatter_reduce": ("self", "dim", "index", "src", "reduce"),
}
"""Operators that add rows up, by the names of their arguments."""
_WRITING = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}
_HOWS = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min"}
_OF_SHAPE = {
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.shape.__get__, torch.Tensor.ndim.__get__,
    torch.Tensor.dtype.__get__, torch.Tensor.device.__get__, torch.Tensor.layout.__get__,
    torch.Tensor.is_sparse.__get__, torch.Tensor.is_cuda.__get__, torch.Tensor.is_floating_point, torch.Tensor.__len__,
}  # fmt: skip


class Held(torch.Tensor):
    """Stands for a constant, or for a row of each edge that is not made yet.

    fixed: the constant. again: what makes it, where that is one call without tensors; zero: whether it is all zero.
    viewed: whether something else shares its memory, by which it may be written into. source: (x, index, how often x
    had been written into) of the rows `x[index]`, times `weights`, which are of edges and the first dimensions of x's
    features, and had been written into `weighed` times. value: the tensor in whose place it stands, once there is one.
    """

    fixed: Tensor | None
    again: Callable[[], Tensor] | None
    source: tuple[Tensor, Tensor, int] | None
    weights: Tensor | None
    weighed: int
    value: Tensor | None
    zero: bool
    viewed: bool

    @staticmethod
    def standing(shape: Iterable[int], dtype: torch.dtype, **what: Any) -> Held:
        held = torch.Tensor._make_wrapper_subclass(Held, tuple(shape), dtype=dtype)
        before = {"fixed": None, "again": None, "source": None, "weights": None, "value": None}
        vars(held).update({**before, "weighed": 0, "zero": False, "viewed": False, **what})
        return held  # type: ignore[no-any-return]

    @classmethod
    def of(cls, real: Tensor, **what: Any) -> Held:
        return cls.standing(real.shape, real.dtype, fixed=real, **what)

    @property
    def renews(self) -> bool:
        """Is it a constant that is made anew as it is?"""
        return self.again is not None and not self.viewed

    def rows(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """(x, index, weights).

        Raises:
            RuntimeError: x or the weights were written into since, and are not what they were.
        """
        assert self.source is not None
        x, index, before = self.source
        for item, times in ((x, before), (self.weights, self.weighed)):
            if item is not None and not isinstance(item, Held) and _written(item) != times:
                what = f"{list(item.shape)} between the gather of its rows for the edges"
                if item is not x:
                    what = f"weights of edges {list(item.shape)} between their product with rows"
                raise RuntimeError(f"the network writes into {what} and their use: compute it anew, as x = x + …")
        return x, index, self.weights

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise TypeError(
            f"{function} reads rows of edges, or a constant, past PyTorch's functions: give it results of ordinary "
            "functions, or write the layer with gnn.aggregate"
        )

    __torch_function__ = torch._C._disabled_torch_function_impl


def _of_numbers(function: Callable[..., T]) -> Callable[..., T]:
    """The function, which computes with numbers while a program is captured, too."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> T:
        with _disable_current_modes(), torch.no_grad():
            return function(*args, **kwargs)

    return run


class Constants(torch.nn.Module):
    """What a network needs of its constant edges, as buffers by what is in them. cuts: of the graph's vertices."""

    def __init__(self, cuts: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.cuts = cuts

    @_of_numbers
    def kept(self, real: Tensor) -> Tensor:
        """A constant as a buffer."""
        name = _name("constant", real)
        if name not in self._buffers:
            self.register_buffer(name, real.clone(), persistent=False)
        return self._buffers[name]

    @_of_numbers
    def graph(
        self, read: Tensor, reading: Tensor, sources: int, vertices: int, weights: Tensor | None, of_edges: bool
    ) -> GraphBuffers:
        """The graph in which `reading[e]` reads `read[e]`."""
        name = _name(f"graph_{sources}_{vertices}_{of_edges}", read, reading, weights)
        if name not in self._modules:
            values = None if weights is None else weights.numpy()
            graph = Adjacency.of_edges(read.numpy(), reading.numpy(), vertices, sources, values)
            self.add_module(name, GraphBuffers(self._cut(graph), None, of_edges))
        made: Any = self._modules[name]
        return made  # type: ignore[no-any-return]

    @_of_numbers
    def matrix(self, real: Tensor) -> GraphBuffers:
        """A sparse matrix as the graph that `aggregate` multiplies by."""
        coordinates = real.to_sparse_coo().coalesce()
        name = _name(f"matrix_{'_'.join(map(str, real.shape))}", coordinates.indices(), coordinates.values())
        if name not in self._modules:
            self.add_module(name, GraphBuffers(self._cut(Adjacency.of(real))))
        made: Any = self._modules[name]
        return made  # type: ignore[no-any-return]

    @_of_numbers
    def ends(self, index: Tensor, vertices: int) -> Ends:
        name = _name(f"ends_{vertices}", index)
        if name not in self._modules:
            self.add_module(name, Ends(index, vertices))
        made: Any = self._modules[name]
        return made  # type: ignore[no-any-return]

    @_of_numbers
    def order(self, read: Tensor, reading: Tensor) -> tuple[Tensor, Tensor] | None:
        """For each edge of `graph` its number here, and the inverse; None where they are in its order."""
        order = np.lexsort((read.numpy(), reading.numpy()))
        if (order[1:] > order[:-1]).all():
            return None
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return self.kept(torch.from_numpy(order)), self.kept(torch.from_numpy(inverse))

    def _cut(self, graph: Adjacency) -> Adjacency:
        same = bool(self.cuts) and graph.vertices == graph.sources == self.cuts[-1]
        return replace(graph, cuts=self.cuts) if same else graph


class Ends(torch.nn.Module):
    """One end of each edge: index[e] is a vertex. offsets, order: the edges of each vertex, in compressed rows."""

    offsets: Tensor
    order: Tensor
    index: Tensor

    def __init__(self, index: Tensor, vertices: int) -> None:
        super().__init__()
        numbers = np.arange(len(index))
        graph = Adjacency.of_edges(numbers, index.numpy(), vertices, len(index))
        self.vertices = vertices
        self.register_buffer("offsets", torch.from_numpy(graph.offsets), persistent=False)
        self.register_buffer("order", torch.from_numpy(graph.neighbours), persistent=False)
        self.register_buffer("index", index.to(self.order.dtype), persistent=False)

    def rows(self, x: Tensor) -> Tensor:
        """x[index]."""
        return _Rows.apply(x, self)

    def combined(self, values: Tensor, how: str) -> Tensor:
        """For each vertex the sum, mean, max or min of the rows of its edges, 0 where there are none."""
        if how == "min":
            return -self.combined(-values, "max")
        if how == "max":
            return _Largest.apply(values, self)  # type: ignore[no-any-return]
        total = _Total.apply(values, self)
        if how == "sum":
            return total  # type: ignore[no-any-return]
        counts = (self.offsets[1:] - self.offsets[:-1]).clamp(min=1).to(total.dtype)
        return total / counts.reshape(-1, *[1] * (total.dim() - 1))  # type: ignore[no-any-return]


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ends: Ends) -> Tensor:
        ctx.ends = ends
        return x.index_select(0, ends.index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return operators.neighbour_sum(grad, ctx.ends.offsets, ctx.ends.order, None, False), None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, ends: Ends) -> Tensor:
        ctx.ends = ends
        return operators.neighbour_sum(values, ends.offsets, ends.order, None, False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.index_select(0, ctx.ends.index), None


class _Largest(torch.autograd.Function):
    """Where several edges have the largest number they share its gradient, as in torch.amax."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ends: Ends) -> Tensor:
        ctx.ends = ends
        top = operators.neighbour_max(values, ends.offsets, ends.order)
        ctx.save_for_backward(values, top)
        return top

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ends, (values, top) = ctx.ends, ctx.saved_tensors
        ties = operators.neighbour_ties(values, top, ends.offsets, ends.order)
        both = torch.stack([top, grad / ties.clamp(min=1)]).index_select(1, ends.index)
        return (values == both[0]) * both[1], None


class _Ordered(torch.autograd.Function):
    """values[order], where order has each number once; inverse: the order that undoes it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.inverse = inverse
        return values.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.index_select(0, ctx.inverse), None, None


def _name(kind: str, *tensors: Tensor | None) -> str:
    """A name that tells constants apart by what is in them."""
    digest = hashlib.blake2b(digest_size=8)
    for item in tensors:
        if item is not None:
            digest.update(f"{item.dtype}{list(item.shape)}".encode())
            digest.update(item.detach().contiguous().view(-1).view(torch.uint8).numpy())
        digest.update(b"|")
    return f"{kind}_{digest.hexdigest()}"


class Folding(TorchFunctionMode):
    """While it is on, see above. A network gets its edges as `given(edge_index)`; `whole` turns its results into
    tensors."""

    def __init__(self, constants: Constants) -> None:
        super().__init__()
        self.constants = constants
        self._edges: set[int] = set()

    def given(self, edges: Tensor) -> Held:
        """Stands for edges that the network has."""
        self._edges.add(_memory(edges))
        return Held.of(edges)

    def __enter__(self) -> Folding:
        """Gradients that a network computes by itself (`torch.autograd.Function`) get whole tensors: PyTorch does not
        ask modes about them."""
        own = torch.autograd.Function.__dict__["apply"].__func__
        self._beside = patch.object(
            torch.autograd.Function, "apply", classmethod(lambda kind, *given: own(kind, *self.whole(given)))
        )
        self._beside.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._beside.stop()

    def whole(self, results: Any) -> Any:
        """The same with tensors in the place of what stands for them."""
        return tree_map_only(Held, self.value, results)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if _writes(name) and not args:  # as torch.nn.init's come
            args, kwargs = tuple(kwargs.values())[:1], dict([*kwargs.items()][1:])
        tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        held = [item for item in tensors if isinstance(item, Held)]
        if (function in _FACTORIES and not tensors) or (name in _FILLED and not _is_constant(args[0])):
            return self._made(function, args, kwargs)
        if not held:
            return function(*args, **kwargs)
        if name == "expand_as" and _is_constant(args[0]):  # it reads but the other's shape
            function, args, tensors = torch.Tensor.expand, (args[0], tuple(args[1].shape)), [args[0]]
        if all(map(_is_constant, tensors)):
            drawn, result = self._folded(function, name, args, kwargs)
            if not drawn:
                return result
        if function in _OF_SHAPE:
            return function(*args, **kwargs)
        if kwargs.get("out") is None:
            for rule in (self._gathered, self._weighted, self._combined, self._multiplied):
                if (found := rule(name, args, kwargs)) is not None:
                    return found
        return self._plain(function, name, args, kwargs)

    def value(self, held: Any) -> Tensor:
        """The tensor for which it stands."""
        if not isinstance(held, Held):
            return held
        if held.value is None or (held.viewed and _is_constant(held)):
            if held.source is not None:
                x, index, weights = held.rows()
                held.value = self.constants.ends(index, len(x)).rows(x)
                if weights is not None:
                    weights = self.value(weights)
                    held.value = held.value * weights.reshape(*weights.shape, *[1] * (held.dim() - weights.dim()))
            else:
                again = held.again if held.renews else None
                held.value = self.constants.kept(held.fixed) if again is None else again()
        return held.value

    # Constants

    def _made(self, function: Any, args: Any, kwargs: Any) -> Any:
        """A constant that is made of numbers; only of a dimension, as those of edges and vertices are, or as zeros."""
        name = function.__name__
        again = partial(function, *args, **kwargs)
        if name in _FILLED:
            like, *rest = args
            rest = [like.shape] if name.endswith("_like") else rest
            again = partial(_FILLED[name], *rest, **{"dtype": like.dtype, **kwargs})
        with _disable_current_modes():
            fixed = again()
        zero = name in ("zeros", "new_zeros", "zeros_like")
        if fixed.dim() != 1 and not zero:
            return again()
        return Held.of(fixed, again=again, zero=zero)

    def _folded(self, function: Any, name: str, args: Any, kwargs: Any) -> tuple[bool, Any]:
        """(Whether it drew random numbers, which are no constant; else the result.)"""
        by_real = {id(item.fixed): item for item in tree_leaves((args, kwargs)) if isinstance(item, Held)}
        goals = tree_leaves(args[0] if _writes(name) else kwargs.get("out"))
        if any(_memory(item.fixed) in self._edges for item in goals if isinstance(item, Held)):
            raise RuntimeError("the network writes into its edges, which stay: write edges = edges.clone() before")
        versions = {real: _written(item.fixed) for real, item in by_real.items()}
        given, named = tree_map_only(Held, lambda item: item.fixed, (args, kwargs))
        with _disable_current_modes(), torch.no_grad():
            before = torch.get_rng_state()
            result = function(*given, **named)
            if not torch.equal(before, torch.get_rng_state()):
                torch.set_rng_state(before)
                if any(_written(item.fixed) != versions[real] and not item.renews for real, item in by_real.items()):
                    raise RuntimeError("the network draws numbers into a constant tensor in place: draw new ones")
                return True, None
        for real, item in by_real.items():
            if _written(item.fixed) != versions[real] or any(item is goal for goal in goals):
                item.again, item.value, item.zero = None, None, False
            item.viewed = item.viewed or isinstance(result, np.ndarray)
        memories = {_memory(item.fixed): item for item in by_real.values()}

        def wrapped(item: Tensor) -> Held:
            if id(item) in by_real:
                return by_real[id(item)]
            one = Held.of(item)
            if (other := memories.get(_memory(item))) is not None:
                one.viewed = other.viewed = True
            return one

        return False, tree_map_only(torch.Tensor, wrapped, result)

    def _plain(self, function: Any, name: str, args: Any, kwargs: Any) -> Any:
        if any(isinstance(item, Held) for item in tree_leaves(kwargs.get("out"))):
            raise RuntimeError(f"the network writes into a constant tensor by {name}(…, out=): take the result instead")
        given, named = self.whole((args, kwargs))
        if not _writes(name) or not isinstance(args[0], Held):
            return function(*given, **named)
        if _is_constant(args[0]) and not args[0].renews:  # its buffer stays
            given = (given[0].clone(), *given[1:])
        result = function(*given, **named)
        self._becomes(args[0], given[0])
        return args[0] if result is given[0] else result

    def _becomes(self, held: Held, value: Tensor) -> Held:
        if held.viewed:
            raise RuntimeError("the network writes into a part of a constant tensor: write it as torch.cat or where")
        held.fixed = held.again = held.source = held.weights = None
        held.value = value
        return held

    # Rows of edges

    def _gathered(self, name: str, args: Any, kwargs: Any) -> Any:
        if name == "index_select":
            x, dim, index = _bound(("self", "dim", "index"), args, kwargs)
        elif name == "__getitem__":
            x, dim, index = args[0], 0, args[1][0] if isinstance(args[1], tuple) and len(args[1]) == 1 else args[1]
        else:
            return None
        x = self.value(x) if isinstance(x, Held) and not _is_constant(x) else x
        known = _is_constant(index) and index.dim() == 1 and index.dtype in (torch.int64, torch.int32)
        if not known or isinstance(x, Held) or x.dtype not in _FLOATS or dim % x.dim() != 0:
            return None
        places = _places(index.fixed, len(x))
        return Held.standing((len(index.fixed), *x.shape[1:]), x.dtype, source=(x, places, _written(x)))

    def _weighted(self, name: str, args: Any, kwargs: Any) -> Any:
        if name not in _PRODUCTS or len(args) != 2 or not all(isinstance(item, torch.Tensor) for item in args):
            return None
        for rows, other in (args, args[::-1]):
            if not isinstance(rows, Held) or rows.source is None or rows.value is not None:
                continue
            if rows.weights is not None or other.dim() != rows.dim() or other.dtype != rows.dtype:
                continue
            shape, kept = tuple(other.shape), rows.dim()
            while kept > 1 and shape[kept - 1] == 1:
                kept -= 1
            if kept == rows.dim() or shape[:kept] != tuple(rows.shape[:kept]):
                continue
            if _is_constant(other):
                weights, times = Held.of(_copied(other.fixed, shape[:kept])), 0
            else:
                weights = self.value(other).reshape(shape[:kept])
                times = _written(weights)
            return Held.standing(rows.shape, rows.dtype, source=rows.source, weights=weights, weighed=times)
        return None

    def _combined(self, name: str, args: Any, kwargs: Any) -> Any:
        named = name.removesuffix("_")
        if named not in _SUMS or (kwargs.get("alpha", 1) != 1):
            return None
        kwargs = {{"input": "self", "source": "src"}.get(key, key): item for key, item in kwargs.items()}
        out, dim, index, src, *rest = _bound(_SUMS[named], args, kwargs)
        how = _HOWS.get(rest[0] if rest else "sum")
        zero = _is_constant(out) and out.zero and not out.viewed
        fits = (
            isinstance(src, torch.Tensor) and src.dtype in _FLOATS and src.dtype == out.dtype and dim % src.dim() == 0
        )
        if not _is_constant(index) or how is None or not fits or _is_constant(src) or out.shape[1:] != src.shape[1:]:
            return None
        included = named == "scatter_reduce" and kwargs.get("include_self", True)
        if (not zero and (how != "sum" or named == "scatter_reduce")) or (included and how != "sum"):
            return None
        places = index.fixed
        if named != "index_add" and (places.shape != src.shape or not _same_for_features(places)):
            return None
        made = self._sum(src, _places(places), len(out), how)
        if zero:
            return self._becomes(out, made) if name.endswith("_") else made
        before = self.value(out)
        if not name.endswith("_") or _is_constant(out):
            total = before + made
            return self._becomes(out, total) if name.endswith("_") else total
        before += made
        return self._becomes(out, before) if isinstance(out, Held) else before

    def _sum(self, src: Any, reading: Tensor, vertices: int, how: str) -> Tensor:
        apart = isinstance(src, Held) and src.source is not None and src.value is None
        if not apart or how == "min" or (how == "max" and src.weights is not None):
            return self.constants.ends(reading, vertices).combined(self.value(src), how)
        (x, read, weights), own = src.rows(), None
        if weights is not None and _is_constant(weights) and weights.dim() == 1:
            own, weights = weights.fixed, None
        graph = self.constants.graph(read, reading, len(x), vertices, own, weights is not None)
        if weights is not None:
            weights = self.value(weights)
            if (order := self.constants.order(read, reading)) is not None:
                weights = _Ordered.apply(weights, *order)
        return aggregate(x, graph, how, weights)  # type: ignore[arg-type]

    def _multiplied(self, name: str, args: Any, kwargs: Any) -> Any:
        if name not in _MATRIX_PRODUCTS or kwargs or len(args) != 2 or not _is_constant(args[0]):
            return None
        real, x = args[0].fixed, self.value(args[1])
        if real.layout not in (torch.sparse_coo, torch.sparse_csr) or x.dim() != 2 or x.dtype != real.dtype:
            return None
        return aggregate(x, self.constants.matrix(real))


def _same_for_features(index: Tensor) -> bool:
    """Is an index one of rows, expanded?"""
    return all(size == 1 or not stride for size, stride in zip(index.shape[1:], index.stride()[1:], strict=True))


@_of_numbers
def _copied(real: Tensor, shape: tuple[int, ...]) -> Tensor:
    return real.reshape(shape).clone()


@_of_numbers
def _places(index: Tensor, count: int = 0) -> Tensor:
    """An index as int64[edges], of one that is the same for all features; numbers below 0 count from behind. A copy:
    the index may be written into later."""
    index = index[(slice(None), *[0] * (index.dim() - 1))].to(torch.int64, copy=True)
    return index + count * (index < 0) if bool((index < 0).any()) else index


def _is_constant(item: Any) -> bool:
    return isinstance(item, Held) and item.fixed is not None


def _written(x: Tensor) -> int:
    """How often a tensor was written into; those of inference mode do not count."""
    return 0 if x.is_inference() else x._version  # type: ignore[no-any-return]


def _writes(name: str) -> bool:
    return name in _WRITING or (name.endswith("_") and not name.startswith("__"))


def _memory(real: Tensor) -> int:
    return real.untyped_storage().data_ptr() if real.layout == torch.strided else id(real)


def _bound(names: tuple[str, ...], args: Any, kwargs: Any) -> list[Any]:
    given = dict(zip(names, args, strict=False)) | {key: item for key, item in kwargs.items() if key in names}
    return [given.get(name) for name in names]
