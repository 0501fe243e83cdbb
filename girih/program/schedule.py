"""One forward, one backward: the order of a pipeline's stages that holds few activations (PipeDream-flush), and its
interleaved form, in which stages wait less.

Narayanan, Phanishayee, Shi, Chen, Zaharia, "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, §2.2 and
figure 2; the order within a step is that of PipeDream's 1F1B (Narayanan et al., SOSP 2019, §3.2) with a flush before
the weights are updated, so that results are those of one device. GPipe (Huang et al. 2019), which is the order of the
graph, sends all m micro-batches forward before the first comes back, and a stage holds the activations of all m. Here
stage s of p takes min(m, p - s) micro-batches forward (warm-up), then one backward and one forward in turn, then what
is left backward (cool-down): it holds those of at most p - s. The bubble is the same.

Interleaved (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC
2021, §2.2 and figure 4): the layers are cut into v · p runs, and stage s has the runs s, s + p, s + 2p, ..., v in all,
so that a micro-batch comes round v times; each time is a *lap*. Micro-batches go in groups of p: all of a group make
one lap, then all make the next. Stage s takes 2 (p - s - 1) + (v - 1) p + 1 of these forward as its warm-up, and so
holds at most that many, each the activations of one run. Where the micro-batches are whole groups, the bubble is v
times as short; what passes from stage to stage is v times as much. The run of a node follows from the graph: going
forward, the first run on its devices that is not before those of what it reads; going backward the last one that is
not behind them.

What is implemented: nodes get a *chunk* (stage, forward or backward, micro-batch, lap), by the slice of the batch on
which they depend, by their phase, by the devices on which they lie, and by what they read. Each stage works off its
chunks in that order, as soon as what they need is there; by the roofline this gives each node the time at which it
begins, and the program's steps are in the order of these times. (Devices wait for their exchanges where the order has
them, so an order that is far from the real times makes stages wait for each other.) What depends on no slice is
computed right before its first reader, what depends on several with the last of them, and the update comes at the end.
A graph whose values go back and forth between stages gets an order too: where no stage can go on in its own, the first
node that can be computed is.

A value that goes to another stage starts on its way when it is made, but not before the receiver begins the chunk
before the one that reads it: so the sender goes on, and what waits for a stage is one micro-batch's.

Cost: O(nodes · log nodes).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from girih.graph import Graph, Node
from girih.machine import Machine
from girih.partition.space.problem import Objective
from girih.program.exchange import is_local
from girih.program.liveness import lasting
from girih.program.lower import node_placements
from girih.program.orders import Mask, Shares, arranged
from girih.program.program import Program
from girih.program.steps import ComputeStep, StartStep, Step, TransferStep

SCHEDULES = ("graph", "1f1b", "interleaved")
"""The orders of a pipeline's work: that of the graph (GPipe's, where it has micro-batches); one forward, one backward;
or this with several runs of layers on each stage."""
LAST = float("inf")

Place = tuple[int, int] | None  # the stage of a node, and which of its chunks that of the node is


def scheduled(program: Program, schedule: str, machine: Machine) -> Program:
    """The program that `lower` makes, in the order of a schedule. machine: by whose data sheet nodes take their time.

    Raises:
        ValueError: there is no such schedule; or exchanges overlap already.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"no schedule {schedule!r}: expected one of {', '.join(SCHEDULES)}")
    if schedule == "graph":
        return program
    roofline = Objective("seconds", machine)
    return one_forward_one_backward(
        program,
        [
            float(roofline.node_costs(node_placements(program.graph, number, program.strategy))[0])
            for number in range(len(program.graph.nodes))
        ],
        interleaved=schedule == "interleaved",
    )


