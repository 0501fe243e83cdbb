"""A program's columns say of each step what the step says."""

import numpy as np
from graphs import machine_of, perceptron
from lowered_programs import alone

from girih.layout import Mesh
from girih.layout.mesh import REPLICATE
from girih.partition import Strategy
from girih.partition.space.problem import Objective
from girih.program import FreeStep, Overlap, Program, StartStep, lower, overlapped
from girih.program.life.lifetimes import lifetimes
from girih.program.moves.moves import moved
from girih.program.table import FETCH, FREE, IN, OUT, START, STORE
from girih.search.memory.belady import belady


def divided() -> Program:
    graph = perceptron(4, 8, 8)
    layouts = dict.fromkeys(graph.values, (0,)) | {graph.nodes[0].outputs[0]: (REPLICATE,)}
    strategy = Strategy.of_codes(Mesh((2,)), ((0,),) * len(graph.nodes), layouts)
    program = lower(graph, strategy, Objective("bytes", machine_of((2,))).transfers)
    return overlapped(program, Overlap(2, 2))


def moving() -> Program:
    lives = lifetimes(alone(perceptron(4, 8, 8)))
    cap = int(lives.used.max()) * 3 // 4
    return moved(lives, belady(lives, cap, np.ones(len(lives.steps))), cap)


def test_columns_say_what_steps_say() -> None:
    kinds = set()
    for program in (divided(), moving()):
        table, names = program.table, list(program.numbers)
        assert table.buffers == len(names)
        assert names[: len(program.graph.inputs)] == [item.name for item in program.graph.inputs]
        for row, step in enumerate(program.steps):
            reads = table.reads[table.read_starts[row] : table.read_starts[row + 1]]
            writes = table.writes[table.write_starts[row] : table.write_starts[row + 1]]
            assert [names[buffer] for buffer in reads] == list(step.sources)
            assert [names[buffer] for buffer in writes] == list(step.targets)
            assert table.node[row] == step.node
            assert (table.kind[row] >= START) == isinstance(step, StartStep)
            assert (table.kind[row] == FREE) == isinstance(step, FreeStep)
            assert all(row == table.maker[buffer] for buffer in writes)
        kinds |= set(table.kind.tolist())
    assert kinds >= {FETCH, STORE, START + OUT, OUT, START + IN, IN}
