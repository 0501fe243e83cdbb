"""The law of a Plan, as code; and of one that was read from a file, what keeps it harmless and within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from girih.graph import Argument, Graph, GraphError
from girih.graph import check as check_graph
from girih.graph.graph import ITEM_BYTES
from girih.layout import Mesh, Partial, Replicated, Sharding, Split, bounds_of
from girih.layout.mesh import MOST_DIMENSIONS
from girih.ops import Description, descriptions_of
from girih.ops.derive.divisions import divisible, executable, merged
from girih.ops.derive.passing import passages
from girih.ops.gate import refusals
from girih.partition.searches.stages import micro_batches
from girih.plans.plan import Plan, PlanError
from girih.plans.rewritten import ProofError, prove_all
from girih.program import Overlap, ProgramError
from girih.program import check as check_program
from girih.program.moves.residency import misfit

MOST_AXES = 64  # of a tensor
MOST_BYTES = 1 << 52  # of a tensor
MOST_IN_ALL = 1 << 60  # of all tensors on all devices: what is counted in 64 bits
MOST_DEVICES = 1 << 17
MOST_WORK = 4 << 30  # bytes of tables that say what of each tensor is where


def check(plan: Plan) -> None:
    """Prove the invariants of a plan; see `girih.plans.plan.check`."""
    if plan.file:
        _check_file(plan)
    try:
        check_graph(plan.graph)
        if (undivided := plan.origin.undivided) is not None:
            check_graph(undivided)
            _check_undivided(plan.graph, undivided)
    except GraphError as error:
        raise PlanError(f"the plan's graph is broken: {error}") from error
    _check_parts(plan)
    _check_strategy(plan)
    try:
        prove_all(plan.choice.rewrites)
    except ProofError as error:
        raise PlanError(str(error)) from error
    _check_times(plan)
    try:
        check_program(plan.program)
    except ProgramError as error:
        raise PlanError(f"the plan's program is broken: {error}") from error
    once = int(plan.lowered.bytes_received().sum())  # without what is fetched again within the limit
    if plan.objective == "bytes" and not abs(plan.certificate.cost - once) <= 0.5:
        raise PlanError(f"the certificate says {plan.certificate.cost:.0f} bytes, the program moves {once}")
    if plan.memory is not None and plan.peak > plan.memory:
        raise PlanError(f"the plan needs {plan.peak} bytes on a device, its limit is {plan.memory}")


def one_line(error: BaseException) -> str:
    """A message without the neighbours that it shows: of these the marked one."""
    reasons, shown = [], ""
    for line in str(error).splitlines():
        if line.startswith(("→", "  ")):
            shown = line.removeprefix("→").strip() if line.startswith("→") else shown
        elif line.strip():
            reasons.append(line.strip())
    said = "; ".join(reasons) or type(error).__name__
    return _cut(said, 600) + (f" ({_cut(shown, 160)})" if shown else "")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _check_file(plan: Plan) -> None:
    """What a file may hold: before anything is computed of it."""
    undivided = plan.origin.undivided
    for graph in (plan.graph, *(() if undivided is None else (undivided,))):
        check_gate(graph, plan.file, plan.trusted, plan.machine.mesh.devices)
    _check_work(plan)


def _check_parts(plan: Plan) -> None:
    """Does the graph cut its batch as the choice says?"""
    said = plan.choice.micro_batches
    if said > 1 and said != (count := micro_batches(plan.graph)):
        raise PlanError(f"micro_batches: expected {count}, into which the graph cuts its batch, there is {said}")


def _check_undivided(graph: Graph, undivided: Graph) -> None:
    """Takes and makes the graph of the whole batch what the plan's own does?"""
    sides = [
        ([(item, one.values[item.name]) for item in one.inputs], [(item.role, item.replaces) for item in one.outputs],
         [(one.values[item.name].shape, one.values[item.name].dtype) for item in one.outputs])
        for one in (graph, undivided)
    ]  # fmt: skip
    if sides[0] != sides[1]:
        raise PlanError("the plan's key 'undivided' is the graph of another step: its inputs or outputs are others")


