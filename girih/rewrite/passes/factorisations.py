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
from functools import partial

from girih.graph import Argument, Graph, Node, Ref, Value
from girih.rewrite.writer import Shape, Writer, rewritten

LEAST_ROWS = 25
"""Rows of a tile for each of its columns: the R's of all tiles together are then small beside the matrix."""
WIDTH = 300
"""Columns of a panel, about: so few that everybody may factor the squares, so many that products are fast."""
MOST_PANELS = 32
"""Panels of a matrix; those of larger matrices are wider."""
LEAST = 1000
"""Rows of a symmetric matrix that is worth being divided."""
REAL = {"complex64": "float32", "complex128": "float64"}


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
        return rewritten(graph, {operator: partial(divide, self) for operator, divide in DIVISIONS.items()})

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


def _adjoint(writer: Writer, x: str, name: str = "") -> str:
    """The conjugate transpose of a matrix."""
    if writer.values[x].dtype not in REAL:
        return writer.permute(x, (1, 0), name)
    turned = writer.values[writer.permute(x, (1, 0))]
    return writer.one("aten.conj_physical", turned.shape, turned.dtype, name, self=Ref(turned.name))


def _first(writer: Writer, x: str) -> str:
    """x[0]."""
    return writer.reshape(writer.part(x, 0, 0, 1), writer.values[x].shape[1:])


def _product(writer: Writer, left: str, right: str, name: str = "") -> str:
    """The product of two matrices, or of two batches of equally many."""
    first, second = writer.values[left], writer.values[right]
    operator = "aten.mm" if len(first.shape) == 2 else "aten.bmm"
    shape = (*first.shape[:-1], second.shape[-1])
    return writer.one(operator, shape, first.dtype, name, self=Ref(left), mat2=Ref(right))


def _typed(writer: Writer, x: str, dtype: str) -> str:
    value = writer.values[x]
    return x if value.dtype == dtype else writer.one("aten._to_copy", value.shape, dtype, self=Ref(x), dtype=dtype)


def _times(writer: Writer, x: str, y: str, shape: Shape, dtype: str, name: str = "") -> str:
    first, second = _typed(writer, x, dtype), _typed(writer, y, dtype)
    return writer.one("aten.mul.Tensor", shape, dtype, name, self=Ref(first), other=Ref(second))


# ------------------------------------------------------------------------------------------- tall matrices


