"""What loop bodies read and write, their dependence vectors, and what is refused and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

import girih.loop as gl
from benchmarks import loop_bodies
from benchmarks.loop_cases import Case, conflict, generated, problems, touched
from girih.loop.capture.dependences import ANY, POSITIVE, Vector, dependence_vectors, positive, text, vectors
from girih.loop.capture.errors import LoopError
from girih.loop.capture.values import Reference, Subscript


def vectors_of(case: Case) -> list[str]:
    loop = case.loop(workers=2)
    body = loop.prepared(loop.bound((), case.given()), 2).body
    return sorted(text(vector) for vector in dependence_vectors(body, case.ordered))


@pytest.mark.parametrize("case", [*loop_bodies.paper(), *loop_bodies.ours()], ids=lambda case: case.name)
def test_known_loops_are_judged_as_they_should_be(case: Case) -> None:
    loop = case.loop(workers=2)
    assert loop.prepared(loop.bound((), case.given()), 2).strategy.kind in case.kinds


def test_dependence_vectors_of_the_thesis() -> None:
    known = {case.name: vectors_of(case) for case in loop_bodies.paper()}
    assert known["SGD MF"] == ["(+∞, 0)", "(0, +∞)"]
    assert known["Fig. 5.7"] == ["(0, 1)"]
    assert known["Fig. 5.9"] == ["(0, 1)", "(1, 0)"]
    assert known["unimodular"] == ["(0, 1)", "(1, -1)", "(1, 0)"]


@pytest.mark.parametrize("case", loop_bodies.paper()[:4], ids=lambda case: case.name)
def test_vectors_cover_every_conflict_of_the_thesis_loops(case: Case) -> None:
    covered(case)


@settings(max_examples=random_cases(40))
@given(st.integers(1000, 9000))
def test_vectors_cover_every_conflict_of_random_loops(seed: int) -> None:
    """The brute-force oracle runs the body in Python; every pair of iterations that conflict has a vector."""
    covered(generated(seed))


def covered(case: Case) -> None:
    loop = gl.parallel_for(case.space, ordered=True)(case.body)
    roles_given = loop.bound((), case.given())
    from girih.loop.capture.analyse import analyse
    from girih.loop.parallel import role_of

    body = analyse(loop.source, case.space.known, {name: role_of(item) for name, item in roles_given.items()})
    found = dependence_vectors(body, ordered=True)
    logs = touched(case)
    for at, (first, log) in enumerate(logs):
        for second, other in logs[at + 1 :]:
            if conflict(log, other):
                a, b = (np.atleast_1d(np.array(key)) for key in (first, second))
                apart = tuple(int(item) for item in (b - a if tuple(a) < tuple(b) else a - b))
                assert any(matches(vector, apart) for vector in found), (case.name, first, second, found)


def matches(vector: Vector, apart: tuple[int, ...]) -> bool:
    return all(
        item is ANY or (item is POSITIVE and step > 0) or item == step for item, step in zip(vector, apart, strict=True)
    )


@given(st.lists(st.sampled_from([ANY, -2, -1, 0, 1, 2]), min_size=1, max_size=3))
def test_lexicographically_positive_vectors_stand_for_the_same_dependences(vector: list) -> None:
    """Every distance that a vector allows, or its opposite, is allowed by a positive one; and nothing else is."""
    reach = 3
    corrected = list(positive(tuple(vector)))
    for apart in product(range(-reach, reach + 1), repeat=len(vector)):
        turned = tuple(-item for item in apart)
        forward = apart > (0,) * len(vector)
        wanted = forward and (matches(tuple(vector), apart) or matches(tuple(vector), turned))
        assert any(matches(item, apart) for item in corrected) == wanted


def test_alg_3_leaves_out_what_the_thesis_leaves_out() -> None:
    write = Reference("a", (Subscript(0, 0, 1), Subscript()), True, 1, "a[i]")
    read = Reference("a", (Subscript(0, 1, 2), Subscript()), False, 1, "a[i + 1]")
    assert list(vectors([read, read], 2, False)) == []
    assert list(vectors([write], 2, True)) == []
    assert list(vectors([write], 2, False)) == [(0, ANY)]
    assert list(vectors([read, write], 2, True)) == [(1, ANY)]
    apart = Reference("a", (Subscript(None, 3, 4), Subscript()), True, 1, "a[3]")
    assert list(vectors([apart, Reference("a", (Subscript(None, 4, 6), Subscript()), False, 1, "")], 2, True)) == []


def test_writes_of_one_element_by_two_iterations_come_one_after_another() -> None:
    """Alg. 3 leaves them out of unordered loops: then rows could be torn, and the last writer would be any."""
    space = gl.sparse((np.array([0, 1, 2]), np.array([0, 0, 0])))

    def element(key, a):
        a[key[1]] = key[0]

    def row(key, a):
        a[key[1]] = np.full(3, 1.0 * key[0])

    for body, a in ((element, gl.array(np.zeros(3))), (row, gl.array(np.zeros((3, 3))))):
        assert gl.parallel_for(space, workers=2)(body).explain(a=a).vectors == ("(+∞, 0)",)


REFUSED = {
    "unset": ("x may not have been set in this iteration", "set x before, on every path"),
    "carried": ("x may not have been set", "set x before"),
    "inherited": ("is inherited, and would be another in each worker", "gl.accumulator(0.0)"),
    "rebound": ("would no longer be the shared array", "a[…] = …"),
    "caught": ("exceptions are not caught", "assignments"),
    "returns": ("a loop body returns nothing", "accumulator"),
    "leaves": ("an iteration cannot end inside a loop", "`break`"),
    "random": ("random numbers would depend on the schedule", "gl.random()"),
    "written": ("inherited variables are only read", "gl.array(table)"),
    "reads_sum": ("has no value before the loop has ended", "err.value after the loop"),
    "out": ("`out=` is not followed", "assign"),
    "hidden": ("which the loop shares", "a parameter of it"),
    "recursive": ("functions that call themselves", "loop"),
    "listed": ("would be lost sight of", "a name of its own"),
    "out_by_position": ("`out=` is not followed", "assign"),
    "zipped": ("it is not known what it does to the array", "write it"),
    "whole": ("began with a whole number", "gl.accumulator(0.0)"),
    "dotted": ("what it may write to is not followed", "assign"),
}
TOTAL, TABLE = 0.0, np.zeros(3)
err = gl.accumulator(0.0)
count = gl.accumulator(0)
SHARED = gl.array(np.zeros(4))


def unset(i, a):
    if i > 2:
        x = 1.0
    a[i] = x


def carried(i, a):
    for k in range(2):
        if k == 1 and i == 1:
            x = 2.0
    a[i] = x


def inherited(i, a):
    TOTAL += a[i]


def rebound(i, a):
    a = a + 1


def caught(i, a):
    try:
        a[i] = 1
    except ValueError:
        pass


def returns(i, a):
    return a[i]


def leaves(i, a):
    for _ in range(3):
        return


def random(i, a):
    a[i] = np.random.random()


def written(i, a, table=TABLE):
    table[0] = a[i]


def reads_sum(i, a):
    err += a[i]
    a[i] = err


def out(i, a):
    np.add(a[i], 1, out=a)


def _hidden(x):
    SHARED[0] = x


def hidden(i, a):
    _hidden(a[i])


def _recursive(x):
    return _recursive(x - 1) if x > 0 else 0


def recursive(i, a):
    a[i] = _recursive(3)


def listed(i, a):
    parts = [a[i : i + 2]]
    a[i] = parts[0][0]


def out_by_position(i, a):
    np.add(a[i : i + 1], 1, a[:1])


def zipped(i, a):
    pairs = zip(a, a, strict=True)
    for x, y in pairs:
        x += y


def whole(i, a):
    count += a[i]


def dotted(i, a):
    a[:2].dot(a[2:4], a[4:5])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_line_and_mend(name: str) -> None:
    body = globals()[name]
    what, instead = REFUSED[name]
    first = body.__code__.co_firstlineno
    with pytest.raises(LoopError) as caught_error:
        gl.parallel_for(gl.range(4))(body)(gl.array(np.zeros(6)))
    message = str(caught_error.value)
    assert what in message
    assert instead in message
    file, line, _ = message.split(":", 2)
    assert file == "test_loop_analysis.py"
    assert first <= int(line) <= first + 6 or name in ("recursive", "hidden")


def either(i, a, b):
    row = a[i] if i > 2 else b[0]
    row.reshape(3)[0] = 1.0


def either_turned(i, a, b):
    row = a[i : i + 2] if i > 2 else b[:2]
    row.T[0, 0] = 1.0


def lengthened(i, a, b):
    np.expand_dims(b[0], 0)[0, 0] = a[i, 0]


@pytest.mark.parametrize("body", [either, either_turned, lengthened])
def test_what_numpy_gives_back_is_still_the_array(body) -> None:
    told = gl.parallel_for(gl.range(5), workers=2)(body).explain(gl.array(np.zeros((6, 3))), gl.array(np.ones((5, 3))))
    assert any(text.startswith("b[") and "written" in text for text in told.references)
    assert told.kind == "serial"


def test_whole_numbers_are_counted_exactly() -> None:
    def body(i, a):
        count += 2
        count += a[i] > 0

    gl.parallel_for(gl.range(4))(body).explain(gl.array(np.zeros(4)))
    with pytest.raises(TypeError, match="initial=True"):
        gl.accumulator(True)


def changes_of_inherited_containers() -> list[Callable[..., Any]]:
    def appended(i, a, held):
        held.append(a[i])

    def by_another_name(i, a, held):
        other = held
        other[0] = a[i]

    def in_place(i, a, held):
        other = held
        other += [a[i]]

    def of_a_member(i, a, held):
        first = held[0]
        first[0] = a[i]

    def in_a_loop(i, a, held):
        for item in held:
            item[0] = a[i]

    def part_of_a_member(i, a, held):
        row = held[1][1:]
        row[0] = a[i]

    def unpacked(i, a, held):
        first, _ = held
        first[0] = a[i]

    def on_one_path(i, a, held):
        other = np.zeros(2)
        if a[i] > 0:
            other = held[0]
        other[0] = a[i]

    def by_a_function(i, a, held):
        change(held[0], a[i])

    def behind_or(i, a, held):
        other = held or [1.0]
        other.append(a[i])

    def one_of_the_loops(i, a, held):
        other = a[i : i + 1]
        if i > 1:
            other = held[0]
        other[0] = 1.0

    def part_of_one(i, a, held):
        other = (a if i > 1 else held[0])[:1]
        other += 1.0

    def chosen_by_number(i, a, held):
        other = (held, held)[int(a[i])]
        other[0] = 1.0

    return [appended, by_another_name, in_place, of_a_member, in_a_loop, part_of_a_member, unpacked, on_one_path,
            by_a_function, behind_or, one_of_the_loops, part_of_one, chosen_by_number]  # fmt: skip


def change(array, value):  # type: ignore[no-untyped-def]
    array[0] = value


@pytest.mark.parametrize("body", changes_of_inherited_containers(), ids=lambda body: body.__name__)
def test_inherited_containers_are_only_read_under_whatever_name(body: Callable[..., Any]) -> None:
    """Numba would change them, each worker at its own time, or each process its own copy."""
    held = [np.zeros(2), np.zeros(2)]
    for inherited in (held, tuple(held)):
        with pytest.raises(LoopError, match=r"test_loop_analysis\.py:\d+: .*inherited"):
            gl.parallel_for(gl.range(4))(body)(gl.array(np.ones(4)), inherited)
    assert not np.any(held)


@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPendingDeprecationWarning")
def test_inherited_containers_are_read() -> None:
    a = gl.array(np.arange(4.0))

    def body(i, a, held, pair, known):
        total = held[0]
        total += pair[0][1]  # a number of its own
        for item in held:
            total += item
        first, second = pair
        a[i] = total + len(held) + first[0] + second.sum() + (3 in known)

    gl.parallel_for(gl.range(4))(body)(a, [1.0, 2.0], (np.array([10.0, 20.0]), np.array([100.0])), {3, 4})
    assert a.numpy().tolist() == [1 + 20 + 3 + 2 + 10 + 100 + 1] * 4


@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPendingDeprecationWarning")
def test_what_is_known_of_a_container_is_not_kept_for_the_next() -> None:
    """Also if it is the same list, or lies where another did."""
    held: list[Any] = [1, 2]

    def body(i, a, held):
        first = held[0]
        first += 0.5
        a[i] = first

    a = gl.array(np.zeros(4))
    loop = gl.parallel_for(gl.range(4))(body)
    loop(a, held)
    assert a.numpy().tolist() == [1.5] * 4
    held[:] = [np.zeros(3)]
    with pytest.raises(LoopError, match="it would change what is inherited"):
        loop(a, held)


def test_what_is_written_through_an_iterator_is_followed() -> None:
    def body(i, a):
        for x in np.nditer(a[0]):
            x[()] = x[()] + i

    explained = gl.parallel_for(gl.range(4))(body).explain(gl.array(np.zeros((4, 3))))
    assert explained.strategy.kind == "serial"


def test_an_array_in_a_container_is_not_the_loops_under_another_name() -> None:
    weights = np.zeros(4)

    def body(i, a, held):
        a[i] = held[0][i - 1] + 1

    a = gl.array(weights)
    with pytest.raises(LoopError, match="a and held share memory"):
        gl.parallel_for(gl.range(4))(body)(a, [a.values])


def test_what_numba_cannot_compile_is_named() -> None:
    held = object()

    def other(i, a):
        a[i] = 1.0 if held else 2.0

    with pytest.raises(
        LoopError, match=r"test_loop_analysis\.py:\d+: .*cannot compile it \(held is a object, which it"
    ):
        gl.parallel_for(gl.range(4))(other)(gl.array(np.zeros(4)))

    def written_by_another_name(i, a, table):
        row = table[0]
        row[0] = a[i]

    with pytest.raises(LoopError, match=r"`row\[0\] = a\[i\]`: inherited arrays are only read in a loop"):
        gl.parallel_for(gl.range(4))(written_by_another_name)(gl.array(np.zeros(4)), np.zeros((2, 2)))

    def unknown(i, a, table):
        a[i] = table.no_such

    with pytest.raises(LoopError, match=r"table\.no_such`: Numba cannot compile it \(Unknown attribute 'no_such'"):
        gl.parallel_for(gl.range(4))(unknown)(gl.array(np.zeros(4)), np.zeros((2, 2)))


def test_a_library_that_cannot_be_followed_is_named_where_it_is_called() -> None:
    def body(i, a):
        a[i] = len(json.dumps(i))

    line = body.__code__.co_firstlineno + 1
    with pytest.raises(
        LoopError, match=rf"\.py:{line}: `json\.dumps\(i\)`: json\.dumps cannot be followed \(.*any number"
    ):
        gl.parallel_for(gl.range(4))(body)(gl.array(np.zeros(4)))


def test_arrays_that_share_memory_are_refused() -> None:
    whole = gl.array(np.zeros(6))
    part = gl.Array(whole.values[2:])

    def body(i, a, b):
        a[i] = b[i] + 1

    with pytest.raises(LoopError, match="a and b share memory"):
        gl.parallel_for(gl.range(4))(body)(whole, part)


@pytest.mark.parametrize("seed", range(8))
def test_random_loops_run_as_they_were_meant(seed: int) -> None:
    """`benchmarks.loops_analysis` does this with 200."""
    assert problems(generated(seed), (2,)) == []
