"""Loops as users write them: results, buffers, accumulators, random numbers, determinism, bad input."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import girih.loop as gl
from benchmarks import loop_bodies
from benchmarks.loop_cases import Case, problems
from girih.loop.capture.errors import LoopError
from girih.loop.explain import _predicted
from girih.loop.run.threads import Span
from girih.loop.schedules.schedule import rotation, wavefront
from girih.loop.schedules.timeline import simulated


@pytest.mark.parametrize("case", loop_bodies.paper(), ids=lambda case: case.name)
def test_loops_of_the_thesis_run_as_they_were_meant(case: Case) -> None:
    """Ordered loops have the bits of a serial run, unordered ones the result of a serial order of their blocks."""
    assert problems(case, (3,)) == []


def ratings(count: int = 3000, m: int = 60, n: int = 40, dtype: type = np.float32) -> gl.Space:
    draw = np.random.default_rng(0)
    i, j = draw.integers(0, m, count), draw.integers(0, n, count)
    return gl.sparse((i, j), draw.standard_normal(count).astype(dtype), shape=(m, n))


def factors(space: gl.Space, rank: int, dtype: type = np.float32) -> tuple[gl.Array, gl.Array]:
    draw = np.random.default_rng(1)
    return tuple(gl.array(draw.normal(0, 0.3, (size, rank)), dtype) for size in space.shape)  # type: ignore[return-value]


def sgd(key, v, W, H, step):
    i, j = key
    d = v - W[i] @ H[j]
    W[i], H[j] = W[i] + step * d * H[j], H[j] + step * d * W[i]


@pytest.mark.parametrize("rank", [1, 3, 16, 100])
def test_the_lowered_body_is_numpys(rank: int) -> None:
    space = ratings(300)
    W, H = factors(space, rank)
    expected = W.numpy(), H.numpy()
    for key, v in zip(
        zip(*(keys.tolist() for keys in space.entries.keys), strict=True), space.entries.columns[0], strict=True
    ):
        sgd(key, v, *expected, 0.05)
    gl.parallel_for(space, ordered=False)(sgd).serial(W, H, step=0.05)
    np.testing.assert_allclose(W.values, expected[0], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(H.values, expected[1], rtol=2e-4, atol=1e-5)


def test_the_same_seed_and_workers_give_the_same_bits() -> None:
    space = ratings()
    results = []
    for _ in range(3):
        W, H = factors(space, 8)
        loop = gl.parallel_for(space, ordered=False, workers=3)(sgd)
        for _ in range(3):
            loop(W, H, step=0.05)
        results.append(W.numpy())
    assert all(np.array_equal(results[0], item) for item in results[1:])


def test_accumulators_are_sums_products_and_extremes() -> None:
    total, most, least, product = (gl.accumulator(*given) for given in (
        (10.0,), (-np.inf, "max"), (np.inf, "min"), (1.0, "product")))  # fmt: skip

    @gl.parallel_for(gl.dense(np.linspace(0.5, 1.5, 101)), workers=3)
    def loop(i, v):
        total += v
        most = max(most, v)
        least = min(least, v)
        product *= v

    loop()
    loop()
    values = np.linspace(0.5, 1.5, 101)
    assert total.value == pytest.approx(10 + 2 * values.sum())
    assert (most.value, least.value) == (1.5, 0.5)
    assert product.value == pytest.approx(np.prod(values) ** 2)
    assert total.aggregate(lambda a, b: a + b) == pytest.approx(2 * values.sum())
    total.reset()
    assert total.value == 10


def test_what_a_decorator_is_given_is_no_part_of_the_body() -> None:
    """A lambda in it is refused within a body alone."""

    def keeping(do):  # an own decorator, which gives the function back
        return lambda function: function if do(1) else None

    seen = gl.array(np.zeros(3))

    @keeping(lambda value: value == 1)
    def body(i, seen):
        seen[i] = i + 1

    gl.parallel_for(gl.range(3), workers=2)(body)(seen)
    assert seen.numpy().tolist() == [1, 2, 3]


def test_buffered_writes_come_late_by_no_more_than_the_delay() -> None:
    """With one worker and a delay of d, iteration i sees the writes of all iterations before i - i % d."""
    for delay in (1, 5, None):
        a, seen = gl.array(np.zeros(1)), gl.array(np.zeros(20))

        def body(i, a, late, seen):
            seen[i] = a[0]
            late[0] += 1

        gl.parallel_for(gl.range(20), workers=1)(body)(a, gl.buffer(a, delay=delay), seen)
        step = delay or 20
        assert seen.numpy().tolist() == [i - i % step for i in range(20)]
        assert a[0] == 20


def test_buffers_are_applied_by_the_users_function_and_do_not_depend_on_timing() -> None:
    space = loop_bodies.buffered()[0]

    def halved(w, u):
        return 0.5 * w + u

    results = []
    for _ in range(2):
        w = gl.array(np.ones(15))
        loop = gl.parallel_for(space, workers=3)(loop_bodies.slr)
        loop(w, gl.buffer(w, halved, delay=4), step=0.1)
        results.append(w.numpy())
        assert loop.explain().kind == "1d"
    assert np.array_equal(*results)
    assert np.all(results[0] < 1)


def test_a_buffers_function_keeps_within_its_further_numbers() -> None:
    def revised(w, u, further):
        further[2] += u
        return w + u

    def body(i, late):
        late[i % 4] += 1.0

    late = gl.buffer(gl.array(np.zeros(4)), revised, further=gl.array(np.ones((2, 4))))
    with pytest.raises(IndexError, match="late: the buffer's function asks for more than 2 further numbers"):
        gl.parallel_for(gl.range(8), workers=2)(body)(late)


def test_what_a_failed_execution_had_buffered_is_gone() -> None:
    """And a buffer with another function is another loop."""

    def body(i, a, late):
        late[i, int(a[i])] += 1.0

    w = gl.array(np.zeros((4, 2)))
    a = gl.array(np.array([0.0, 1.0, 0.0, 2.0]))
    loop = gl.parallel_for(gl.range(4), workers=1)(body)
    with pytest.raises(IndexError, match=r"subscript `int\(a\[i\]\)` lies outside an array dimension of 2"):
        loop(a, gl.buffer(w))
    a[3] = 1.0
    loop(a, gl.buffer(w))
    assert w.numpy().sum() == 4
    loop(a, gl.buffer(w, lambda old, new: old + 10 * new))
    assert w.numpy().sum() == 44
    with pytest.raises(LoopError, match="late: Numba cannot compile the function of this buffer"):
        loop(a, gl.buffer(w, lambda old, new: input()))


@pytest.mark.parametrize("ordered", [True, False])
def test_blocks_that_wait_for_each_other_do_so_with_buffers_too(ordered: bool) -> None:
    """In every round the workers' pieces share no row and no column."""
    from girih.loop.execution import Execution

    def body(key, v, W, H, late):
        i, j = key
        W[i], H[j] = W[i] + H[j], H[j] + W[i]
        late[0] += v

    space = ratings(500)
    loop = gl.parallel_for(space, ordered=ordered, workers=3, kind="2d")(body)
    given = loop.bound((*factors(space, 4), gl.buffer(gl.array(np.zeros(1)), delay=7)), {})
    prepared = loop.prepared(given, 3)
    rounds = Execution(prepared, given, space, ordered, loop.seed()).rounds()
    keys = prepared.layout.entries.keys
    assert sorted(entry for pieces in rounds for what in pieces if what for entry in range(*what)) == list(range(500))
    for pieces in rounds:
        for dim in keys:
            touched = [set(dim[slice(*what)].tolist()) for what in pieces if what]
            assert sum(map(len, touched)) == len(set().union(*touched))
            assert all(what[1] - what[0] <= 7 for what in pieces if what)