def _tiled(writer: Writer, x: str, count: int) -> str:
    """[tiles, rows, columns]; zeros below do not change R, and give zeros in Q."""
    size, columns = writer.values[x].shape
    rows = -(-size // count)
    if rows * count != size:
        x = writer.pad(x, rows * count - size, 0)
    return writer.reshape(x, (count, rows, columns))


def _qr(writer: Writer, x: str) -> tuple[str, ...]:
    value = writer.values[x]
    *batch, rows, columns = value.shape
    least = min(rows, columns)
    shapes = ((*batch, rows, least), value.dtype), ((*batch, least, columns), value.dtype)
    return writer.emit("aten.linalg_qr", shapes, ("", ""), {"A": Ref(x)})


def _tall_qr(writer: Writer, x: str, count: int, names: tuple[str, str] = ("", "")) -> tuple[str, str]:
    value = writer.values[x]
    (rows, columns), dtype = value.shape, value.dtype
    inner, triangles = _qr(writer, _tiled(writer, x, count))
    outer, triangle = _qr(writer, writer.reshape(triangles, (count * columns, columns)))
    outer = writer.reshape(outer, (count, columns, columns))
    top = _product(writer, _first(writer, writer.part(inner, 1, 0, columns)), _first(writer, outer))
    signs = writer.one("girih.reflection_signs", (columns,), REAL.get(dtype, dtype), Q=Ref(top))
    signed = _times(writer, outer, signs, (count, columns, columns), dtype)
    length = writer.values[inner].shape[1] * count
    Q = writer.reshape(_product(writer, inner, signed), (length, columns), names[0] if length == rows else "")
    if length != rows:
        Q = writer.part(Q, 0, 0, rows, names[0])
    R = _times(writer, writer.reshape(signs, (columns, 1)), triangle, (columns, columns), dtype, names[1])
    return Q, R


def _divide_qr(options: DivideFactorisations, writer: Writer, node: Node) -> bool:
    x = node.inputs[0]
    count = options.tiles_of(writer.values[x])
    if count == 1 or node.attributes.get("mode", "reduced") != "reduced":
        return False
    _tall_qr(writer, x, count, (node.outputs[0], node.outputs[1]))
    return True


def _divide_triangle(options: DivideFactorisations, writer: Writer, node: Node) -> bool:
    """R alone."""
    x = node.inputs[0]
    count = options.tiles_of(writer.values[x])
    if count == 1:
        return False
    _tall_qr(writer, x, count, ("", node.outputs[0]))
    return True


def _divide_svd(options: DivideFactorisations, writer: Writer, node: Node) -> bool:
    """U · S · Vh of R, with Q before U; of a wide matrix that of its adjoint."""
    x = node.inputs[0]
    value = writer.values[x]
    if len(value.shape) != 2 or (node.attributes.get("full_matrices", True) and value.shape[0] != value.shape[1]):
        return False
    U, S, Vh = node.outputs
    count = options.tiles_of(value)
    if count > 1:
        _tall_svd(writer, x, count, (U, S, Vh))
        return True
    count = options.tiles_of(replace(value, shape=value.shape[::-1]))
    if count > 1:
        left, _, right = _tall_svd(writer, _adjoint(writer, x), count, ("", S, ""))
        _adjoint(writer, right, U)
        _adjoint(writer, left, Vh)
    return count > 1


def _tall_svd(writer: Writer, x: str, count: int, names: tuple[str, str, str]) -> tuple[str, str, str]:
    value = writer.values[x]
    columns, dtype = value.shape[1], value.dtype
    Q, R = _tall_qr(writer, x, count)
    square = (columns, columns)
    shapes = (square, dtype), ((columns,), REAL.get(dtype, dtype)), (square, dtype)
    arguments: dict[str, Argument] = {"A": Ref(R), "full_matrices": False}
    inner, S, Vh = writer.emit("aten._linalg_svd", shapes, ("", *names[1:]), arguments)
    return _product(writer, Q, inner, names[0]), S, Vh


def _divide_singular_values(options: DivideFactorisations, writer: Writer, node: Node) -> bool:
    """Those of R, the signs of whose rows do not matter."""
    x = node.inputs[0]
    value = writer.values[x]
    count = options.tiles_of(value)
    if count == 1:
        return False
    columns, operator = value.shape[1], "girih.triangular_factor"
    each = writer.one(operator, (count, columns, columns), value.dtype, A=Ref(_tiled(writer, x, count)))
    stacked = writer.reshape(each, (count * columns, columns))
    R = writer.one(operator, (columns, columns), value.dtype, A=Ref(stacked))
    return writer.instead(node.operator, A=Ref(R))


# ------------------------------------------------------------------------------------------- Cholesky


def panels_of(size: int, workers: int) -> tuple[int, int]:
    """(how many panels, columns of each): a multiple of the workers, if possible without columns that are added."""
    count = min(MOST_PANELS, max(1, round(size / WIDTH)))
    most = min(MOST_PANELS, count + count // 3)
    near = [n for n in range(count - count // 4, most + 1) if size % (n * workers) == 0]
    count = min(near, key=lambda n: abs(n - count), default=count)
    width = -(-size // (count * workers)) * workers
    return -(-size // width), width


def _divide_cholesky(options: DivideFactorisations, writer: Writer, node: Node) -> bool:
    """L of x = L·Lᴴ, of the lower triangle of x."""
    x, workers = node.inputs[0], options.workers
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


def _panel(writer: Writer, blocks: str, number: int, width: int) -> str:
    """[workers, rows of each, columns] of [blocks of rows, workers, rows of each in a block, columns]."""
    count = writer.values[blocks].shape[0]
    below = writer.part(blocks, 0, number, count)
    mine = writer.permute(writer.part(below, 3, number * width, (number + 1) * width), (1, 0, 2, 3))
    workers, blocks_below, rows, _ = writer.values[mine].shape
    return writer.reshape(mine, (workers, blocks_below * rows, width))


def _with_identity(writer: Writer, panel: str, more: int) -> str:
    """The last panel, a square, with ones on its diagonal in the columns that were added."""
    value = writer.values[panel]
    width, dtype = value.shape[2], value.dtype
    ones = writer.full((width, width), 1, dtype)
    for operator in ("aten.tril", "aten.triu"):
        ones = writer.one(operator, (width, width), dtype, self=Ref(ones))
    added = writer.full((1, more), 1, dtype)
    columns = writer.one("aten.constant_pad_nd", (1, width), dtype, self=Ref(added), pad=(width - more, 0), value=0)
    arranged = writer.reshape(_times(writer, ones, columns, (width, width), dtype), value.shape)
    return writer.one("aten.add.Tensor", value.shape, dtype, self=Ref(panel), other=Ref(arranged))


def _square(writer: Writer, panel: str) -> str:
    """A panel's first rows, of all workers."""
    workers, _, width = writer.values[panel].shape
    return writer.reshape(writer.part(panel, 1, 0, width // workers), (width, width))


def _factored(writer: Writer, panel: str) -> str:
    value = writer.values[panel]
    square, rows = Ref(_square(writer, panel)), value.shape[2] // value.shape[0]
    return writer.one("girih.cholesky_panel", value.shape, value.dtype, square=square, panel=Ref(panel), rows=rows)


def _without(writer: Writer, panel: str, left: Sequence[str]) -> str:
    """The panel without the product of what is left of it and what is left of its square."""
    value = writer.values[panel]
    (workers, length, width), dtype = value.shape, value.dtype
    rows, depth = width // workers, sum(writer.values[other].shape[2] for other in left)
    tensors = tuple(map(Ref, left))
    where: dict[str, Argument] = {"below": length - rows, "rows": rows}
    beside = writer.one("girih.panel_rows", (workers, rows, depth), dtype, tensors=tensors, **where)
    square = Ref(writer.reshape(beside, (width, depth)))
    arguments: dict[str, Argument] = {"panel": Ref(panel), "tensors": tensors, "square": square}
    return writer.one("girih.less_panels", value.shape, dtype, **arguments)


DIVISIONS: dict[str, Callable[[DivideFactorisations, Writer, Node], bool]] = {
    "aten.linalg_qr": _divide_qr,
    "girih.triangular_factor": _divide_triangle,
    "aten._linalg_svd": _divide_svd,
    "aten.linalg_svdvals": _divide_singular_values,
    "aten.linalg_cholesky": _divide_cholesky,
}
"""What divides a node, if it is large enough."""
