"""Choice: all that was chosen to lay a graph out over a machine, and the Program that follows from it.

Nothing that follows from a Choice is kept in it. A Choice is a row of passes (`girih.program.passes`): lower, schedule,
cut into pieces or overlap or cut into blocks, reorder, move. `apply` takes a graph through them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import wrap

from girih.cost.scratch import Scratch
from girih.graph import Graph
from girih.layout import Transfers
from girih.machine import Machine
from girih.machine.units import format_bytes
from girih.partition import Strategy
from girih.plans.rewritten import Rewrite
from girih.plans.scratch import Notes, followed, notes_of
from girih.program import Blocks, Overlap, Program
from girih.program.life.lifetimes import Lifetimes, lifetimes, unlike, widest
from girih.program.moves.apart import lifetimes_by_class
from girih.program.moves.residency import Residency
from girih.program.passes import Lower, Move, Pass, Pieces, Reorder, Schedule
from girih.program.passes import apply as apply_passes
from girih.program.pieces import InPieces

SHOWN = 4
"""Entries of a list that the page shows; it counts the others."""
WIDTH, INDENT = 110, 12

Lives = Callable[[Program], Sequence[Lifetimes]]


@dataclass(frozen=True)
class Choice:
    """All that was chosen. `Choice(strategy)` is the plain one: all on the devices, in the order of the graph.

    strategy: how each node is divided, how each value lies, and where. rewrites: by which rules the graph was rewritten
    before it was divided (`girih.plans.rewritten`). routes: by what the way of a value from one layout to another is
    chosen, the fewest `seconds` or the fewest `bytes`. schedule: the order of a pipeline's work
    (`girih.program.schedule`). pieces: steps that are computed in pieces (`girih.program.pieces`). overlap: how far
    exchanges overlap with computation; not beside pieces, blocks or a schedule of its own. blocks: how the program is
    cut into blocks, or None. sequence: the steps, frees left out, in an order in which some come again
    (`girih.program.again`), or None. residency: when each storage is on the device; () where nothing moves, else one
    for all devices, or one for each class where classes of devices do different things (`girih.program.moves.apart`).
    room: bytes of a device within which the residency keeps; None where nothing moves. micro_batches: into how many
    equal parts a search has cut the batch before it divided the graph; 1: the batch is as the step was given.
    """

    strategy: Strategy
    rewrites: tuple[Rewrite, ...] = ()
    routes: str = "seconds"
    schedule: str = "graph"
    pieces: tuple[InPieces, ...] = ()
    overlap: Overlap = field(default_factory=Overlap)
    blocks: Blocks | None = None
    sequence: tuple[int, ...] | None = None
    residency: tuple[Residency, ...] = ()
    room: int | None = None
    micro_batches: int = 1

    def __str__(self) -> str:
        """A page: what was chosen of each part, and in the last line what was left as it is."""
        parts = {
            "rewrites": _rewrites(self.rewrites),
            "micro-batch": _parts(self.micro_batches),
            "strategy": _strategy(self.strategy),
            "routes": _routes(self),
            "schedule": "" if self.schedule == "graph" else SCHEDULES.get(self.schedule, self.schedule),
            "pieces": _first([_loop(loop) for loop in self.pieces], "loops"),
            "overlap": _overlap(self.overlap),
            "blocks": "" if self.blocks is None else _blocks(self.blocks),
            "sequence": "" if self.sequence is None else _sequence(self.sequence),
            "residency": _residencies(self.residency),
            "room": "" if self.room is None else f"at most {format_bytes(self.room)} at once on a device",
        }
        lines = [_entry(name, words) for name, words in parts.items() if words]
        if left := [name for name, words in parts.items() if not words]:
            lines.append(_entry("not chosen", ", ".join(left)))
        return "\n".join(lines)


def passes(choice: Choice, machine: Machine, lives: Lives) -> tuple[Pass, ...]:
    """The passes that a Choice is. lives: tells the lifetimes of the program that its movements are for."""
    moving = (moves(choice, lives),) if choice.residency else ()
    return (*lowering(choice, machine), *ordering(choice), *moving)


def lowering(choice: Choice, machine: Machine) -> tuple[Pass, ...]:
    """Those that write the program with everything on the devices, each step once."""
    submeshes = () if choice.schedule == "graph" else choice.strategy.submeshes
    transfers = Transfers(machine.mesh, machine.links, choice.routes, submeshes=submeshes)
    first = Lower(transfers), Schedule(choice.schedule, machine)
    if choice.pieces:
        return (*first, Pieces(choice.pieces))
    return (*first, choice.overlap if choice.blocks is None else choice.blocks)


def ordering(choice: Choice) -> tuple[Pass, ...]:
    """Those that bring the steps of this program into the choice's sequence."""
    return () if choice.sequence is None else (Reorder(choice.sequence),)


