"""Factorisations of large matrices → factorisations of their tiles, which several workers compute at once.

A tall matrix is factored where its rows lie (TSQR; Demmel, Grigori, Hoemmen and Langou, SIAM J. Sci. Comput. 34, 2012):
the QR of each tile of rows, then the QR of all their R's, so that only R's move. The signs are then made those of
Householder reflections (Ballard et al., IPDPS 2014), which LAPACK and so NumPy have. Singular values are those of R.

    tiles = reshape(A)                         [tiles, rows of each, columns]
    inner, triangles = linalg_qr(tiles)
    outer, S = linalg_qr(reshape(triangles))   of [tiles · columns, columns]
    signs = reflection_signs(inner[0, :columns] · outer[0])
    Q = inner · (outer · signs);  R = signs · S

A symmetric matrix is factored by Cholesky in panels of columns, whose rows are divided cyclically. Panel after panel:
what those on its left take from it is subtracted at once, in the memory of the result, then it is factored (the
left-looking variant, as D'Azevedo and Dongarra's out of core; Concurrency: Pract. Exper. 12, 2000). So a panel is
written twice, however many there are, and moves only the rows that lie beside its square. A panel begins at its
diagonal: what is above is never computed.

Of every block of as many rows as a panel has columns each worker has its part (ScaLAPACK's cyclic layout; Choi et al.,
Sci. Program. 5, 1996): a panel is [workers, rows of each, columns], and what begins further down is a slice of it that
lies where it is wanted. All workers have the same to do, and only the squares on the diagonal, which everybody factors,
and the rows beside them, which everybody multiplies with, are gathered. Cost: n³/3 multiplications, of which n·width²/3
are done by everybody; n²/2 elements are gathered.

Other matrices stay whole. The results keep their names; in a graph that is rewritten twice, large factors of tiles
would be divided again, which is right, but no use. Cost: linear in the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from girih.graph import Argument, Graph, Node, Ref, Value, without_unread

LEAST_ROWS = 25
"""Of a tile, for each of its columns: the R's of all tiles together are then small beside the matrix."""
WIDTH = 300
"""Columns of a panel, about: so few that everybody may factor the squares, so many that products are fast."""
MOST_PANELS = 32
"""Of larger matrices they are wider."""
LEAST = 1000
"""Rows of a symmetric matrix that is worth being divided."""
REAL = {"complex64": "float32", "complex128": "float64"}

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class DivideFactorisations:
    """Write large factorisations as those of tiles.

    workers: that compute it. small: elements of a matrix that is not divided. cache: bytes of a core's cache, in which
    a tile of a tall matrix lies.
    """

    workers: int
    small: int
    cache: int

    def apply(self, graph: Graph) -> Graph:
        if not any(node.operator in DIVISIONS for node in graph.nodes):
            return graph
        writer = _Writer(graph, self)
        for node in graph.nodes:
            divide = DIVISIONS.get(node.operator)
            if divide is None or not divide(writer, node):
                writer.nodes.append(node)
        if len(writer.nodes) == len(graph.nodes):
            return graph
        return without_unread(replace(graph, values=writer.values, nodes=tuple(writer.nodes)))

    def tiles_of(self, value: Value) -> int:
        """Into how many tiles of rows a matrix is factored: at least one for each worker, and so many that LAPACK,
        which walks through all rows for every few columns, finds a tile in a core's cache. 1 where that gains
        nothing."""
        if len(value.shape) != 2 or value.elements <= self.small:
            return 1
        rows, columns = value.shape
        least = max(self.cache // (columns * value.item_bytes), LEAST_ROWS * columns)
        count = self.workers * max(1, rows // (self.workers * least))
        if count > self.workers:  # without zeros that fill the last tile, if that can be
            near = range(count, 2 * count, self.workers)
            count = next((more for more in near if rows % more == 0), count)
        return count if columns * count <= rows else 1


class _Writer:
    """The graph as it is written anew: each method emits a node of the program's operators, and names what it makes.

    like: the node that is being replaced, whose place in the program the new ones have.
    """

    def __init__(self, graph: Graph, options: DivideFactorisations) -> None:
        self.options = options
        self.values = dict(graph.values)
        self.nodes: list[Node] = []
        self.like: Node

    def emit(
        self, operator: str, results: Sequence[tuple[Shape, str]], names: Sequence[str], arguments: dict[str, Argument]
    ) -> tuple[str, ...]:
        """results: shape and dtype of each. names: of those that the graph has already; "" of others."""
        outputs = tuple(name or self._new(operator) for name in names)
        self.values |= {name: Value(name, shape, dtype) for name, (shape, dtype) in zip(outputs, results, strict=True)}
        given = tuple(arguments.items())
        self.nodes.append(replace(self.like, name=outputs[0], operator=operator, arguments=given, outputs=outputs))
        return outputs

    def _new(self, operator: str) -> str:
        stem = f"{self.like.name}.{operator.split('.')[1]}"
        number = len(self.nodes)
        while (name := f"{stem}.{number}") in self.values:
            number += 1
        self.values[name] = Value(name, (), "float32")  # so that the next one has another name
        return name

    def one(self, operator: str, shape: Shape, type: str, name: str = "", /, **arguments: Argument) -> str:
        """A node with one result, of a type."""
        return self.emit(operator, ((shape, type),), (name,), arguments)[0]

    def reshape(self, x: str, shape: Shape, name: str = "") -> str:
        value = self.values[x]
        if value.shape == shape and not name:
            return x
        return self.one("aten.reshape", shape, value.dtype, name, self=Ref(x), shape=shape)

    def permute(self, x: str, dims: Shape, name: str = "") -> str:
        value = self.values[x]
        shape = tuple(value.shape[dim] for dim in dims)
        return self.one("aten.permute", shape, value.dtype, name, self=Ref(x), dims=dims)

    def adjoint(self, x: str, name: str = "") -> str:
        """Of a matrix."""
        if self.values[x].dtype not in REAL:
            return self.permute(x, (1, 0), name)
        turned = self.values[self.permute(x, (1, 0))]
        return self.one("aten.conj_physical", turned.shape, turned.dtype, name, self=Ref(turned.name))

    def part(self, x: str, dim: int, start: int, stop: int, name: str = "") -> str:
        """x[…, start:stop, …]."""
        value = self.values[x]
        shape = (*value.shape[:dim], stop - start, *value.shape[dim + 1 :])
        if shape == value.shape and not name:
            return x
        where: dict[str, Argument] = {"dim": dim, "start": start, "end": stop, "step": 1}
        return self.one("aten.slice.Tensor", shape, value.dtype, name, self=Ref(x), **where)

    def first(self, x: str) -> str:
        """x[0]."""
        return self.reshape(self.part(x, 0, 0, 1), self.values[x].shape[1:])

    def full(self, shape: Shape, number: int, dtype: str) -> str:
        return self.one("aten.full", shape, dtype, size=shape, fill_value=number, dtype=dtype)

    def pad(self, x: str, *more: int) -> str:
        """Zeros behind the elements of each dimension."""
        value = self.values[x]
        shape = tuple(size + count for size, count in zip(value.shape, more, strict=True))
        flat = tuple(number for count in reversed(more) for number in (0, count))
        return self.one("aten.constant_pad_nd", shape, value.dtype, self=Ref(x), pad=flat, value=0)

    def product(self, left: str, right: str, name: str = "") -> str:
        """Of two matrices, or of two batches of as many."""
        first, second = self.values[left], self.values[right]
        operator = "aten.mm" if len(first.shape) == 2 else "aten.bmm"
        shape = (*first.shape[:-1], second.shape[-1])
        return self.one(operator, shape, first.dtype, name, self=Ref(left), mat2=Ref(right))

    def typed(self, x: str, dtype: str) -> str:
        value = self.values[x]
        return x if value.dtype == dtype else self.one("aten._to_copy", value.shape, dtype, self=Ref(x), dtype=dtype)

    def times(self, x: str, y: str, shape: Shape, dtype: str, name: str = "") -> str:
        first, second = self.typed(x, dtype), self.typed(y, dtype)
        return self.one("aten.mul.Tensor", shape, dtype, name, self=Ref(first), other=Ref(second))


# ------------------------------------------------------------------------------------------- tall matrices


def _tiled(writer: _Writer, x: str, count: int) -> str:
    """[tiles, rows, columns]; zeros below do not change R, and give zeros in Q."""
    size, columns = writer.values[x].shape
    rows = -(-size // count)
    if rows * count != size:
        x = writer.pad(x, rows * count - size, 0)
    return writer.reshape(x, (count, rows, columns))


def _qr(writer: _Writer, x: str) -> tuple[str, ...]:
    value = writer.values[x]
    *batch, rows, columns = value.shape
    least = min(rows, columns)
    shapes = ((*batch, rows, least), value.dtype), ((*batch, least, columns), value.dtype)
    return writer.emit("aten.linalg_qr", shapes, ("", ""), {"A": Ref(x)})


def _tall_qr(writer: _Writer, x: str, count: int, names: tuple[str, str] = ("", "")) -> tuple[str, str]:
    value = writer.values[x]
    (rows, columns), dtype = value.shape, value.dtype
    inner, triangles = _qr(writer, _tiled(writer, x, count))
    outer, triangle = _qr(writer, writer.reshape(triangles, (count * columns, columns)))
    outer = writer.reshape(outer, (count, columns, columns))
    top = writer.product(writer.first(writer.part(inner, 1, 0, columns)), writer.first(outer))
    signs = writer.one("girih.reflection_signs", (columns,), REAL.get(dtype, dtype), Q=Ref(top))
    signed = writer.times(outer, signs, (count, columns, columns), dtype)
    length = writer.values[inner].shape[1] * count
    Q = writer.reshape(writer.product(inner, signed), (length, columns), names[0] if length == rows else "")
    if length != rows:
        Q = writer.part(Q, 0, 0, rows, names[0])
    R = writer.times(writer.reshape(signs, (columns, 1)), triangle, (columns, columns), dtype, names[1])
    return Q, R


def _divide_qr(writer: _Writer, node: Node) -> bool:
    x, writer.like = node.inputs[0], node
    count = writer.options.tiles_of(writer.values[x])
    if count == 1 or node.attributes.get("mode", "reduced") != "reduced":
        return False
    _tall_qr(writer, x, count, (node.outputs[0], node.outputs[1]))
    return True


def _divide_triangle(writer: _Writer, node: Node) -> bool:
    """R alone."""
    x, writer.like = node.inputs[0], node
    count = writer.options.tiles_of(writer.values[x])
    if count == 1:
        return False
    _tall_qr(writer, x, count, ("", node.outputs[0]))
    return True


def _divide_svd(writer: _Writer, node: Node) -> bool:
    """U · S · Vh of R, with Q before U; of a wide matrix that of its adjoint."""
    x, writer.like = node.inputs[0], node
    value = writer.values[x]
    if len(value.shape) != 2 or (node.attributes.get("full_matrices", True) and value.shape[0] != value.shape[1]):
        return False
    U, S, Vh = node.outputs
    count = writer.options.tiles_of(value)
    if count > 1:
        _tall_svd(writer, x, count, (U, S, Vh))
        return True
    count = writer.options.tiles_of(replace(value, shape=value.shape[::-1]))
    if count > 1:
        left, _, right = _tall_svd(writer, writer.adjoint(x), count, ("", S, ""))
        writer.adjoint(right, U)
        writer.adjoint(left, Vh)
    return count > 1


def _tall_svd(writer: _Writer, x: str, count: int, names: tuple[str, str, str]) -> tuple[str, str, str]:
    value = writer.values[x]
    columns, dtype = value.shape[1], value.dtype
    Q, R = _tall_qr(writer, x, count)
    square = (columns, columns)
    shapes = (square, dtype), ((columns,), REAL.get(dtype, dtype)), (square, dtype)
    given: dict[str, Argument] = {"A": Ref(R), "full_matrices": False}
    inner, S, Vh = writer.emit("aten._linalg_svd", shapes, ("", *names[1:]), given)
    return writer.product(Q, inner, names[0]), S, Vh


def _divide_singular_values(writer: _Writer, node: Node) -> bool:
    """Those of R, the signs of whose rows do not matter."""
    x, writer.like = node.inputs[0], node
    value = writer.values[x]
    count = writer.options.tiles_of(value)
    if count == 1:
        return False
    columns, operator = value.shape[1], "girih.triangular_factor"
    each = writer.one(operator, (count, columns, columns), value.dtype, A=Ref(_tiled(writer, x, count)))
    stacked = writer.reshape(each, (count * columns, columns))
    R = writer.one(operator, (columns, columns), value.dtype, A=Ref(stacked))
    writer.one(node.operator, (columns,), REAL.get(value.dtype, value.dtype), node.outputs[0], A=Ref(R))
    return True


# ------------------------------------------------------------------------------------------- Cholesky


def panels_of(size: int, workers: int) -> tuple[int, int]:
    """(how many panels, columns of each): a multiple of the workers, if possible without columns that are added."""
    count = min(MOST_PANELS, max(1, round(size / WIDTH)))
    most = min(MOST_PANELS, count + count // 3)
    near = [n for n in range(count - count // 4, most + 1) if size % (n * workers) == 0]
    count = min(near, key=lambda n: abs(n - count), default=count)
    width = -(-size // (count * workers)) * workers
    return -(-size // width), width


def _divide_cholesky(writer: _Writer, node: Node) -> bool:
    """L of x = L·Lᴴ, of the lower triangle of x."""
    x, workers, writer.like = node.inputs[0], writer.options.workers, node
    value = writer.values[x]
    if len(value.shape) != 2 or value.shape[0] < LEAST or workers == 1 or node.attributes.get("upper", False):
        return False
    size, dtype = value.shape[0], value.dtype
    count, width = panels_of(size, workers)
    rows, more = width // workers, count * width - size
    if more:  # columns of the identity, which are their own factor
        x = writer.pad(x, more, more)
    blocks = writer.reshape(x, (count, workers, rows, count * width))
    panels: list[str] = []
    for number in range(count):
        panel = _panel(writer, blocks, number, width)
        if more and number == count - 1:
            panel = _with_identity(writer, panel, more)
        if panels:
            panel = _without(writer, panel, panels)
        panels.append(_factored(writer, panel))
    shape = (count, workers, rows, count * width)
    parts = tuple(
        Ref(writer.reshape(panel, (workers, count - number, rows, width))) for number, panel in enumerate(panels)
    )
    joined = writer.one("girih.join_panels", shape, dtype, tensors=parts)
    if more:
        whole = writer.reshape(joined, (count * width, count * width))
        writer.part(writer.part(whole, 0, 0, size), 1, 0, size, node.outputs[0])
    else:
        writer.reshape(joined, value.shape, node.outputs[0])
    return True


def _panel(writer: _Writer, blocks: str, number: int, width: int) -> str:
    """[workers, rows of each, columns] of [blocks of rows, workers, rows of each in a block, columns]."""
    count = writer.values[blocks].shape[0]
    below = writer.part(blocks, 0, number, count)
    mine = writer.permute(writer.part(below, 3, number * width, (number + 1) * width), (1, 0, 2, 3))
    workers, blocks_below, rows, _ = writer.values[mine].shape
    return writer.reshape(mine, (workers, blocks_below * rows, width))


def _with_identity(writer: _Writer, panel: str, more: int) -> str:
    """The last panel, a square, with ones on its diagonal in the columns that were added."""
    value = writer.values[panel]
    width, dtype = value.shape[2], value.dtype
    ones = writer.full((width, width), 1, dtype)
    for operator in ("aten.tril", "aten.triu"):
        ones = writer.one(operator, (width, width), dtype, self=Ref(ones))
    added = writer.full((1, more), 1, dtype)
    columns = writer.one("aten.constant_pad_nd", (1, width), dtype, self=Ref(added), pad=(width - more, 0), value=0)
    arranged = writer.reshape(writer.times(ones, columns, (width, width), dtype), value.shape)
    return writer.one("aten.add.Tensor", value.shape, dtype, self=Ref(panel), other=Ref(arranged))


def _square(writer: _Writer, panel: str) -> str:
    """A panel's first rows, of all workers."""
    workers, _, width = writer.values[panel].shape
    return writer.reshape(writer.part(panel, 1, 0, width // workers), (width, width))


def _factored(writer: _Writer, panel: str) -> str:
    value = writer.values[panel]
    square, rows = Ref(_square(writer, panel)), value.shape[2] // value.shape[0]
    return writer.one("girih.cholesky_panel", value.shape, value.dtype, square=square, panel=Ref(panel), rows=rows)


def _without(writer: _Writer, panel: str, left: Sequence[str]) -> str:
    """The panel without the product of what is left of it and what is left of its square."""
    value = writer.values[panel]
    (workers, length, width), dtype = value.shape, value.dtype
    rows, depth = width // workers, sum(writer.values[other].shape[2] for other in left)
    tensors = tuple(map(Ref, left))
    where: dict[str, Argument] = {"below": length - rows, "rows": rows}
    beside = writer.one("girih.panel_rows", (workers, rows, depth), dtype, tensors=tensors, **where)
    square = Ref(writer.reshape(beside, (width, depth)))
    given: dict[str, Argument] = {"panel": Ref(panel), "tensors": tensors, "square": square}
    return writer.one("girih.less_panels", value.shape, dtype, **given)


Division: TypeAlias = Callable[[_Writer, Node], bool]
DIVISIONS: dict[str, Division] = {
    "aten.linalg_qr": _divide_qr,
    "girih.triangular_factor": _divide_triangle,
    "aten._linalg_svd": _divide_svd,
    "aten.linalg_svdvals": _divide_singular_values,
    "aten.linalg_cholesky": _divide_cholesky,
}
"""What divides a node, if it is large enough: it emits others in its place and says so."""
