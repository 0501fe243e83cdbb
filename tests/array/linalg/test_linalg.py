"""Factorisations and what follows from them: NumPy's results, signs and errors; tall matrices in tiles of rows."""

from __future__ import annotations

import numpy as np
import pytest
from array_cases import same
from borders import of_large

import girih.array as gnp
from girih.array.session.planning import SMALL, passes
from girih.graph import Value
from girih.program import ComputeStep
from girih.rewrite.passes.factorisations import DivideFactorisations

RANDOM = np.random.default_rng(3)
TALL = RANDOM.normal(size=(1001, 9))

CASES = [
    "np.linalg.qr(a)", "np.linalg.qr(f)", "np.linalg.qr(a, mode='r')", "np.linalg.qr(a, mode='complete')",
    "np.linalg.qr(z)", "np.linalg.qr(i)", "abs(np.linalg.svd(a, full_matrices=False)[0])",
    "abs(np.linalg.svd(f[:, :, :3])[2])", "np.linalg.svd(f)[1]", "np.linalg.svd(a.T, compute_uv=False)",
    "np.linalg.svdvals(z)",
    "np.linalg.eigh(spd)[0]", "abs(np.linalg.eigh(spd)[1])", "np.linalg.eigh(spd, 'U')[0]", "np.linalg.eigvalsh(spd)",
    "np.linalg.eigh(z @ z.conj().T)[0]", "np.linalg.slogdet(spd)", "np.linalg.slogdet(-spd[:3, :3])",
    "np.linalg.slogdet(z)", "np.linalg.det(z)", "np.linalg.pinv(a)", "np.linalg.pinv(a.T)", "np.linalg.pinv(f)",
    "np.linalg.pinv(a, rtol=0.5)", "np.linalg.matrix_rank(a)", "np.linalg.matrix_rank(f)",
    "np.linalg.matrix_rank(np.outer(v, v))", "np.linalg.matrix_rank(v)", "np.linalg.matrix_rank(a, tol=2.5)",
    "np.linalg.cond(a)", "np.linalg.cond(spd, 1)", "np.linalg.cond(f)", "np.linalg.cond(spd, 'fro')",
    "np.linalg.cond(spd, -2)", "np.linalg.lstsq(a, b)", "np.linalg.lstsq(a, b[:, 0])", "np.linalg.lstsq(a.T, c[:, 0])",
    "np.linalg.lstsq(np.outer(v, v), v)", "np.linalg.cholesky(spd, upper=True)", "np.linalg.solve(spd, i[:6, 0])",
    "np.linalg.solve(spd[None] + np.arange(3.0)[:, None, None] * np.eye(6), spd[:, :2])",
    "np.linalg.matrix_power(spd, -2)", "np.linalg.norm(a, 2)", "np.linalg.norm(a, -2)", "np.linalg.norm(a, 'nuc')",
    "np.linalg.norm(f, 'nuc', axis=(0, 2), keepdims=True)", "np.linalg.norm(f, 1, axis=(2, 0))",
    "np.linalg.norm(f, -np.inf, (1, 0))", "np.linalg.norm(v, 0)", "np.linalg.norm(v, -np.inf)", "np.linalg.norm(i)",
    "np.linalg.norm(f, axis=(0, 1), keepdims=True)", "np.linalg.matrix_norm(f, ord=2)", "np.linalg.norm(v, -1.5)",
]  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_as_numpy(two, text):
    same(text)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_tall_matrices_are_factored_in_tiles(cluster, dtype):
    """Rows that the tiles do not divide; signs are NumPy's."""
    tall = (TALL + 1j * TALL[::-1] if dtype == np.complex128 else TALL).astype(dtype)
    x = gnp.array(tall)
    assert x.size > SMALL
    close = {"rtol": 1e-3, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-10}
    q, r = gnp.linalg.qr(x)
    for got, expected in zip((q, r), np.linalg.qr(tall), strict=True):
        np.testing.assert_allclose(got.compute(), expected, **close)
    u, s, vh = gnp.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(s.compute(), np.linalg.svdvals(tall), **close)
    np.testing.assert_allclose(gnp.linalg.svdvals(x * 1).compute(), np.linalg.svdvals(tall), **close)
    np.testing.assert_allclose(((u * s) @ vh).compute(), tall, **close)
    np.testing.assert_allclose((u.T.conj() @ u).compute(), np.eye(9), **close)
    np.testing.assert_allclose(np.abs(gnp.linalg.qr(x * 2, "r").compute()), np.abs(2 * r.compute()), **close)
    wide = gnp.linalg.svd(x.T, full_matrices=False)
    np.testing.assert_allclose(((wide.U * wide.S) @ wide.Vh).compute(), tall.T, **close)