SCALE = 2.0


def scaled(x):
    return SCALE * x


def test_a_number_that_a_helper_reads_is_what_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(i, a):
        a[i] = scaled(a[i])

    a = gl.array(np.ones(3))
    loop = gl.parallel_for(gl.range(3), workers=1)(body)
    loop(a)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 10.0)
    loop(a)
    assert a.numpy().tolist() == [20.0] * 3


def test_a_row_that_data_choose_is_chosen_after_the_data_have_changed() -> None:
    def body(i, x, W, found):
        x[i] = x[i] + 1.0
        row = W[int(x[i, 0])]
        found[i] = row * 1.0

    x, found = gl.array(np.zeros((2, 3))), gl.array(np.zeros((2, 3)))
    gl.parallel_for(gl.range(2), workers=1)(body)(x, gl.array(np.arange(9.0).reshape(3, 3)), found)
    assert found.numpy().tolist() == [[3.0, 4.0, 5.0]] * 2


def test_random_numbers_are_the_iterations_own() -> None:
    def body(i, a):
        a[i] = gl.random()

    results = []
    for workers in (1, 2, 3):
        a = gl.array(np.zeros(1000))
        loop = gl.parallel_for(gl.range(1000), workers=workers, seed=5)(body)
        loop(a)
        results.append(a.numpy())
        loop(a)
        assert not np.array_equal(results[0], a.values)
    assert all(np.array_equal(results[0], item) for item in results)
    assert abs(results[0].mean() - 0.5) < 0.05
    assert len(set(results[0])) == 1000
    with pytest.raises(RuntimeError, match="in the body of a parallel loop"):
        gl.random()


