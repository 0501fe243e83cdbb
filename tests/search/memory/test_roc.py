"""ROC's dynamic programme: Table 4.3 of its paper, SwapAdvisor's Figure 4.1, and graphs by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from graphs import Maker, machine_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import alone

from benchmarks.gnn_memory import GIN, TABLE_4_3, operations
from benchmarks.memory_random import random_step, run
from girih.cost.prices import Prices
from girih.graph import Graph, Output, Ref
from girih.machine.machine import Tier
from girih.program import ComputeStep, check
from girih.program.life.accounts import memory_use
from girih.program.life.lifetimes import Lifetimes, Storage, lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import TooSmallError, floor
from girih.search.memory.belady import belady
from girih.search.memory.bound import memory_bound
from girih.search.memory.roc import (
    Operation,
    Problem,
    least_copies,
    least_residency,
    live_tensors,
    optimum,
    valid_states,
)
from girih.simulate.simulate import makespan

# ------------------------------------------------------------------------------------------- ROC, Table 4.3


def test_the_valid_states_and_live_tensors_of_table_4_3() -> None:
    states = list(valid_states(GIN))
    assert states == [frozenset(range(count)) for count in range(8)]
    for count, names in enumerate(TABLE_4_3):
        assert live_tensors(GIN, frozenset(range(count))) == set(names.split())


@pytest.mark.parametrize(("cap", "loads"), [(4, None), (5, 6), (6, 5), (7, 4), (8, 4)])
def test_what_has_to_be_loaded_for_the_gin_of_figure_4_3(cap: int, loads: int | None) -> None:
    """All tensors of one size. g, h0, w1 and w2 are loaded once; from operation 3 to 6 what cannot stay comes again."""
    names = {name for item in GIN for name in item.reads | item.writes}
    problem = Problem(GIN, dict.fromkeys(names, 1), stored=frozenset({"g", "h0", "w1", "w2"}))
    front = least_copies(problem, (cap,))
    assert (min(back for _, back in front) if front else None) == loads


def test_any_order_is_tried() -> None:
    """Two chains that end in small tensors: one after the other needs less than both at a time."""
    chains = operations("a1 =", "b1 =", "a2 = a1", "b2 = b1", "end = a2 b2")
    sizes = {"a1": 4, "b1": 4, "a2": 1, "b2": 1, "end": 1}
    assert len(list(valid_states(chains))) == 10
    assert least_copies(Problem(chains, sizes), (6,)) == ((0, 0),)
    assert least_copies(Problem(chains, sizes, ordered=True), (6,)) == ((8, 8),)
    assert least_copies(Problem(chains, sizes, ordered=True), (4,)) == ()


def test_a_copy_is_made_once_and_what_has_one_leaves_without() -> None:
    steps = operations("a =", "p =", "m = a w", "q =", "end = a m")
    sizes = {"a": 2, "w": 2, "p": 4, "m": 1, "q": 4, "end": 1}
    ample = Problem(steps, sizes, stored=frozenset({"w"}), ordered=True)
    assert least_copies(ample, (7,)) == ((0, 2),)
    assert least_copies(ample, (6,)) == ((1, 3),)  # m leaves for q
    assert least_copies(ample, (5,)) == ((2, 6),)  # a for p and for q
    assert least_copies(ample, (4,)) == ()
    assert least_copies(replace(ample, saved=frozenset({"m"})), (7,)) == ((1, 2),)


# ------------------------------------------------------------------------------------ SwapAdvisor, Figure 4.1

READS = {
    "Data": "", "Conv1": "A0 W1", "Conv2": "A0 W2", "Conv3": "A2 W3", "Conv4": "A3 W4", "Concat": "A1 A4"
}  # fmt: skip
WRITES = {"Data": "A0", "Conv1": "A1", "Conv2": "A2", "Conv3": "A3", "Conv4": "A4", "Concat": "A5"}
LEFT = ("Data", "Conv1", "Conv2", "Conv3", "Conv4", "Concat")
RIGHT = ("Data", "Conv2", "Conv3", "Conv4", "Conv1", "Concat")
ACTIVATIONS = tuple(f"A{number}" for number in range(6))
WEIGHTS = tuple(f"W{number}" for number in range(1, 5))
MEGABYTES = dict.fromkeys(ACTIVATIONS + WEIGHTS, 1) | {"A2": 2, "A5": 2}
# What each tensor takes of each size class, and how many objects there are.
COARSE = dict.fromkeys(MEGABYTES, (1,)), (5,)
FINE = {name: (int(size == 1), int(size == 2)) for name, size in MEGABYTES.items()}, (8, 1)

# The published plans: by time slot what is copied in, and out.
PUBLISHED = {
    "b": (LEFT, COARSE, "W1 W2 W3 W4 A1 -", "- - A1 A0 A3 A2", 6),
    "c": (RIGHT, COARSE, "W2 W3 W4 - W1 - -", "- - - A2 A2 A3 A0", 7),
    "d": (RIGHT, FINE, "W2 W3 W4 W1 - -", "- - - A2 A2 A3", 6),
    "e": (LEFT, FINE, "W1 W2 W3 W4 - - -", "- - - A0 A2 A2 A3", 7),
}


def problem(order: tuple[str, ...], takes: Mapping[str, tuple[int, ...]], ordered: bool = True) -> Problem:
    steps = tuple(
        Operation(frozenset(READS[name].split()), frozenset({WRITES[name]}), (0,) * len(takes["A0"])) for name in order
    )
    wanted = frozenset(ACTIVATIONS)  # by the backward pass
    return Problem(steps, MEGABYTES, takes, stored=frozenset(WEIGHTS), wanted=wanted, ordered=ordered)


def fewest_slots(order: tuple[str, ...], takes: Mapping[str, tuple[int, ...]], cap: tuple[int, ...]) -> int:
    """The least time slots, by trying everything: in each an operator runs, 1 MB goes out and 1 MB comes in, where a
    tensor has its place from the slot in which it is made or begins to come to that behind which it is gone. What is
    copied out is not used."""
    reads = [frozenset(READS[name].split()) for name in order]
    writes = [WRITES[name] for name in order]

    def room(held: frozenset[str]) -> bool:
        return all(sum(takes[name][pool] for name in held) <= most for pool, most in enumerate(cap))

    # Operators done, held, of these on the way in; copied; on the way out with the megabytes that are left of it.
    start = (0, frozenset[str](), frozenset(WEIGHTS), None)
    states, slots = {start}, 0
    while not any(state[0] == len(order) for state in states):
        slots += 1
        reached = set()
        for done, present, copied, leaving in states:
            needed = {name for ahead in reads[done:] for name in ahead}
            idle = present & copied  # leaves for nothing
            for dropped in _subsets(idle - (reads[done] if done < len(order) else frozenset())):
                here = present - dropped
                outs = [leaving] if leaving else [None, *((name, MEGABYTES[name]) for name in here - copied)]
                ins = [None, *((copied - here) & needed)]
                for out, into in product(outs, ins):
                    if into is not None and MEGABYTES[into] > 1:
                        continue  # A2 and A5 are not read again once they are out
                    run = reads[done] <= here and (out is None or out[0] not in reads[done])
                    for runs in {False, run}:
                        made = frozenset({writes[done]}) if runs else frozenset()
                        coming = frozenset() if into is None else frozenset({into})
                        if not room(here | made | coming):
                            continue
                        behind, known, left = here | made | coming, copied, None
                        if out is not None and out[1] > 1:
                            left = (out[0], out[1] - 1)
                        elif out is not None:
                            behind, known = behind - {out[0]}, copied | {out[0]}
                        reached.add((done + runs, behind, known, left))
        states = reached
    return slots


def _subsets(names: frozenset[str]) -> list[frozenset[str]]:
    subsets = [frozenset[str]()]
    for name in names:
        subsets += [some | {name} for some in subsets]
    return subsets


@pytest.mark.parametrize("table", PUBLISHED)
def test_the_published_plans_of_figure_4_1(table: str) -> None:
    """Each runs as it is printed, moves no less than has to be moved, and takes as long as the fastest there is."""
    order, (takes, cap), into, out, slots = PUBLISHED[table]
    coming, going = into.split(), out.split()
    assert len(coming) == len(going) == slots == fewest_slots(order, takes, cap)
    moved_in = sum(MEGABYTES[name] for name in coming if name != "-")
    moved_out = sum(1 for name in going if name != "-")
    front = least_copies(problem(order, takes), cap)
    assert any(best[0] <= moved_out and best[1] <= moved_in for best in front)


@pytest.mark.parametrize(("table", "least"), [("b", (1, 4)), ("c", (1, 4)), ("d", (2, 4)), ("e", (2, 4))])
def test_what_has_to_be_moved_in_figure_4_1(table: str, least: tuple[int, int]) -> None:
    """In: the four weights. Out: of six activations in five objects the smallest that can go; with one object of 2 MB,
    A2 for A5. In any order it is the same."""
    order, (takes, cap), *_ = PUBLISHED[table]
    assert least_copies(problem(order, takes), cap) == (least,)
    assert least_copies(problem(order, takes, ordered=False), cap) == (least,)
    whole = {name: (size,) for name, size in MEGABYTES.items()}
    assert least_copies(problem(order, whole), (10,)) == ((0, 4),)  # exact bytes: all activations stay


def stored(order: tuple[str, ...], takes: Mapping[str, tuple[int, ...]]) -> Lifetimes:
    """The storages of an order, as the planner takes them. Weights are state; activations stay to the end."""
    names = (*WEIGHTS, *ACTIVATIONS)
    storages = []
    for name in names:
        touched = [at for at, item in enumerate(order) if name in READS[item].split() or name == WRITES[item]]
        born = [-1] if name in WEIGHTS else []
        storages.append(Storage(name, takes[name][0], (), (), [*born, *touched], [name], lasts=True, movable=True))
    state = tuple((number, number) for number in range(len(WEIGHTS)))
    steps = tuple(ComputeStep(number, (), ()) for number in range(len(order)))
    return Lifetimes(None, 0, steps, tuple(storages), np.zeros(len(order) + 1, np.int64), {}, state)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [LEFT, RIGHT])
@pytest.mark.parametrize("cap", [10, 9, 8])
def test_the_planner_copies_as_little_as_can_be_for_figure_4_1(order: tuple[str, ...], cap: int) -> None:
    """In exact bytes. Weights stay as far as there is room for them beside 8 MB of activations."""
    lives = stored(order, {name: (size,) for name, size in MEGABYTES.items()})
    assert optimum(lives, cap) == ((0, 12 - cap),)
    assert belady(lives, cap, np.ones(len(order))).copied_bytes(lives.touches) == (0, 12 - cap)
    tier = Tier("host", 100, 1.0, 1.0)
    bound = memory_bound(lives, cap, np.full(len(order), 1e-3), tier)
    assert (bound.out_bytes, bound.in_bytes) == (0, 12 - cap)


def drawn(order: tuple[str, ...]) -> Graph:
    """The graph of Figure 4.1 in an order: matrices of 1 × 2 (8 bytes for 1 MB) and 2 × 2. Activations are results."""
    make = Maker()
    weights = [make.input((1, 2), "parameter") for _ in WEIGHTS]
    names: dict[str, str] = dict(zip(WEIGHTS, weights, strict=True))
    for item in order:
        first, second = ([Ref(names[name]) for name in READS[item].split()] + [None, None])[:2]
        if item == "Data":
            name = make.emit("aten.full", (1, 2), size=(1, 2), fill_value=1.0)
        elif item in ("Conv2", "Concat"):
            name = make.emit("aten.cat", (2, 2), tensors=(first, second), dim=0)
        elif item == "Conv3":
            name = make.emit("aten.mm", (1, 2), self=second, mat2=first)
        else:
            name = make.emit("aten.add.Tensor", (1, 2), self=first, other=second)
        names[WRITES[item]] = name
    return make.graph([Output(names[name], "result") for name in ACTIVATIONS])


@pytest.mark.parametrize("order", [LEFT, RIGHT])
def test_the_planned_program_of_figure_4_1_takes_the_six_units_of_the_best_table(order: tuple[str, ...]) -> None:
    """With every operator, and every 1 MB each way, one unit of time, within 10 MB: whatever the order, because bytes
    are exact. The published plans take 6 or 7, by order and size classes."""
    unit = 2.0**-10
    lives = lifetimes(alone(drawn(order)))
    cap = 10 * 8
    assert int(lives.used.max()) == 12 * 8
    residency = belady(lives, cap, np.full(6, unit))
    program = moved(lives, residency, cap)
    costs = np.asarray([[unit if isinstance(step, ComputeStep) else 0.0] for step in program.steps])
    host = Tier("host", 1000, 8 / unit, 8 / unit)
    seconds = makespan(program, replace(machine_of(()), host=host), Prices(costs, np.zeros_like(costs)))
    bound = memory_bound(lives, cap, np.full(6, unit), host)
    assert residency.copied_bytes(lives.touches) == (0, 2 * 8)
    assert (seconds / unit, bound.seconds / unit) == (6, 6)


# ------------------------------------------------------------------------------------ the residency that reaches it


@settings(max_examples=15)
@given(seed=st.integers(0, 1 << 20), share=st.floats(0.0, 0.9))
def test_what_is_chosen_exactly_copies_the_least_and_runs(seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    graph = random_step(random, 13)
    lives = lifetimes(alone(graph))
    least, most = floor(lives)[0], int(lives.used.max())
    cap = least + int((most - least) * share)
    residency = least_residency(lives, cap)
    assert sum(residency.copied_bytes(lives.touches)) == min(out + back for out, back in optimum(lives, cap))
    held = moved(lives, residency, cap)
    check(held)
    assert memory_use(held).peak <= cap
    inputs = {
        item.name: torch.from_numpy(random.random(graph.values[item.name].shape, "float32")) for item in graph.inputs
    }
    plain, first = run(alone(graph), inputs)
    results, worker = run(held, inputs)
    for name, value in (*plain.items(), *first.state.items()):
        again = results[name] if name in results else worker.state[name]
        assert torch.equal(value.contiguous().view(torch.int32), again.contiguous().view(torch.int32))


def test_what_cannot_be_held_is_refused_with_its_step() -> None:
    lives = lifetimes(alone(random_step(np.random.default_rng(0), 13)))
    with pytest.raises(TooSmallError) as refused:
        least_residency(lives, floor(lives)[0] - 1)
    assert refused.value.needed == floor(lives)[0]