def test_a_tall_matrix_of_lower_rank(two):
    tall = TALL[:, :4] @ RANDOM.normal(size=(4, 9))
    x = gnp.array(tall)
    q, r = gnp.linalg.qr(x)
    np.testing.assert_allclose((q @ r).compute(), tall, atol=1e-10)
    np.testing.assert_allclose((q.T @ q).compute(), np.eye(9), atol=1e-10)
    right = TALL[:, 0]
    got, expected = gnp.linalg.lstsq(x, right), np.linalg.lstsq(tall, right)
    assert (got[2], got[1].shape) == (expected[2], expected[1].shape) == (4, (0,))
    np.testing.assert_allclose(got[0].compute(), expected[0], atol=1e-10)


@of_large
def test_of_a_tall_matrix_only_small_factors_move():
    with gnp.cluster(workers=2, backend="threads"):
        x = gnp.array(RANDOM.normal(size=(4000, 16)))
        (x * 1.0).persist()
        for made in (gnp.linalg.qr(x).Q, gnp.linalg.svd(x, full_matrices=False).U, gnp.linalg.svdvals(x)):
            assert gnp.explain(made).bytes <= 12 * 16 * 16 * 8


@of_large
def test_results_of_one_call_are_kept_and_freed_by_themselves():
    with gnp.cluster(workers=2, backend="threads") as two:
        check_results_of_one_call(two)


def check_results_of_one_call(two):
    x = gnp.array(RANDOM.normal(size=(4, 7, 3)))
    q, r = gnp.linalg.qr(x)
    assert gnp.linalg.qr(x).Q.expression is q.expression
    before = two.evaluations
    r.compute()
    q.compute()
    assert two.evaluations == before + 1  # made together
    of_q, of_r = q.expression.kept.key, r.expression.kept.key
    del q
    (x + 1).compute()
    (x + 2).compute()
    assert of_q not in two.run.tiles()[0]
    assert of_r in two.run.tiles()[0]
    y = gnp.linalg.qr(x * 2).R * 2
    np.testing.assert_allclose(y.compute(), 2 * np.linalg.qr(x.compute() * 2).R, atol=1e-12)


def test_some_eigenvalues_of_a_large_matrix(two):
    root = np.random.default_rng(4).normal(size=(160, 160))
    symmetric = (root + root.T) / 2
    values = np.linalg.eigvalsh(symmetric)
    x = gnp.array(symmetric)
    for which, expected in (("LA", values[-3:]), ("SA", values[:3]), ("LM", None)):
        got, near = gnp.linalg.eigsh(x, 3, which)
        if expected is None:
            expected = np.sort(values[np.argsort(np.abs(values))[-3:]])
        np.testing.assert_allclose(got.compute(), expected, rtol=1e-9)
        np.testing.assert_allclose((x @ near).compute(), (near * got).compute(), atol=1e-6)
    assert gnp.linalg.eigsh(x[:20, :20], 2)[0].shape == (2,)