def moves(choice: Choice, lives: Lives) -> Pass:
    """The one that moves storages as the choice's residency says."""
    assert choice.room is not None
    return Move(choice.residency, choice.room, lives)


def unlowered(graph: Graph, choice: Choice) -> Program:
    """The program of a graph and its strategy before the first pass: without steps."""
    return Program(graph, choice.strategy, (), {}, {})


def apply(
    graph: Graph, machine: Machine, choice: Choice, scratch: Scratch | None = None, *, law: bool = False
) -> Program:
    """The Program that follows from a Choice. scratch: by what the scratch memory of kernels is told, which movements
    keep clear; None: it is measured or bounded here and now (`girih.plans.scratch`). law: check it behind each pass.

    Raises:
        ProgramError: the choice's pieces or sequence are none of this graph's program.
        ValueError: the choice's schedule, overlap or residency are none of this graph's program.
    """
    lives = partial(moving_lifetimes, machine=machine, scratch=scratch)
    return apply_passes(unlowered(graph, choice), passes(choice, machine, lives), law=law)


def moving_lifetimes(program: Program, machine: Machine, scratch: Scratch | None) -> tuple[Lifetimes, ...]:
    """The lifetimes for which residencies are made: one where all devices do the same, else one for each class."""
    notes = notes_of(program, machine, scratch)
    if program.orders:
        return lifetimes_by_class(program, followed(machine), notes.threads, notes)
    return (widest_lifetimes(program, machine, notes),)


def widest_lifetimes(program: Program, machine: Machine, notes: Notes) -> Lifetimes:
    """The lifetimes of a program without movements, with the largest part of each storage that a device has; on a large
    machine, those of the first and the last device. notes: by what the scratch memory of kernels is told."""
    devices = unlike(program, followed(machine))
    return widest([lifetimes(program, device, notes.threads, notes) for device in devices])


# What follows writes the page of a Choice. The words for a part are "" where nothing was chosen of it.

SCHEDULES = {
    "1f1b": "1f1b: each stage of the pipeline computes one micro-batch forward and one backward in turn",
    "interleaved": "interleaved: 1f1b with several runs of layers on each stage, to which micro-batches come again",
}


def _entry(name: str, words: str) -> str:
    """A part's lines, behind its name."""
    lines = [part for line in words.splitlines() for part in wrap(line, WIDTH - INDENT)]
    return "\n".join(f"{name if number == 0 else '':{INDENT}}{line}" for number, line in enumerate(lines))


def _first(lines: Sequence[str], what: str) -> str:
    """The first lines, and how many others there are."""
    others = [f"and {len(lines) - SHOWN} more {what}"] if len(lines) > SHOWN else []
    return "\n".join([*lines[:SHOWN], *others])


def _numbers(numbers: Sequence[int]) -> str:
    """`4, 5, 6, 9 … (31 in all)`."""
    shown = ", ".join(map(str, numbers[:SHOWN]))
    return shown if len(numbers) <= SHOWN else f"{shown} … ({len(numbers)} in all)"