def test_a_subscript_below_zero_is_no_other_element() -> None:
    def body(i, a, b):
        b[i] = a[i - 1]

    a, b = gl.array(np.arange(4.0)), gl.array(np.zeros(4))
    with pytest.raises(IndexError, match=r"test_running\.py:\d+: subscript `i - 1` lies outside .* of 4; below 0"):
        gl.parallel_for(gl.range(4))(body)(a, b)
    gl.parallel_for(gl.range((1, 4)))(body)(a, b)
    assert b.numpy()[1:].tolist() == [0, 1, 2]

    def guarded(i, a, b):
        if i > 0:
            b[i] = a[i - 1]

    gl.parallel_for(gl.range(4))(guarded)(a, b)


def test_subscripts_of_other_arrays_are_checked() -> None:
    """Of inherited ones, in lists too, of parts of them, and of those that the body makes: what lies behind their ends
    would be read, or overwritten."""
    table = np.arange(8) + 3

    def inherited(i, a):
        a[i] = table[i + 1]

    def given(i, a, held):
        a[i] = held[0][i + 1]

    def part(i, a):
        some = table[2:]
        a[i] = some[i]

    def made(i, a):
        own = np.zeros(4)
        own[i] = 1
        a[i] = own[0]

    a = gl.array(np.zeros(8))
    for body, more, text in (
        (inherited, (), r"table\[i \+ 1\]"), (given, ((table,),), r"held\[0\]\[i \+ 1\]"), (part, (), r"some\[i\]"),
        (made, (), r"own\[i\]"),
    ):  # fmt: skip
        words = rf"test_running\.py:\d+: a subscript lies outside its array in {body.__name__} .*`{text}` in line \d+"
        with pytest.raises(IndexError, match=words):
            gl.parallel_for(gl.range(8), workers=2)(body)(a, *more)


def test_what_is_known_to_lie_inside_is_not_checked_again() -> None:
    space = ratings(50)
    W, H = factors(space, 4)
    loop = gl.parallel_for(space, ordered=False)(sgd)
    assert not loop.prepared(loop.bound((W, H, 0.05), {}), 2).kernel.recipe.bounds

    def rows(i, v, a):
        for k in range(3):
            a[i] += v[k] + v[k - 3]

    loop = gl.parallel_for(gl.sparse((np.arange(9),), np.ones((9, 3))))(rows)
    assert not loop.prepared(loop.bound((gl.array(np.zeros(9)),), {}), 2).kernel.recipe.bounds


