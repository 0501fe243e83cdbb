"""Matrix products, distances, batched factorisations and Fourier transforms."""

from __future__ import annotations

from math import prod

from girih.ops.catalogue.moves.indices import dimensions, opaque_along, replaced
from girih.ops.catalogue.pointwise.arithmetic import times
from girih.ops.derive.temporaries import Measured, copied
from girih.ops.language import Affine, Concatenated, Max, Opaque, Select, Sum, equal, fn
from girih.ops.operator import operator

absolute, at_least, conjugate = fn("abs"), fn("ge"), fn("conj")


def matrix_copies(work):
    """Both operands and the result in blocks of matrix units, rounded up in every dimension, twice; in each thread the
    largest of them in float32."""
    tensors = (*work.inputs.values(), work.output)
    sizes = [prod(-(-size // 64) * 64 for size in item.shape[-2:]) * prod(item.shape[:-2]) for item in tensors]
    return 4 * sum(sizes) + work.threads * (4 * max(sizes) + (1 << 16)) + work.copied


def multiplications(work):
    return 2 * work.output.elements * next(reversed(work.inputs.values())).shape[-2]


SHORT_PRODUCT = Measured(matrix_copies, multiplications, only=(2,))
"""The scratch of products of float16 and bfloat16, which a library multiplies in its own order of memory where the
processor has units for them. Products of longer numbers take none."""


@operator("aten.mm", temporary=SHORT_PRODUCT)
def mm(x, mat2):
    return lambda i, j: Sum(lambda k: x[i, k] * mat2[k, j])


@operator("aten.bmm", temporary=SHORT_PRODUCT)
def bmm(x, mat2):
    return lambda b, i, j: Sum(lambda k: x[b, i, k] * mat2[b, k, j])


@operator("girih.head_product", temporary=lambda work: work.copied)
def head_product(x, mat2):
    """A product for each head of each example: `aten.bmm` has both in one dimension, which heads cannot divide."""
    return lambda b, h, i, j: Sum(lambda k: x[b, h, i, k] * mat2[b, h, k, j])


@operator("aten.mv")
def mv(x, vec):
    return lambda i: Sum(lambda k: x[i, k] * vec[k])


@operator("aten.dot")
def dot(x, tensor):
    return lambda: Sum(lambda k: x[k] * tensor[k])


@operator("aten.addmm", temporary=SHORT_PRODUCT)
def addmm(x, mat1, mat2, beta=1, alpha=1):
    product = lambda i, j: Sum(lambda k: mat1[i, k] * mat2[k, j])
    return lambda i, j: times(x.broadcast((i, j)), beta) + times(product(i, j), alpha)


@operator("aten.baddbmm", temporary=SHORT_PRODUCT)
def baddbmm(x, batch1, batch2, beta=1, alpha=1):
    product = lambda b, i, j: Sum(lambda k: batch1[b, i, k] * batch2[b, k, j])
    return lambda b, i, j: times(x.broadcast((b, i, j)), beta) + times(product(b, i, j), alpha)


@operator("aten.addmv")
def addmv(x, mat, vec, beta=1, alpha=1):
    return lambda i: times(x.broadcast((i,)), beta) + times(Sum(lambda k: mat[i, k] * vec[k]), alpha)


def rows_beside(work):
    """Batches that are spread out or do not lie in order are copied. Euclidean distances of many rows are a product of
    both operands with their squares and ones beside (ATen/native/Distance.cpp): with compute mode 0 of more than 25."""
    batch, item = prod(work.output.shape[:-2]), work.output.item_bytes
    operands = [work.inputs["x1"], work.inputs["x2"]]
    whole = [batch * prod(x.shape[-2:]) * item for x in operands]
    copies = sum(size for x, size in zip(operands, whole, strict=True) if not x.contiguous or size != x.bytes)
    copies += max((x.turning for x in operands if not x.contiguous), default=0)
    mode, rows = work.attributes.get("compute_mode") or 0, [x.shape[-2] for x in operands]
    if work.attributes["p"] == 2 and (mode == 1 or (mode == 0 and max(rows) > 25)):
        return copies + batch * sum(rows) * (operands[0].shape[-1] + 2) * item
    return copies


@operator("aten._cdist_forward", temporary=rows_beside)
def cdist(x1, x2, p, compute_mode=None):
    """The p-norm of each difference of rows; batches broadcast."""

    def meaning(*i):
        *batch, r, s = i
        difference = lambda k: absolute(x1.broadcast((*batch, r, k)) - x2.broadcast((*batch, s, k)))
        sizes = (x1.shape[-1],)
        if p == float("inf"):
            return Max(difference, sizes=sizes)
        if p == 0:
            return Sum(lambda k: Select(equal(difference(k), 0), 0, 1), sizes=sizes)
        if p == 1:
            return Sum(difference, sizes=sizes)
        return Sum(lambda k: difference(k) ** p, sizes=sizes) ** (1 / p)

    return meaning


@operator("aten.linalg_cross")
def linalg_cross(x, other, dim=-1):
    """The cross product of vectors of three along `dim`; all other dimensions broadcast."""

    def meaning(*i):
        at = dim % len(i)
        element = lambda tensor, place: tensor.broadcast(replaced(i, at, Affine((), place % 3)))
        turned = lambda first, second: element(x, first) * element(other, second)
        part = lambda number, _: turned(number + 1, number + 2) - turned(number + 2, number + 1)
        return Concatenated(i[at], (1, 1, 1), part)

    return meaning


@operator("aten._pdist_forward")
def pdist(x, p=2.0):
    return lambda i: Opaque(x[:, :])[i]


# What these hold depends on LAPACK's work arrays, which grow with its block size: bounds, of what MKL is asked for.


def matrices(work):
    """(the first operand, how many matrices it has, the greater extent of one)"""
    x = next(iter(work.inputs.values()))
    return x, prod(x.shape[:-2]), max(x.shape[-2:])


def checks(work):
    """What does not lie in order, and LAPACK's verdict of each matrix."""
    return work.copied + 5 * matrices(work)[1] + 1


def factors(work):
    """The factors, with the pivots as numbers and as a permutation, and LAPACK's verdicts."""
    x, count, size = matrices(work)
    return x.bytes + work.copied + count * (20 * size + 64) + 64


def reflections(work):
    """A copy, the factor, and LAPACK's work."""
    x, count, size = matrices(work)
    return 2 * x.bytes + (count + 64) * size * x.item_bytes


def decomposition(work):
    """A copy and LAPACK's verdicts."""
    x, count, _ = matrices(work)
    return x.bytes + 4 * count + 64


def symmetric_values(work):
    """A copy, LAPACK's verdicts and its work."""
    x, count, size = matrices(work)
    return x.bytes + (40 * size + 8) * x.item_bytes + 20 * size + 5 * count + 64


def symmetric_vectors(work):
    """The vectors are made where the copy lies; LAPACK's work has two more of one matrix."""
    x, _, size = matrices(work)
    return symmetric_values(work) - x.bytes + work.copied + 2 * size**2 * x.item_bytes


def general_values(work):
    x, count, size = matrices(work)
    return x.bytes + (40 + 4 * count) * size * x.item_bytes + 64


def general_vectors(work):
    x, _, size = matrices(work)
    return 4 * x.bytes + 600 * size * x.item_bytes + 64


def powers(work):
    """Powers of the matrix and sums of them (Bader, Blanes and Casas 2019)."""
    return 15 * matrices(work)[0].bytes + 64


def square(name):
    """The parameter of `describe` by that name, of a function of square matrices, one for each batch."""
    if name == "A":
        return lambda A: opaque_along((A.rank - 2, A.rank - 1), A)
    return lambda x: opaque_along((x.rank - 2, x.rank - 1), x)


cholesky = operator("aten.cholesky", "aten.linalg_cholesky", temporary=checks)(square("x"))
cholesky_ex = operator("aten.linalg_cholesky_ex", result=0, temporary=checks)(square("x"))
inverse_ex = operator("aten.linalg_inv_ex", result=0, temporary=factors)(square("A"))
matrix_exp = operator("aten.linalg_matrix_exp", temporary=powers)(square("x"))
inverse = operator("aten.linalg_inv", temporary=factors)(square("A"))


def of_matrices(A):
    """An opaque function of each matrix; its result has any number of dimensions behind those of the batch."""
    batch = A.rank - 2
    return lambda *i: Opaque(A[(*i[:batch], slice(None), slice(None))])[i[batch:]]


@operator("aten.linalg_det", temporary=factors)
def determinant(A):
    return of_matrices(A)


@operator("aten.linalg_slogdet", results=2, temporary=factors)
def sign_and_log_determinant(A):
    return of_matrices(A), of_matrices(A)


@operator("aten.linalg_qr", results=2, temporary=reflections)
def qr(A, mode="reduced"):
    """A = Q·R: Q with orthonormal columns, and the upper triangle R."""
    return of_matrices(A), of_matrices(A)


@operator("aten._linalg_svd", results=3, temporary=decomposition)
def svd(A, full_matrices=False):
    """U, the singular values and V transposed."""
    return of_matrices(A), of_matrices(A), of_matrices(A)


@operator("aten._linalg_eigh", results=2, temporary=symmetric_vectors)
def eigh(A, UPLO="L"):
    """The eigenvalues, ascending, and the eigenvectors as columns."""
    return of_matrices(A), of_matrices(A)


@operator("aten.linalg_eig", results=2, temporary=general_vectors)
def eig(x):
    """The eigenvalues, in no order, and the eigenvectors as columns."""
    return of_matrices(x), of_matrices(x)


@operator("aten.linalg_eigvals", temporary=general_values)
def eigvals(x):
    return of_matrices(x)


singular_values = operator("aten.linalg_svdvals", temporary=decomposition)(lambda A: of_matrices(A))
triangular_factor = operator("girih.triangular_factor", temporary=reflections)(lambda A: of_matrices(A))


@operator("aten.linalg_eigvalsh", temporary=symmetric_values)
def eigvalsh(x, UPLO="L"):
    return of_matrices(x)


def eliminated(work):
    """A copy, from which columns are eliminated one by one, and what is taken away from it."""
    return 2 * work.inputs["Q"].bytes + 64 + 16 * work.output.elements


@operator("girih.reflection_signs", temporary=eliminated)
def reflection_signs(Q):
    return lambda i: Opaque(Q[:, :])[i]


@operator("aten.linalg_solve", walked=0, temporary=factors)
def solve(A, B):
    """Every column of B by itself: whoever has some of them factors A."""
    batch = max(A.rank, B.rank) - 2

    def of(x, i, column):
        lead = i[batch - (x.rank - 2) : batch]
        sizes = x.shape[: x.rank - 2]
        return x[(*(0 if size == 1 else one for size, one in zip(sizes, lead, strict=True)), slice(None), column)]

    if A.rank != B.rank:  # PyTorch could take some columns of B for a batch of vectors
        return lambda *i: Opaque(of(A, i, slice(None)), of(B, i, slice(None)), linear=(1,))[i[batch:]]
    return lambda *i: Opaque(of(A, i, slice(None)), of(B, i, i[-1]), linear=(1,))[i[-2]]


@operator("aten.linalg_solve_triangular", temporary=copied)
def solve_triangular(x, B, upper, left=True, unitriangular=False):
    if left:  # each column of B by itself
        return lambda *i: Opaque(x[(*i[:-2], slice(None), slice(None))], B[(*i[:-2], slice(None), i[-1])], linear=(1,))[
            i[-2]
        ]
    return lambda *i: Opaque(
        x[(*i[:-2], slice(None), slice(None))], B[(*i[:-2], slice(None), slice(None))], linear=(1,)
    )[i[-2:]]


def factor_of_square(work):
    """The factor, and once more what LAPACK is given. A bound: complex numbers alone are copied to be conjugated."""
    return 2 * work.inputs["square"].bytes


@operator(
    "girih.cholesky_panel",
    piece=lambda attributes, piece: {**attributes, "first": piece.start("p")},
    temporary=factor_of_square,
    walked=0,
)
def cholesky_panel(square, panel, rows, first=0):
    """Every part of the panel by itself: whoever has one factors the square."""
    return lambda p, i, j: Opaque(square[:, :], panel[p, :, :])[i, j]


def beside(tensors, below):
    """Element [p, i, k] of panels of a lower triangle side by side, in row i of those of which `below` are the last."""
    widths = [x.shape[2] for x in tensors]
    above = [x.shape[1] - below for x in tensors]
    return lambda p, i, k: Concatenated(k, widths, lambda number, column: tensors[number][p, i + above[number], column])


@operator("girih.panel_rows", piece=lambda attributes, piece: {**attributes, "below": 0, "rows": piece.length("i")})
def panel_rows(tensors, below, rows):
    """The `rows` above the last `below` of panels [parts, rows, columns] side by side; a piece gets just those."""
    return beside(tensors, below + rows)


@operator("girih.less_panels", piece=lambda attributes, piece: attributes)
def less_panels(panel, tensors, square):
    """panel - tensors · squareᴴ: the last rows of panels side by side, as many as `panel` has."""
    left = beside(tensors, panel.shape[1])
    return lambda p, i, j: (
        panel[p, i, j] - Sum(lambda k: left(p, i, k) * conjugate(square[j, k]), sizes=(square.shape[1],))
    )


@operator("girih.join_panels", piece=lambda attributes, piece: attributes)
def join_panels(tensors):
    """[blocks, parts, rows, columns] of panels [parts, blocks, rows, columns] of a lower triangle, each from its
    diagonal down; the kernel sees by their blocks where that is."""
    widths = [x.shape[3] for x in tensors]
    above = [tensors[0].shape[1] - x.shape[1] for x in tensors]

    def element(q, p, i, number, j):
        return Select(at_least(q, above[number]), tensors[number][p, q - above[number], i, j], 0)

    return lambda q, p, i, j: Concatenated(j, widths, lambda number, column: element(q, p, i, number, column))


def regression(work):
    """girih.kernels.own.ridge_rows, one row after another: the places of what is rated (int64, with its mask and its
    own values), the features there and transposed, the normal equations, their factors and right-hand sides. A bound:
    every place is rated."""
    places, features = work.inputs["features"].shape
    item = work.inputs["features"].item_bytes
    return places * (9 + item) + 2 * places * features * item + (3 * features**2 + 4 * features) * item


@operator("girih.ridge_rows", temporary=regression)
def ridge_rows(ratings, features, penalty):
    return lambda i, j: Opaque(ratings[i, :], features[:, :])[j]


def transformed(work):
    """A copy in another order of dimensions (a bound); of more than three, which are transformed three at a time, two
    of them."""
    return max(work.inputs["self"].bytes, work.output.bytes) * (1 if len(work.attributes["dim"]) <= 3 else 2)


def transformed_back(work):
    """The last dimension is transformed by itself, behind the others, in a copy."""
    return transformed(work) + work.inputs["self"].bytes * (len(work.attributes["dim"]) > 1)


def fft(x, dim):
    return opaque_along(dimensions(x.rank, dim), x, linear=(0,))


to_complex = operator("aten._fft_r2c", "aten._fft_c2c", temporary=transformed)(fft)
to_real = operator("aten._fft_c2r", temporary=transformed_back)(fft)
