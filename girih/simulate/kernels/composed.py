"""The compiled loops of `girih.search.composed`: from the pieces of nodes to the rows of a task graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled
from girih.program.table import COMPUTE, FETCH, STORE, Table
from girih.program.window_kernels import ordered, windows

Ints = NDArray[np.int64]
Flags = NDArray[np.uint8]
POSTS, WAITS = 1, 2  # as in `girih.simulate.kernels.arrays`
NOTHING = -1


class Nodes(NamedTuple):
    """Values by number: of each node where its inputs and its outputs begin, and these; what enters the graph; how many
    values there are."""

    read_from: Ints
    reads: Ints
    write_from: Ints
    writes: Ints
    entering: Ints
    values: int


class Variants(NamedTuple):
    """Priced steps of single nodes, one behind the other; `*_from`: where each one's begin, and the end.

    compute: the row of its own work. works: does it do any? read: inputs that are read where their values lie. stored:
    of each output, is it brought elsewhere? port: of each move the input that it fetches, or ~ the output that it
    stores. remote, pattern, before, after: of each hop of a move, does it exchange anything, the exchange's number, the
    rows of the devices' own work.
    """

    compute: Ints
    works: Flags
    read: Ints
    stored: Flags
    port: Ints
    pattern: Ints
    before: Ints
    after: Ints
    remote: Flags
    read_from: Ints
    stored_from: Ints
    move_from: Ints
    hop_from: Ints


@compiled(lambda nodes, variants, chosen: 10.0 * (len(chosen) + len(nodes.reads)), nogil=True)
def written(nodes, variants, chosen):  # type: ignore[no-untyped-def]
    """(the columns of the program of these variants, one chosen for each node; of each step, is there work to do or
    anything to exchange, the number of its exchange, the rows of own work before and after its messages). Buffers:
    values; then outputs before they are stored; then what lies between hops."""
    count, reads = len(chosen), 0
    for variant in chosen:
        reads += variants.read_from[variant + 1] - variants.read_from[variant]
        hops = variants.hop_from[variants.move_from[variant + 1]] - variants.hop_from[variants.move_from[variant]]
        count, reads = count + hops, reads + hops
    makes = count - len(chosen) + len(nodes.writes)
    between = nodes.values + len(nodes.writes)
    kind, node_of = np.empty(count, np.uint8), np.empty(count, np.int64)
    read_starts, read = np.zeros(count + 1, np.int64), np.empty(reads, np.int64)
    write_starts, write = np.zeros(count + 1, np.int64), np.empty(makes, np.int64)
    works, pattern = np.empty(count, np.uint8), np.full(count, NOTHING, np.int64)
    before, after = np.empty(count, np.int64), np.zeros(count, np.int64)
    row, reads, makes, fresh = 0, 0, 0, between
    for node in range(len(chosen)):
        variant = chosen[node]
        move = variants.move_from[variant]
        for turn in range(3):  # fetches, the node itself, stores
            if turn == 1:
                kind[row], node_of[row] = COMPUTE, node
                works[row], before[row] = variants.works[variant], variants.compute[variant]
                for place in range(variants.read_from[variant], variants.read_from[variant + 1]):
                    read[reads] = nodes.reads[nodes.read_from[node] + variants.read[place]]
                    reads += 1
                for place in range(nodes.write_from[node], nodes.write_from[node + 1]):
                    stored = variants.stored[variants.stored_from[variant] + place - nodes.write_from[node]]
                    write[makes] = nodes.values + place if stored else nodes.writes[place]
                    makes += 1
                row += 1
                read_starts[row], write_starts[row] = reads, makes
                continue
            while move < variants.move_from[variant + 1] and (variants.port[move] < 0) == (turn == 2):
                port = variants.port[move]
                if port < 0:
                    begin = nodes.values + nodes.write_from[node] + ~port
                else:
                    begin = nodes.reads[nodes.read_from[node] + port]
                last = variants.hop_from[move + 1] - 1
                for hop in range(variants.hop_from[move], last + 1):
                    kind[row], node_of[row] = FETCH if port >= 0 else STORE, node
                    works[row], pattern[row] = variants.remote[hop], variants.pattern[hop]
                    before[row], after[row] = variants.before[hop], variants.after[hop]
                    read[reads] = begin
                    begin, fresh = fresh, fresh + 1  # what is fetched, none else has
                    if hop == last and port < 0:
                        begin = nodes.writes[nodes.write_from[node] + ~port]
                    write[makes] = begin
                    row, reads, makes = row + 1, reads + 1, makes + 1
                    read_starts[row], write_starts[row] = reads, makes
                move += 1
    table = Table(kind, node_of, read_starts, read, write_starts, write, fresh)
    return table, works, pattern, before, after


@compiled(lambda table, *_: 40.0 * len(table.kind), nogil=True)
def rows(table, does, entering, fetch, store, task_at, exchange, before, after, works):  # type: ignore[no-untyped-def]
    """(kind, pattern, partner, rows of the work before and after messages) of each row of the task graph.

    does, exchange, before, after: of each step, as `written` has them. fetch, store: the windows of overlap. task_at:
    where each exchange's tasks begin. works: of each row of work, is it any?
    """
    begin, end = windows(table, does, fetch, store)
    starts, order = ordered(table, does, entering, begin, end)
    count = len(order)
    kind, pattern, partner = (
        np.zeros(count, np.int8),
        np.full(count, NOTHING, np.int32),
        np.full(count, NOTHING, np.int32),
    )
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    posted = np.full(len(exchange), NOTHING, np.int64)
    filled = 0
    for place in range(count):
        step = order[place]
        if table.kind[step] == COMPUTE:
            if works[before[step]]:
                first[filled] = before[step]
                filled += 1
            continue
        messages = task_at[exchange[step] + 1] > task_at[exchange[step]]
        if starts[place]:
            if not messages and not works[before[step]]:
                continue
            first[filled] = before[step]
            if messages:
                kind[filled], pattern[filled] = POSTS, exchange[step]
                posted[step] = filled
        else:
            whole = begin[step] == end[step]
            if not messages and not works[after[step]] and not (whole and works[before[step]]):
                continue
            first[filled], last[filled] = before[step] if whole else 0, after[step]
            if messages and whole:
                kind[filled], pattern[filled], partner[filled] = POSTS | WAITS, exchange[step], filled
            elif messages:
                kind[filled] = WAITS
                partner[filled], partner[posted[step]] = posted[step], filled
        filled += 1
    return kind[:filled], pattern[:filled], partner[:filled], first[:filled], last[:filled]