def check_gate(graph: Graph, file: str, trust: bool = False, devices: int = 1) -> None:
    """What a graph that was read from a file may call, and how large its tensors may be.

    Raises:
        PlanError: it calls what a file must not (`girih.ops.gate`), or is larger than any that girih makes.
    """
    for node, why in refusals(graph, trust=trust):
        raise PlanError(f"{file} is refused: node {node.name!r}: {why}")
    _check_sizes(graph, devices)
    _check_constants(graph)


def _check_sizes(graph: Graph, devices: int) -> None:
    if devices > MOST_DEVICES:
        raise PlanError(f"the machine has {devices} devices: expected at most {MOST_DEVICES}")
    total = 0
    for name, value in graph.values.items():
        if value.dtype not in ITEM_BYTES:
            raise PlanError(f"value {name} is {value.dtype!r}: expected one of {', '.join(ITEM_BYTES)}")
        if len(value.shape) > MOST_AXES:
            raise PlanError(f"value {name} has {len(value.shape)} dimensions: expected at most {MOST_AXES}")
        # Sizes beside a zero count too: they are multiplied on the way.
        size = prod(max(extent, 1) for extent in value.shape) * value.item_bytes
        if size > MOST_BYTES:
            raise PlanError(f"value {name} {_short(value.shape)} has {size} bytes: expected at most {MOST_BYTES}")
        total += size
    if total * devices > MOST_IN_ALL:
        raise PlanError(f"the plan's tensors have {total} bytes on each of {devices} devices: too many to count")


def _check_constants(graph: Graph) -> None:
    """A tensor that is written out in the graph has the numbers that it says."""
    for node in graph.nodes:
        if node.operator == "girih.constant":
            shape, attributes = graph.values[node.outputs[0]].shape, node.attributes
            written = sum(1 for _ in _numbers(attributes.get("data")))
            if attributes.get("size") != shape or written != prod(shape):
                raise PlanError(
                    f"node {node.name!r}, girih.constant, writes out {written} numbers of size "
                    f"{_short(attributes.get('size'))}: expected {_short(shape)}"
                )


def _numbers(item: Argument) -> Iterator[Argument]:
    if isinstance(item, tuple):
        for part in item:
            yield from _numbers(part)
    else:
        yield item


def _check_work(plan: Plan) -> None:
    """Is the plan within what can be worked out? Bytes of the tables of regions, of cuts and of sizes."""
    mesh, graph = plan.machine.mesh, plan.graph
    layouts = plan.strategy.layouts
    each = {(value.shape, layouts.get(name)) for name, value in graph.values.items()}
    extents = {extent for value in graph.values.values() for extent in value.shape}
    sets = min(mesh.axes, 64)
    needed = mesh.devices * 16 * (sum(max(1, len(shape)) for shape, _ in each) + (len(extents) + 1 << sets))
    if needed > MOST_WORK:
        raise PlanError(
            f"to work out what lies where on a mesh {_cut(str(mesh), 60)} takes about {needed} bytes for these "
            f"tensors: expected at most {MOST_WORK}"
        )


def _check_times(plan: Plan) -> None:
    """What is computed when, and what is in memory then, key by key, each before the loops that work with it: these
    are compiled, and trust their numbers."""
    choice = plan.choice
    if choice.schedule != "graph" and (choice.pieces or choice.overlap != Overlap()):
        other = "pieces" if choice.pieces else "overlap"
        raise PlanError(f"schedule: expected 'graph' beside {other}, there is {choice.schedule!r}")
    for key, name in (("pieces", "lowered"), ("sequence", "unmoved")):
        try:
            getattr(plan, name)
        except ProgramError as error:
            raise PlanError(f"{key}: {error}") from error
    if not choice.residency:
        return
    if plan.memory is None:
        raise PlanError("memory: expected a number of bytes beside a residency, there is null")
    try:
        check_program(plan.unmoved)
    except ProgramError as error:
        raise PlanError(f"the plan's program is broken: {error}") from error
    classes, apart = len(plan.unmoved.classes), bool(plan.unmoved.orders)
    if len(choice.residency) != classes:
        there = len(choice.residency)
        raise PlanError(f"residencies: expected one for each of {classes} classes, there are {there}")
    lives = plan.lifetimes_by_class
    for number, (residency, own) in enumerate(zip(choice.residency, lives, strict=True)):
        if wrong := misfit(residency, own):
            raise PlanError(f"{f'residencies[{number}]' if apart else 'residency'}.{wrong}")