def test_whole_numbers_have_no_result_of_their_own_for_what_python_has_none() -> None:
    def divided(i, a):
        a[i] = 5 // (i - 3)

    def left(i, a):
        x = 7 - i
        x %= i
        a[i] = x

    def power(i, a):
        a[i] = 2 ** (1 - i)

    def fraction(i, a):
        a[i] = 5 / (i - 3)

    for body, kind, words in (
        (fraction, ZeroDivisionError, r"`5 / \(i - 3\)`: division of whole numbers by zero"),
        (divided, ZeroDivisionError, r"`5 // \(i - 3\)`: division of whole numbers by zero"),
        (left, ZeroDivisionError, r"`x %= i`: division"),
        (power, ValueError, r"`2 \*\* \(1 - i\)`: a power below 0 of whole numbers: write `2\.0"),
    ):
        with pytest.raises(kind, match=words):
            gl.parallel_for(gl.range(8), workers=2)(body)(gl.array(np.zeros(8)))

    def fine(i, a):
        a[i] = 7 // (i + 1) + i % 3 + i**2 + 2.0 ** (1 - i) + 2 ** (i - 1 + 1)

    a = gl.array(np.zeros(8))
    loop = gl.parallel_for(gl.range(8), workers=2)(fine)
    loop(a)
    assert a[:].tolist() == [7 // (i + 1) + i % 3 + i**2 + 2.0 ** (1 - i) + 2**i for i in range(8)]


def test_an_index_from_data_is_checked() -> None:
    def body(i, v, a):
        a[int(v)] += 1.0

    with pytest.raises(IndexError, match="lies outside"):
        gl.parallel_for(gl.dense(np.array([0.0, 9.0])))(body)(gl.array(np.zeros(4)))


def test_a_failure_in_one_block_ends_the_others() -> None:
    def body(key, v, a):
        i, j = key
        a[i, j + int(v)] = 1.0

    space = gl.sparse((np.arange(40), np.arange(40)), np.where(np.arange(40) == 30, 50.0, 0.0))
    loop = gl.parallel_for(space, workers=4)(body)
    with pytest.raises(IndexError):
        loop(gl.array(np.zeros((40, 40))))
    assert loop.executions == 0


def test_bad_calls_say_what_was_expected() -> None:
    space = ratings(10)
    loop = gl.parallel_for(space, ordered=False)(sgd)
    W, H = factors(space, 4)
    with pytest.raises(TypeError, match="sgd needs step"):
        loop(W, H)
    with pytest.raises(TypeError, match="takes 3 arguments"):
        loop(W, H, 1, 2)
    with pytest.raises(LoopError, match="has not been called yet"):
        loop.explain()
    with pytest.raises(TypeError, match=r"expected gl\.sparse"):
        gl.parallel_for(3)
    with pytest.raises(TypeError, match=r"expected gl\.array"):
        gl.buffer(np.zeros(3))
    with pytest.raises(ValueError, match="delay=0"):
        gl.buffer(W, delay=0)
    with pytest.raises(ValueError, match="operation='mean'"):
        gl.accumulator(0.0, "mean")
    with pytest.raises(ValueError, match="workers=0"):
        gl.workers(0)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"workers": 0}, "workers=0: expected a whole number from 1"),
        ({"pipelined": 0}, "pipelined=0"),
        ({"rounds": -1}, "rounds=-1"),
        ({"seed": -1}, "seed=-1: expected a whole number from 0"),
        ({"kind": "3d"}, "kind='3d': expected one of '1d', '2d', 'unimodular', 'serial'"),
        ({"dims": 0}, "dims=0: expected a tuple of dimensions"),
        ({"dims": (2, 0)}, r"dims=\(2, 0\): expected a tuple of dimensions of the space, each below 2"),
    ],
)
def test_options_that_cannot_be_are_refused(option: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        gl.parallel_for(gl.range(3, 3), **option)


def test_explain_says_why_a_loop_is_serial() -> None:
    def body(i, a):
        a[i] = a[i - 1] + 1

    def free(i, a):
        a[i] = 1

    def told(body, **options) -> str:
        a = gl.array(np.zeros(9))
        loop = gl.parallel_for(gl.range((1, 9)), **options)(body)
        loop(a)
        return str(loop.explain())

    def meant(body, **options) -> str:
        with pytest.warns(gl.LoopWarning, match=r"body runs on one worker of 2, .* \(distances \(1\)\) in a\. Where"):
            return told(body, **options)

    chain = meant(body, workers=2)
    assert "serial: no division keeps the order of iterations that depend on each other" in chain
    assert "between processes" not in chain  # nothing would be
    assert "serial: there is one worker" in told(body, workers=1)
    assert "serial: as was asked for" in told(free, workers=2, kind="serial")


@pytest.mark.parametrize("latency", [0.0, 0.5, 3.0])
def test_the_prediction_knows_what_a_hand_over_took(latency: float) -> None:
    """Of a schedule that takes exactly what blocks and messages take, it is exact."""
    plan = rotation(3, 1, 2)
    blocks = np.full((plan.spaces, plan.times), 100)
    timeline = simulated(plan, 0.01 * blocks, 1.0, latency=latency)
    assert (timeline.seconds > 0.01 * blocks.sum() / 3) == (latency > 0)
    spans = [
        Span(worker, task.space, task.time, *block)
        for worker, (tasks, own) in enumerate(zip(plan.tasks, timeline.blocks, strict=True))
        for task, block in zip(tasks, own, strict=True)
    ]
    assert _predicted(plan, blocks, int(blocks.sum()), [timeline.seconds], spans) == pytest.approx(timeline.seconds)


def test_explain_says_what_happens() -> None:
    space = ratings()
    W, H = factors(space, 8)
    loop = gl.parallel_for(space, ordered=False, workers=2)(sgd)
    loop(W, H, step=0.05)
    told = loop.explain()
    assert told.kind == "2d"
    assert told.vectors == ("(0, +∞)", "(+∞, 0)")
    assert told.bytes_moved == 40 * 8 * 4 * told.plan.hand_overs // 4 == 40 * 8 * 4 * 7
    assert "H travels in 4 parts" in str(told)
    assert "W stays with its worker" in str(told)
    assert told.seconds is not None
    assert told.predicted is not None
    assert "workers waited for each other" in str(told)


def test_equal_bodies_are_compiled_once() -> None:
    space = ratings(50)
    loops = [gl.parallel_for(space, ordered=False, workers=count)(sgd) for count in (1, 2)]
    kernels = [
        loop.prepared(loop.bound((*factors(space, 4), 0.1), {}), count).kernel.run
        for loop, count in zip(loops, (1, 2), strict=True)
    ]
    assert kernels[0] is kernels[1]


def test_the_unordered_schedule_is_faster_and_hides_messages() -> None:

    work = np.ones((4, 4))
    ordered, unordered = simulated(wavefront(4, 4), work), simulated(rotation(4, 1), work)
    assert ordered.seconds == 7
    assert unordered.seconds == 4
    halves = np.full((4, 8), 0.5)
    slow = {"part_bytes": 0.5, "bytes_per_second": 1.0}
    assert simulated(rotation(4, 2), halves, **slow).seconds == pytest.approx(4)
    assert simulated(rotation(4, 1), work, part_bytes=1.0, bytes_per_second=1.0).seconds > 6


def test_importing_the_face_is_quick() -> None:
    code = "import sys, girih.loop; print(*[name for name in ('torch', 'numba', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_several_threads_of_a_program_run_one_loop() -> None:
    """Each execution has the loop's buffers to itself."""
    total = gl.array(np.zeros(3))

    @gl.parallel_for(gl.dense(np.ones(600)))
    def count(key, value, into):
        into[key % 3] += value

    count(gl.buffer(total, delay=20))
    threads = [threading.Thread(target=count, args=(gl.buffer(total, delay=20),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total.numpy().tolist() == [1400.0] * 3