def _counted(items: Iterable[object]) -> str:
    """`20 as S0·R, 3 as R·R`, the most frequent first."""
    counts = Counter(map(str, items)).most_common()
    shown = counts if len(counts) <= SHOWN + 1 else counts[:SHOWN]
    words = [f"{count} as {item}" for item, count in shown]
    if others := counts[len(shown) :]:
        words.append(f"{sum(count for _, count in others)} in {len(others)} other ways")
    return ", ".join(words)


def _rewrites(rewrites: Sequence[Rewrite]) -> str:
    places = Counter(item.rule for item in rewrites)
    return _first([f"{count} × {rule}" for rule, count in places.items()], "rules")


def _parts(count: int) -> str:
    return "" if count == 1 else f"the batch is cut into {count} equal parts, over which sums add up"


def _strategy(strategy: Strategy) -> str:
    if strategy.mesh.devices == 1:
        return ""
    divisions, layouts = _counted(strategy.divisions), _counted(strategy.layouts.values())
    extremes = ", Pmax and Pmin partial maxima and minima" if "Pm" in layouts else ""
    on = ", @1 that only coordinate 1 takes part" if "@" in divisions + layouts else ""
    return (
        f"on a mesh of {strategy.mesh}, {strategy.mesh.devices} devices\n"
        f"{len(strategy.divisions)} nodes: {divisions}\n"
        f"{len(strategy.layouts)} values: {layouts}\n"
        "by mesh axis: S0 cuts index variable 0 of a node, dimension 0 of a value; R keeps it whole; P are partial "
        f"sums{extremes}{on}"
    )


def _routes(choice: Choice) -> str:
    if choice.strategy.mesh.devices == 1:
        return ""
    return f"a value goes from one layout to another in the fewest {choice.routes}"


def _loop(loop: InPieces) -> str:
    return f"steps {_numbers([step for step, _ in loop.steps])} together, {loop.rows} rows at a time"


def _overlap(overlap: Overlap) -> str:
    if overlap == Overlap():
        return ""
    return (
        f"what is fetched may start {overlap.fetch} steps before its use, what is stored may finish {overlap.store} "
        "steps behind its production"
    )


def _blocks(blocks: Blocks) -> str:
    words = [f"values of at most {format_bytes(blocks.cache)} together"]
    if blocks.streamed:
        words.append(f"{len(blocks.streamed)} inputs are read block by block")
    if blocks.files:
        words.append(f"{len(blocks.files)} values lie in files")
    if blocks.always:
        words.append("single nodes too")
    if blocks.stealing:
        words.append("workers compute parts of each other's loops")
    return ", ".join(words)


def _sequence(sequence: Sequence[int]) -> str:
    first = list(dict.fromkeys(sequence))
    times = Counter(sequence)
    late = next((place for place, step in enumerate(first) if place != step), len(first))
    words = f"{len(first)} steps in the order of the program"
    if late < len(first):
        words = f"{len(first)} steps: the first {late} as in the program, then {_numbers(first[late:])}"
    again = [step for step in first if times[step] > 1]
    return f"{words}\ncomputed again: {_numbers(again)}" if again else words


def _residencies(residencies: Sequence[Residency]) -> str:
    lines = [_moves(residency) for residency in residencies]
    if len(lines) > 1:
        lines = [f"class {number} of {len(lines)} of devices: {line}" for number, line in enumerate(lines, 1)]
    return _first(lines, "classes of devices")


def _moves(residency: Residency) -> str:
    out = sum(stay.copied for stay in residency.stays)
    back = sum(not stay.fresh for stay in residency.stays)
    if not out + back:
        return "nothing moves"
    storages = len({stay.storage for stay in residency.stays})
    home = f"; {len(residency.home)} storages of state lie there between steps" if residency.home else ""
    return f"of {storages} storages, {out} copies go out to the large memory and {back} come in{home}"