def _check_strategy(plan: Plan) -> None:
    mesh: Mesh = plan.machine.mesh
    strategy, graph = plan.strategy, plan.graph
    if strategy.mesh != mesh:
        raise PlanError(f"the strategy is for a mesh {strategy.mesh}, the machine has {mesh}")
    if len(strategy.divisions) != len(graph.nodes):
        raise PlanError(f"{len(strategy.divisions)} divisions for {len(graph.nodes)} nodes")
    if unknown := strategy.layouts.keys() - graph.values.keys():
        raise PlanError(f"there is a layout of {_short(min(unknown))}, which is no value of the graph")
    fits: set[tuple[int, Sharding | None]] = set()  # repeated layers lie alike
    for name, value in graph.values.items():
        layout = strategy.layouts.get(name)
        if (len(value.shape), layout) in fits:
            continue
        wrong = "it has no layout" if layout is None else layout.misfit(mesh, len(value.shape))
        if wrong:
            raise PlanError(
                f"value {name} {_short(value.shape)} has layout {_cut(str(layout), 60)} on a mesh {mesh}: {wrong}"
            )
        fits.add((len(value.shape), layout))
    _check_divisions(graph, mesh, strategy.divisions)
    for old, new in graph.updates.items():
        if strategy.layouts[old] != strategy.layouts[new]:
            raise PlanError(f"{new} replaces {old} but lies otherwise: {strategy.layouts[new]}")
    for output in graph.outputs:
        if strategy.layouts[output.name].partial_axes:
            raise PlanError(f"output {output.name} would leave the program as a partial result")


def _check_divisions(graph: Graph, mesh: Mesh, divisions: tuple[Sharding, ...]) -> None:
    """Every axis cuts what the node's operator can be cut along, repeats its work, or lets partial results pass."""
    known: set[tuple[tuple[int, ...], Sharding]] = set()
    for number, division in enumerate(divisions):
        node = graph.nodes[number]
        try:
            descriptions = descriptions_of(graph, node)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError) as error:
            raise PlanError(
                f"node {node.name!r}: {node.operator} does not take these arguments ({type(error).__name__}: {error})"
            ) from error
        key = (tuple(map(id, descriptions)), division)  # equal nodes share their descriptions
        if descriptions and key in known:
            continue
        if wrong := _wrongly_divided(descriptions, division, mesh):
            raise PlanError(
                f"node {node.name!r}, {node.operator}, is divided as {_cut(str(division), 60)} on {mesh}: {wrong}"
            )
        known.add(key)


def _wrongly_divided(descriptions: tuple[Description, ...], division: Sharding, mesh: Mesh) -> str:
    if not descriptions:
        if wrong := division.misfit(mesh, 0, MOST_DIMENSIONS):
            return wrong
        repeats = all(isinstance(axis, Replicated) for axis in division.axes)
        return "" if repeats else "nobody has described how it can be divided"
    for description in descriptions:
        if wrong := division.misfit(mesh, description.rank, MOST_DIMENSIONS):
            return wrong
        able = divisible(description)
        cuts = [axis.dimension for axis in division.axes if isinstance(axis, Split)]
        for variable in cuts:
            if not able[variable]:
                return f"it cannot be divided along index variable {variable}"
        passed = [axis.passes for axis in division.axes if isinstance(axis, Partial)]
        if passed and max(passed) >= len(passages(description)):
            return "no partial results can pass through it"
        root = description.root.variables if description.root is not None else ()
        if any(variable in root for variable in cuts) and any(
            passages(description)[number].makes != description.reducer for number in passed
        ):
            return "it would make partial results that are combined in two ways"
        if cuts and merged(description) and not _boxes(description, division, mesh):
            return "its pieces are no boxes"
        if division.shares and (wrong := division.empty_part(description.sizes, mesh)):
            return wrong
    return ""


def _boxes(description: Description, division: Sharding, mesh: Mesh) -> bool:
    starts, stops = bounds_of(division, description.sizes, mesh)
    return bool((executable(description, starts, stops) | (stops <= starts).any(axis=-1)).all())


def _short(item: object) -> str:
    return _cut(repr(list(item) if isinstance(item, tuple) else item), 60)