def one_forward_one_backward(program: Program, seconds: Sequence[float], *, interleaved: bool = False) -> Program:
    """The program with its stages' work in the order 1F1B; as it is where it has one stage, or no micro-batches.

    seconds: an estimate of what each node takes. interleaved: does a micro-batch come round the stages several times?

    Raises:
        ValueError: the program's exchanges overlap already.
    """
    if any(isinstance(step, StartStep) for step in program.steps):
        raise ValueError("this program's exchanges overlap already: start from the program that `lower` makes")
    parts, count = micro_batches_of(program.graph)
    stages = _stages(program, parts)
    number = len(set(stages.values()))
    if count == 1 or number <= 1:
        return program
    laps = laps_of(program.graph, parts, stages, number) if interleaved else dict.fromkeys(stages, 0)
    chunks = _chunks(program.graph, parts, stages, laps, number, count)
    begins, chunks = _late(program.graph, parts, chunks, _begins(program.graph, chunks, seconds))
    order = _sorted(program.graph, begins, chunks)
    groups: dict[int, list[Step]] = {node: [] for node in order}
    for step in program.steps:
        if isinstance(step, ComputeStep | TransferStep):
            groups[step.node].append(step)
    steps = [step for node in order for step in groups[node]]
    return arranged(program, _with_starts(program, steps, chunks), lasting(program.graph))


def micro_batches_of(graph: Graph) -> tuple[list[int | None], int]:
    """(for each node the last micro-batch on which it depends, or None; how many there are).

    A micro-batch is what nodes slice from inputs that are the batch, along dimension 0. They are counted in the order
    in which the graph sends them back, so that sums of gradients go on as these come: PyTorch begins with the last.
    What depends on no parameter counts for none: the labels of all micro-batches, by whose number the loss is divided,
    can be counted before the first one comes back.
    """
    starts: dict[str, set[int]] = {item.name: set() for item in graph.inputs if item.role == "batch"}
    for node in graph.nodes:
        if (begin := _begin(node)) is not None and node.inputs[0] in starts:
            starts[node.inputs[0]].add(begin)
    places = {name: sorted(begins) for name, begins in starts.items()}
    sets: list[frozenset[int]] = []
    known: dict[str, frozenset[int]] = dict.fromkeys(places, frozenset((0,)))
    trained = {item.name for item in graph.inputs if item.role == "parameter"}
    free: list[bool] = []
    for node in graph.nodes:
        begin = _begin(node)
        if begin is not None and node.inputs[0] in places:
            parts = frozenset((places[node.inputs[0]].index(begin),))
        else:
            parts = frozenset().union(*(known.get(name, frozenset()) for name in node.inputs))
        sets.append(parts)
        free.append(trained.isdisjoint(node.inputs))
        if not free[-1]:
            trained.update(node.outputs)
        known.update(dict.fromkeys(node.outputs, frozenset() if free[-1] and len(parts) > 1 else parts))
    back = [parts for node, parts in zip(graph.nodes, sets, strict=True) if node.phase == "backward"]
    count = max([1, *map(len, places.values())])
    order = list(dict.fromkeys([*(part for parts in back if len(parts) == 1 for part in parts), *range(count)]))
    return [None if early else max(map(order.index, parts), default=None)
            for parts, early in zip(sets, free, strict=True)], count  # fmt: skip


def accumulating(graph: Graph) -> Graph:
    """The graph in the order of accumulated gradients, so that nothing but these is held of more than one micro-batch:
    each goes forward and backward before the next begins, and the update comes last. What depends on no micro-batch is
    computed right before its first reader. A graph without micro-batches is as it was.
    """
    parts, count = micro_batches_of(graph)
    if count == 1:
        return graph
    turns: dict[int, int] = {}  # without those of nodes that depend on no micro-batch
    for number, (node, part) in enumerate(zip(graph.nodes, parts, strict=True)):
        before = [turns[maker] for name in node.inputs if (maker := graph.producer.get(name)) in turns]
        own = [] if part is None else [count if node.phase == "update" else part]
        if before or own:
            turns[number] = max((*before, *own))
    order: dict[int, None] = {}
    every = range(len(graph.nodes))
    for number in (*sorted(turns, key=lambda number: (turns[number], number)), *every):
        pending = [number]
        while pending:
            needed = (graph.producer.get(name) for name in graph.nodes[pending[-1]].inputs)
            if (first := next((node for node in needed if node is not None and node not in order), None)) is None:
                order.setdefault(pending.pop())
            else:
                pending.append(first)
    return replace(graph, nodes=tuple(graph.nodes[number] for number in order))


def _begin(node: Node) -> int | None:
    """The row at which a slice of rows begins; None of other nodes."""
    rows = node.operator == "aten.slice.Tensor" and node.attributes.get("dim", 0) == 0
    begin = node.attributes.get("start", 0) or 0
    return begin if rows and isinstance(begin, int) else None


