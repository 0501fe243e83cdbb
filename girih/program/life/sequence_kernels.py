"""The loop of `girih.program.life.sequences`: what is made, touched and freed in a sequence of steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled
from girih.program.table import BLOCKS, START, Integers, Table


class Facts(NamedTuple):
    """What steps do, whatever their sequence; lists in compressed rows.

    table: their columns. makes: storages that a step allocates. takes: storages of which its result takes over the
    first that ends there, if neither was sent. lies_in: of each buffer the storage, looks_at: of a view the buffer,
    else -1; kept: is it never freed? given: of each storage, is it there at the beginning? main: the buffer of that
    storage's name. bytes: of each storage. scratch: bytes of each step beside the storages, nothing taken over. begun:
    of a step that ends an exchange the one that began it, else -1.
    """

    table: Table
    make_starts: Integers
    makes: Integers
    take_starts: Integers
    takes: Integers
    lies_in: Integers
    looks_at: Integers
    kept: NDArray[np.bool_]
    given: NDArray[np.bool_]
    main: Integers
    bytes: Integers
    scratch: Integers
    begun: Integers


@compiled(lambda facts, order: 20.0 * len(order))
def sequenced(facts, order):  # type: ignore[no-untyped-def]
    """The columns of `Sequenced`, the last buffer of each buffer's name, all touches as (storage, position), which
    storages last, of each position its extra bytes and the storage whose memory its result takes over, of each
    buffer its number among the facts, and which are sent."""
    steps, buffers, storages = len(order), len(facts.lies_in), len(facts.bytes)
    made, read, written = storages, 0, 0
    under_way, pinned = 0, 0
    for at in range(steps):
        step = order[at]
        made += facts.make_starts[step + 1] - facts.make_starts[step]
        read += facts.table.read_starts[step + 1] - facts.table.read_starts[step]
        written += facts.table.write_starts[step + 1] - facts.table.write_starts[step]
        under_way += facts.table.kind[step] >= START
        pinned += 3 * under_way  # its source, its target and its messages
        under_way -= facts.begun[step] >= 0
    exchange, sends, active = np.empty(steps, np.int64), np.empty(steps, np.int64), 0  # those that are under way
    original = np.empty(made, np.int64)
    last = np.full(made, -2, np.int64)  # touched so far
    lasts = np.zeros(made, np.bool_)
    main = np.full(made, -1, np.int64)
    storage_now = np.full(storages, -1, np.int64)
    names = written + buffers
    lies_in, looks_at = np.full(names, -1, np.int64), np.full(names, -1, np.int64)
    last_read, copy_of = np.full(names, -1, np.int64), np.full(names, -1, np.int64)
    stays, sent = np.zeros(names, np.bool_), np.zeros(names, np.bool_)
    buffer_now = np.full(buffers, -1, np.int64)
    read_starts, reads = np.zeros(steps + 1, np.int64), np.empty(read, np.int64)
    write_starts, writes = np.zeros(steps + 1, np.int64), np.empty(written, np.int64)
    most = storages + read + written + pinned
    owner, when = np.empty(most, np.int64), np.empty(most, np.int64)
    count, name, touches = 0, 0, 0
    for storage in range(storages):
        if facts.given[storage]:
            original[count] = storage
            storage_now[storage] = count
            owner[touches], when[touches] = count, -1
            last[count] = -1
            touches += 1
            count += 1
    for buffer in range(buffers):
        if facts.given[facts.lies_in[buffer]] and facts.looks_at[buffer] < 0:
            buffer_now[buffer] = name
            copy_of[name] = buffer
            lies_in[name] = storage_now[facts.lies_in[buffer]]
            stays[name] = facts.kept[buffer]
            if facts.main[facts.lies_in[buffer]] == buffer:
                main[lies_in[name]] = name
            lasts[lies_in[name]] = lasts[lies_in[name]] or facts.kept[buffer]
            name += 1
    for at in range(steps):
        step = order[at]
        for entry in range(facts.make_starts[step], facts.make_starts[step + 1]):
            storage = facts.makes[entry]
            original[count] = storage
            storage_now[storage] = count
            owner[touches], when[touches] = count, at
            last[count] = at
            touches += 1
            count += 1
        begin = read_starts[at]
        for entry in range(facts.table.read_starts[step], facts.table.read_starts[step + 1]):
            now = buffer_now[facts.table.reads[entry]]
            reads[begin] = now
            begin += 1
            last_read[now] = at
            sent[now] = sent[now] or facts.table.kind[step] > BLOCKS
            if last[lies_in[now]] != at:
                owner[touches], when[touches] = lies_in[now], at
                last[lies_in[now]] = at
                touches += 1
        read_starts[at + 1] = begin
        begin = write_starts[at]
        for entry in range(facts.table.write_starts[step], facts.table.write_starts[step + 1]):
            buffer = facts.table.writes[entry]
            base = facts.looks_at[buffer]
            if base >= 0:
                looks_at[name] = buffer_now[base]
                lies_in[name] = lies_in[buffer_now[base]]
            else:
                lies_in[name] = storage_now[facts.lies_in[buffer]]
                if facts.main[facts.lies_in[buffer]] == buffer:
                    main[lies_in[name]] = name
            buffer_now[buffer] = name
            copy_of[name] = buffer
            last_read[name] = at
            stays[name] = facts.kept[buffer]
            lasts[lies_in[name]] = lasts[lies_in[name]] or facts.kept[buffer]
            if last[lies_in[name]] != at:
                owner[touches], when[touches] = lies_in[name], at
                last[lies_in[name]] = at
                touches += 1
            writes[begin] = name
            begin += 1
            name += 1
        write_starts[at + 1] = begin
        if facts.table.kind[step] >= START:
            exchange[active], sends[active] = step, lies_in[reads[read_starts[at]]]
            active += 1
        for number in range(active):
            begin, end = facts.make_starts[exchange[number]], facts.make_starts[exchange[number] + 1]
            for entry in range(begin - 1, end):
                storage = sends[number] if entry < begin else storage_now[facts.makes[entry]]
                if last[storage] != at:
                    owner[touches], when[touches] = storage, at
                    last[storage] = at
                    touches += 1
        if facts.begun[step] >= 0:
            for number in range(active):
                if exchange[number] == facts.begun[step]:
                    active -= 1
                    exchange[number], sends[number] = exchange[active], sends[active]
                    break
    for storage in range(count):  # nobody frees inputs that nobody reads
        if last[storage] == -1:
            lasts[storage] = True

    # Which operand's memory a result takes over: the first that ends there, and in which nothing else lies.
    extra, taken = np.empty(steps, np.int64), np.full(steps, -1, np.int64)
    alive = np.zeros(count, np.int64)  # buffers in each storage
    for storage in range(count):
        if facts.given[original[storage]]:
            alive[storage] = 1
    for at in range(steps):
        step = order[at]
        extra[at] = facts.scratch[step]
        if facts.take_starts[step] < facts.take_starts[step + 1] and write_starts[at] < write_starts[at + 1]:
            target = writes[write_starts[at]]
            found = sent[target] or (last_read[target] == at and not stays[target])
            for entry in range(facts.take_starts[step], facts.take_starts[step + 1]):
                if found:
                    break
                for place in range(read_starts[at], read_starts[at + 1]):
                    buffer = reads[place]
                    storage = lies_in[buffer]
                    ends = last_read[buffer] == at and not stays[buffer] and alive[storage] == 1 and not sent[buffer]
                    if original[storage] == facts.takes[entry] and ends:
                        extra[at] -= facts.bytes[original[storage]]
                        taken[at] = storage
                        found = True
                        break
        for place in range(write_starts[at], write_starts[at + 1]):
            alive[lies_in[writes[place]]] += 1
        for place in range(read_starts[at], read_starts[at + 1]):
            buffer = reads[place]
            if last_read[buffer] == at and not stays[buffer]:
                alive[lies_in[buffer]] -= 1
                stays[buffer] = True  # counted
        for place in range(write_starts[at], write_starts[at + 1]):
            buffer = writes[place]
            if last_read[buffer] == at and not stays[buffer]:
                alive[lies_in[buffer]] -= 1
                stays[buffer] = True
    return (
        original[:count], read_starts, reads, write_starts, writes, lies_in[:name], looks_at[:name], main[:count],
        buffer_now, owner[:touches], when[:touches], lasts[:count], extra, taken, copy_of[:name],
        sent[:name],
    )  # fmt: skip


def compressed(lists: Iterable[Sequence[int]]) -> tuple[Integers, Integers]:
    """Lists in compressed rows: (starts, items)."""
    rows = [np.asarray(items, np.int64) for items in lists]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return starts, np.concatenate([np.zeros(0, np.int64), *rows])
