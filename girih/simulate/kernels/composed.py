"""The compiled loops of `girih.search.composed`: from the pieces of nodes to the rows of a task graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled
from girih.program.window_kernels import COMPUTE, START, Outline, ordered, windows

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


@compiled(lambda nodes, table, variants: 10.0 * (len(variants) + len(nodes.reads)), nogil=True)
def outlined(nodes, table, variants):  # type: ignore[no-untyped-def]
    """The outline of the program of these variants, one for each node; of each transfer its exchange, and the rows of
    own work. Buffers: values; then outputs before they are stored; then what lies between hops."""
    count, reads, moves, hops = len(variants), 0, 0, 0
    for variant in variants:
        reads += table.read_from[variant + 1] - table.read_from[variant]
        first, last = table.move_from[variant], table.move_from[variant + 1]
        moves += last - first
        hops += table.hop_from[last] - table.hop_from[first]
    between = nodes.values + len(nodes.writes)
    works = np.empty(count, np.uint8)
    reads_from, read = np.zeros(count + 1, np.int64), np.empty(reads, np.int64)
    write = nodes.writes.copy()
    slot, store, first_hop = np.empty(moves, np.int64), np.empty(moves, np.uint8), np.zeros(moves + 1, np.int64)
    remote, source, target = np.empty(hops, np.uint8), np.empty(hops, np.int64), np.empty(hops, np.int64)
    pattern, before, after = np.empty(hops, np.int64), np.empty(hops, np.int64), np.empty(hops, np.int64)
    reads, moves, hops = 0, 0, 0
    for node in range(count):
        variant = variants[node]
        works[node] = table.works[variant]
        for place in range(table.read_from[variant], table.read_from[variant + 1]):
            read[reads] = nodes.reads[nodes.read_from[node] + table.read[place]]
            reads += 1
        reads_from[node + 1] = reads
        for place in range(table.stored_from[variant], table.stored_from[variant + 1]):
            if table.stored[place]:
                output = nodes.write_from[node] + place - table.stored_from[variant]
                write[output] = nodes.values + output
        for move in range(table.move_from[variant], table.move_from[variant + 1]):
            port = table.port[move]
            store[moves] = port < 0
            slot[moves] = node + (port < 0)
            if port < 0:
                output = nodes.write_from[node] + ~port
                begin, goal = nodes.values + output, nodes.writes[output]
            else:
                begin, goal = (
                    nodes.reads[nodes.read_from[node] + port],
                    between + hops,
                )  # what is fetched, none else has
            last = table.hop_from[move + 1] - 1
            for hop in range(table.hop_from[move], last + 1):
                remote[hops], pattern[hops] = table.remote[hop], table.pattern[hop]
                before[hops], after[hops] = table.before[hop], table.after[hop]
                source[hops] = begin
                begin = goal if hop == last and port < 0 else between + hops
                target[hops] = begin
                hops += 1
            moves += 1
            first_hop[moves] = hops
    outline = Outline(
        works,
        reads_from,
        read,
        nodes.write_from,
        write,
        slot,
        store,
        first_hop,
        remote,
        source,
        target,
        nodes.entering,
        between + hops,
    )
    return outline, pattern, before, after


@compiled(
    lambda outline, fetch, store, task_at, exchange, compute, *_: 20.0 * (len(compute) + len(exchange)), nogil=True
)
def rows(outline, fetch, store, task_at, exchange, compute, before, after, works):  # type: ignore[no-untyped-def]
    """(kind, pattern, partner, rows of the work before and after messages) of each row of the task graph.

    fetch, store: the windows of overlap. task_at: where each exchange's tasks begin. exchange, before, after: of each
    transfer; compute: of each node; works: of each row of work, is it any?
    """
    begin, end = windows(outline, fetch, store)
    kinds, numbers = ordered(outline, begin, end)
    count = len(kinds)
    kind, pattern, partner = (
        np.zeros(count, np.int8),
        np.full(count, NOTHING, np.int32),
        np.full(count, NOTHING, np.int32),
    )
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    posted = np.full(len(exchange), NOTHING, np.int64)
    filled = 0
    for place in range(count):
        number = numbers[place]
        if kinds[place] == COMPUTE:
            if works[compute[number]]:
                first[filled] = compute[number]
                filled += 1
            continue
        messages = task_at[exchange[number] + 1] > task_at[exchange[number]]
        if kinds[place] == START:
            if not messages and not works[before[number]]:
                continue
            first[filled] = before[number]
            if messages:
                kind[filled], pattern[filled] = POSTS, exchange[number]
                posted[number] = filled
        else:
            whole = begin[number] == end[number]
            if not messages and not works[after[number]] and not (whole and works[before[number]]):
                continue
            first[filled], last[filled] = before[number] if whole else 0, after[number]
            if messages and whole:
                kind[filled], pattern[filled], partner[filled] = POSTS | WAITS, exchange[number], filled
            elif messages:
                kind[filled] = WAITS
                partner[filled], partner[posted[number]] = posted[number], filled
        filled += 1
    return kind[:filled], pattern[:filled], partner[:filled], first[:filled], last[:filled]