@of_large
def test_right_hand_sides_are_divided_but_not_cut_into_blocks(two):
    """Whoever has some of the columns factors the matrix: each worker once, not once for every block."""
    matrix, sides = RANDOM.normal(size=(60, 60)) + 60 * np.eye(60), RANDOM.normal(size=(60, 9000))
    x = gnp.linalg.solve(gnp.array(matrix), gnp.array(sides) * 2)
    np.testing.assert_allclose(x.compute(), np.linalg.solve(matrix, 2 * sides), atol=1e-12)
    program = x.expression.kept.plan.program
    number = next(at for at, node in enumerate(program.graph.nodes) if node.operator == "aten.linalg_solve")
    assert program.strategy.divisions[number].codes == (1,)
    assert any(isinstance(step, ComputeStep) and step.node == number for step in program.steps)


ERRORS = [
    (lambda np, x: np.linalg.qr(x[0]), "at least two-dimensional"),
    (lambda np, x: np.linalg.eigh(x[:2]), "must be square"),
    (lambda np, x: np.linalg.lstsq(x, x[:3, 0]), "Incompatible dimensions"),
    (lambda np, x: np.linalg.eigh(x, "Z"), "UPLO"),
    (lambda np, x: np.linalg.norm(x, "nuc", 0), "Invalid norm order"),
    (lambda np, x: np.linalg.norm(x, 7), "Invalid norm order"),
    (lambda np, x: np.linalg.norm(x, 2, (0, 0)), "Duplicate axes"),
    (lambda np, x: np.linalg.svd(x.astype(np.float16)), "float16 is unsupported"),
    (lambda np, x: str(np.linalg.inv(x * 0)), "(?i)singular"),
    (lambda np, x: str(np.linalg.solve(x * 0, x)), "(?i)singular"),
    (lambda np, x: str(np.linalg.cholesky(-x)), "positive.definite"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_are_numpys(two, number):
    call, words = ERRORS[number]
    content = np.eye(4) + 1
    with pytest.raises(Exception, match=words) as expected:
        call(np, content)
    with pytest.raises(expected.type, match=words):
        call(gnp, gnp.array(content))


@pytest.mark.parametrize("rows", [60_000, 59_999])
def test_tiles_are_as_small_as_a_cache(cluster, rows):
    """Also where the last tile is filled with zeros."""
    x = np.random.default_rng(0).normal(size=(rows, 5))
    divide = passes(1)[0]
    assert isinstance(divide, DivideFactorisations)
    assert divide.tiles_of(Value("x", x.shape, "float64")) > 1  # also of one worker
    Q, R = gnp.linalg.qr(gnp.array(x))
    known = np.linalg.qr(x)
    np.testing.assert_allclose(Q.compute(), known.Q, atol=1e-12)
    np.testing.assert_allclose(R.compute(), known.R, rtol=1e-10, atol=1e-10)


@of_large
@pytest.mark.parametrize("shape", [(6, 4), (6,), (2, 6, 3)])
def test_a_factor_of_cholesky_is_solved_as_a_triangle(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    root = random.normal(size=(*shape[:-2], 6, 6)) if len(shape) == 3 else random.normal(size=(6, 6))
    spd, b = root @ root.swapaxes(-1, -2) + 6 * np.eye(6), random.normal(size=shape)
    with gnp.cluster(workers=2, backend="threads", timeout=60.0):
        factor = gnp.linalg.cholesky(gnp.array(spd))
        x = gnp.linalg.solve(factor, gnp.array(b))
        expected = np.linalg.solve(np.linalg.cholesky(spd), b)
        np.testing.assert_allclose(x.compute(), expected, rtol=1e-12, atol=1e-14)
        used = {node.operator for node in x.expression.kept.plan.graph.nodes}
    assert "aten.linalg_solve_triangular" in used
    assert "aten.linalg_solve" not in used


def test_what_is_not_there_says_what_to_do():
    with pytest.raises(AttributeError, match=r"random has no get_state: numpy.random.get_state takes x.compute"):
        gnp.random.get_state  # noqa: B018
    with pytest.raises(AttributeError, match=r"NumPy has none either; the nearest name here is cholesky"):
        gnp.linalg.cholseky  # noqa: B018