def _stages(program: Program, parts: Sequence[int | None]) -> dict[int, int]:
    """The stage of each node that is computed on the devices of one: counted by where the forward work of the first
    micro-batch ends on each.

    What is computed on the devices of several stages belongs to none.
    """
    nodes, shares = program.graph.nodes, Shares(program)
    masks = {step.node: shares.of_step(step) for step in program.steps if isinstance(step, ComputeStep)}
    forward: dict[bytes, Mask] = {}
    for number, node in enumerate(nodes):
        if node.phase == "forward" and parts[number] == 0:
            forward.pop(key := masks[number].tobytes(), None)
            forward[key] = masks[number]
    single = [
        key
        for key, mask in forward.items()
        if not any((mask & other).any() and other.sum() < mask.sum() for other in forward.values())
    ]
    stage = {key: number for number, key in enumerate(single)}
    return {node: stage[key] for node, mask in masks.items() if (key := mask.tobytes()) in stage}


def laps_of(graph: Graph, parts: Sequence[int | None], stages: dict[int, int], number: int) -> dict[int, int]:
    """How often a micro-batch has gone through all stages before it comes to each node that belongs to one."""
    runs: dict[str, dict[str, int]] = {"forward": {}, "backward": {}}  # by value: counted on from lap to lap
    laps: dict[int, int] = {}
    last = 0  # lap of the forward pass
    for node, item in enumerate(graph.nodes):
        if parts[node] is None or item.phase == "update":
            continue
        ahead, back = ([known[name] for name in item.inputs if name in known] for known in runs.values())
        run = min(back) if back else max(ahead, default=None)
        if (stage := stages.get(node)) is not None:
            if run is None:
                run = stage
            elif back:
                run = max(run - (run - stage) % number, stage)
            else:
                run += (stage - run) % number
            if item.phase == "forward":
                last = max(last, run // number)
            laps[node] = min(run // number, last)
        if run is not None:
            runs[item.phase].update(dict.fromkeys(item.outputs, run))
    return laps


def sequence(stage: int, stages: int, count: int, laps: int = 1) -> list[tuple[bool, int, int]]:
    """What a stage does, in its order, as (backward?, micro-batch, lap): warm-up, one backward and one forward in turn,
    cool-down. With several laps the micro-batches go in groups of as many as there are stages."""
    groups = [range(first, min(first + stages, count)) for first in range(0, count, stages)]
    turns = [(part, lap) for group in groups for lap in range(laps) for part in group]
    warm = stages - stage if laps == 1 else 2 * (stages - stage - 1) + (laps - 1) * stages + 1
    work = [(False, *turn) for turn in turns[:warm]]
    for place, (part, lap) in enumerate(turns):
        work.append((True, part, laps - 1 - lap))
        work += [(False, *turn) for turn in turns[warm + place : warm + place + 1]]
    return work


def _chunks(
    graph: Graph, parts: Sequence[int | None], stages: dict[int, int], laps: dict[int, int], number: int, count: int
) -> list[Place]:
    most = max(laps.values(), default=0) + 1
    orders = [sequence(stage, number, count, most) for stage in range(number)]
    places = [{chunk: place for place, chunk in enumerate(order)} for order in orders]
    return [
        None
        if part is None or node not in stages or item.phase == "update"
        else (stages[node], places[stages[node]][item.phase == "backward", part, laps[node]])
        for node, (item, part) in enumerate(zip(graph.nodes, parts, strict=True))
    ]


def _begins(graph: Graph, chunks: Sequence[Place], seconds: Sequence[float]) -> list[float]:
    """When each node begins at the earliest if each stage does its chunks in their order, and a chunk in the graph's.

    What is in no chunk takes no time, and occupies no stage.
    """
    count = len(graph.nodes)
    queues: dict[int, deque[int]] = {}
    for node in sorted(range(count), key=lambda node: (chunks[node] or (-1, 0), node)):
        if (chunk := chunks[node]) is not None:
            queues.setdefault(chunk[0], deque()).append(node)
    missing = _missing(graph)
    free = dict.fromkeys(queues, 0.0)
    begins, done = [0.0] * count, [False] * count
    able = [node for node in range(count) if missing[node] == 0]
    left = count
    while left:
        if not able:  # no stage can go on in its own order: values go back and forth
            node = next(node for node in range(count) if not done[node] and missing[node] == 0)
            queue = queues[chunks[node][0]]  # type: ignore[index]
            queue.remove(node)
            queue.appendleft(node)
            able.append(node)
        node = able.pop()
        chunk = chunks[node]
        if done[node] or missing[node] or (chunk is not None and queues[chunk[0]][0] != node):
            continue
        end = begins[node]
        if chunk is not None:
            begins[node] = max(begins[node], free[chunk[0]])
            end = free[chunk[0]] = begins[node] + seconds[node]
            queues[chunk[0]].popleft()
            able += [queues[chunk[0]][0]] if queues[chunk[0]] else []
        done[node] = True
        left -= 1
        for reader in _readers(graph, node):
            begins[reader] = max(begins[reader], end)
            missing[reader] -= 1
            able.append(reader)
    return begins


def _late(
    graph: Graph, parts: Sequence[int | None], chunks: Sequence[Place], begins: Sequence[float]
) -> tuple[list[float], list[Place]]:
    """The same, but what depends on no micro-batch goes with its first reader, and the update comes last."""
    late, places = list(begins), list(chunks)
    for node in reversed(range(len(late))):
        if graph.nodes[node].phase == "update":
            late[node] = LAST
        elif parts[node] is None:
            first = min(_readers(graph, node), key=late.__getitem__, default=None)
            late[node], places[node] = (LAST, None) if first is None else (late[first], places[first])
    return late, places


def _readers(graph: Graph, node: int) -> set[int]:
    return {reader for name in graph.nodes[node].outputs for reader in graph.consumers[name]}


def _missing(graph: Graph) -> list[int]:
    """How many nodes each node reads of."""
    return [len({graph.producer[name] for name in node.inputs if name in graph.producer}) for node in graph.nodes]


def _sorted(graph: Graph, begins: Sequence[float], chunks: Sequence[Place]) -> list[int]:
    """The nodes by time, each behind what it reads; at one time in the order of the chunks, then of the graph."""
    missing = _missing(graph)
    keys = [
        (begin, 0 if chunk is None else chunk[1], node)
        for node, (begin, chunk) in enumerate(zip(begins, chunks, strict=True))
    ]
    ready = [keys[node] for node, count in enumerate(missing) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        *_, node = heappop(ready)
        order.append(node)
        for reader in _readers(graph, node):
            missing[reader] -= 1
            if missing[reader] == 0:
                heappush(ready, keys[reader])
    return order


def _with_starts(program: Program, steps: Sequence[Step], chunks: Sequence[Place]) -> list[Step]:
    """The steps with exchanges that start early, and with stores that end where their target is first read."""
    first: dict[Place, int] = {}  # by chunk the position of its first step
    first_read: dict[str, int] = {}
    there: dict[str, int] = {}  # the position before which a buffer is there
    chunk_of = [chunks[step.node] if isinstance(step, ComputeStep | TransferStep) else None for step in steps]
    for position, step in enumerate(steps):
        first.setdefault(chunk_of[position], position)
        for buffer in step.sources:
            first_read.setdefault(buffer, position)
        if isinstance(step, ComputeStep):
            there.update(dict.fromkeys(step.targets, position + 1))
    starting: list[list[Step]] = [[] for _ in range(len(steps) + 1)]
    ending: list[list[Step]] = [[] for _ in range(len(steps) + 1)]
    arrived: set[str] = set()
    for position, step in enumerate(steps):
        if not isinstance(step, TransferStep):
            continue
        end = position if step.purpose == "fetch" else first_read.get(step.target, position)
        reading = chunk_of[end]
        start = there.get(step.source, 0)
        if reading is not None:
            start = max(start, first.get((reading[0], reading[1] - 1), 0))
        if start < end and not is_local(program.mesh, step.before, step.after):
            behind = step.source in arrived and there[step.source] == start  # it comes right before
            (ending if behind else starting)[start].append(StartStep(step))
        ending[end].append(step)
        there[step.target] = end
        arrived.add(step.target)
    result: list[Step] = []
    for position in range(len(steps) + 1):
        result += starting[position] + ending[position]
        if position < len(steps) and isinstance(steps[position], ComputeStep):
            result.append(steps[position])
    return result
