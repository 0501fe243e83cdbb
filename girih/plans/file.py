"""Plan files: JSON with a version. What can be derived again is not in it: programs are lowered on loading.

A file is data: reading it runs nothing that its writer chose (`girih.ops.gate`), and takes bounded time and memory.
Everything in it is held against a schema first (`girih.plans.schema`), then against the law of plans
(`girih.plans.check`).
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from girih.cost.scratch import Scratch
from girih.graph import Graph, GraphError, Node, format_graph, parse_graph
from girih.layout import Sharding, parse_sharding, sharding_of
from girih.machine import Device, Level, Machine
from girih.machine.machine import Tier
from girih.ops.functions import FunctionError, import_name, imported
from girih.ops.gate import FUNCTION, is_safe
from girih.partition import Strategy
from girih.partition.space.problem import Objective
from girih.plans.check import check, one_line
from girih.plans.choice import Choice
from girih.plans.plan import Costs, Goal, Origin, Plan, PlanError, Predicted
from girih.plans.rewritten import Rewrite
from girih.plans.schema import PlanFile, ResidencyFile, SchemaError, read_schema
from girih.program import Overlap
from girih.program.moves.residency import Residency
from girih.program.pieces import InPieces
from girih.rewrite.certificate import Certificate
from girih.store import places

VERSION = 3
OLDEST = 2  # that is read
MOST_TEXT = 1 << 27  # bytes of a plan's text, uncompressed: about a quarter of a million nodes
MOST_STEPS = 1 << 22  # of a sequence


def save(plan: Plan, path: str | Path) -> None:
    """Write the plan as JSON (gzipped if the name ends in .gz): whole, or the file is as it was before.

    Raises:
        PlanError: it cannot be written, or calls a function that a file cannot name.
    """
    where = Path(path)
    check_folder(where)
    text = json.dumps(to_json(plan), indent=1, allow_nan=False).encode()
    if len(text) > MOST_TEXT:
        raise PlanError(f"{where}: the plan is {len(text)} bytes of text, and a file holds at most {MOST_TEXT}")
    written = gzip.compress(text) if where.suffix == ".gz" else text
    try:
        places.exchange(str(where), written)
        places.sync(str(where))
    except OSError as error:
        raise PlanError(f"{where} cannot be written: {error.strerror or error}") from error


def check_folder(path: str | Path) -> None:
    """Raises PlanError where there is no folder to write a file into: a name that is mistyped makes none."""
    where = Path(path)
    if not where.absolute().parent.is_dir():
        raise PlanError(f"{where} cannot be written: there is no folder {where.parent}; make it, or give another name")


def _device(device: Device) -> dict[str, Any]:
    """Without what nearly no device has, as in files of before."""
    return {name: item for name, item in vars(device).items() if name != "rates" or item}


def to_json(plan: Plan) -> dict[str, Any]:
    certificate, choice, told, undivided = vars(plan.certificate), plan.choice, plan.predicted, plan.origin.undivided
    residencies = list(map(_residency, choice.residency))
    machine_json: dict[str, Any] = {
        "name": plan.machine.name,
        "source": plan.machine.source,
        "device": _device(plan.machine.device),
        "levels": [vars(level) for level in plan.machine.levels],
    }
    if plan.machine.host is not None:
        machine_json["host"] = vars(plan.machine.host)
    if plan.machine.groups:
        machine_json["groups"] = [(_device(device), count) for device, count in plan.machine.groups]
    return {
        "girih plan": VERSION,
        "model": plan.origin.model,
        "search": plan.search,
        "objective": plan.objective,
        "memory": plan.memory,
        "machine": machine_json,
        "certificate": _finite(certificate),
        "simulated": _finite(told.simulated),
        "notes": plan.notes,
        "baselines": [_finite(vars(item)) for item in plan.baselines],
        "scalars": _finite(plan.origin.scalars),
        "ranges": plan.origin.ranges,
        "overlap": vars(choice.overlap),
        "scratch": plan.told_scratch.to_json(),
        "keys": plan.origin.keys,
        "constants": plan.origin.constants,
        "initial": _finite(plan.origin.initial),
        "layouts": {name: str(layout) for name, layout in plan.strategy.layouts.items()},
        "divisions": [str(division) for division in plan.strategy.divisions],
        "graph": format_graph(_named(plan.graph)).splitlines(),
        **({} if choice.schedule == "graph" else {"schedule": choice.schedule}),
        **({} if choice.sequence is None else {"sequence": _ranges(choice.sequence)}),
        **({"pieces": [[loop.rows, loop.steps] for loop in choice.pieces]} if choice.pieces else {}),
        **({"residency": residencies[0]} if len(residencies) == 1 else {}),
        **({"residencies": residencies} if len(residencies) > 1 else {}),
        **({} if choice.room in (None, plan.memory) else {"room": choice.room}),
        **({"rewrites": [vars(item) for item in choice.rewrites]} if choice.rewrites else {}),
        **({} if choice.micro_batches == 1 else {"micro_batches": choice.micro_batches}),
        **({} if undivided is None else {"undivided": format_graph(_named(undivided)).splitlines()}),
        **({} if told.unlimited is None else {"unlimited": told.unlimited, "memory_bound": told.memory_bound}),
    }


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers that follow each other as [first, one behind the last]."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1]:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def _sequence(ranges: Sequence[tuple[int, int]] | None) -> tuple[int, ...] | None:
    """
    Raises:
        PlanError: it is longer than any that girih makes.
    """
    if ranges is None:
        return None
    if (length := sum(last - first for first, last in ranges)) > MOST_STEPS:
        raise PlanError(f"the plan's sequence has {length} steps: expected at most {MOST_STEPS}")
    return tuple(number for first, last in ranges for number in range(first, last))


def _residency(residency: Residency) -> dict[str, Any]:
    return {"stays": [[*stay] for stay in residency.stays], "home": sorted(residency.home)}


def _residency_of(data: ResidencyFile) -> Residency:
    return Residency.of(data.stays, data.home)


def _finite(item: Any) -> Any:
    """With texts for the numbers that JSON does not have."""
    if isinstance(item, dict):
        return {name: _finite(value) for name, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [_finite(value) for value in item]
    return item if not isinstance(item, float) or math.isfinite(item) else str(item)


def _named(graph: Graph) -> Graph:
    """The graph with its user's functions by their import names.

    Raises:
        PlanError: one has none.
    """
    return replace(graph, nodes=tuple(_with_names(node) for node in graph.nodes))


def _with_names(node: Node) -> Node:
    if not node.operator.startswith("girih.") or FUNCTION not in node.attributes:
        return node
    try:
        arguments = [(name, import_name(str(item)) if name == FUNCTION else item) for name, item in node.arguments]
    except FunctionError as error:
        raise PlanError(f"the plan cannot be saved: {error} (node {node.name!r}, {node.operator})") from error
    return replace(node, arguments=tuple(arguments))


def from_json(data: PlanFile, trust: bool, where: str) -> Plan:
    """The plan that a file describes, not checked."""
    described = data.machine
    levels = tuple(Level(**_fields(level)) for level in described.levels)
    groups = tuple((Device(**_fields(device)), count) for device, count in described.groups)
    where_to = Machine(described.name, Device(**_fields(described.device)), levels, described.source, groups,
                       None if described.host is None else Tier(**_fields(described.host)))  # fmt: skip
    certificate = {**_fields(data.certificate)}
    for name in ("cost", "bound"):
        certificate[name] = float(certificate[name])
    if data.residency is not None and data.residencies:
        raise PlanError("residency: expected residencies in its place, one for each class of devices, there are both")
    residency = tuple(map(_residency_of, (data.residency,) if data.residency is not None else data.residencies))
    strategy = Strategy(
        where_to.mesh,
        tuple(_sharding(item, f"divisions[{number}]") for number, item in enumerate(data.divisions)),
        {name: _sharding(item, f"layouts[{name[:60]!r}]") for name, item in data.layouts.items()},
    )
    choice = Choice(
        strategy,
        rewrites=tuple(Rewrite(item.rule, item.at, item.before, item.cost) for item in data.rewrites),
        routes=Objective(data.objective, where_to).unit,
        schedule=data.schedule,
        pieces=tuple(InPieces(steps, rows) for rows, steps in data.pieces),
        overlap=Overlap(data.overlap.fetch, data.overlap.store),
        sequence=_sequence(data.sequence),
        residency=residency,
        room=data.memory if residency and data.room is None else data.room,
        micro_batches=data.micro_batches,
    )
    origin = Origin(
        data.model,
        {path: (kind, float(a), float(b)) for path, (kind, a, b) in data.initial.items()},
        {path: float(rate) for path, rate in data.scalars.items()},
        data.ranges,
        data.keys,
        data.constants,
        parse_graph("\n".join(data.undivided)) if data.undivided else None,
    )
    baselines = [
        Costs(item.name, float(item.seconds), item.bytes, item.peak, _number(item.simulated)) for item in data.baselines
    ]
    numbers = _number(data.simulated), _number(data.unlimited), _number(data.memory_bound)
    return Plan(
        parse_graph("\n".join(data.graph)),
        where_to,
        choice,
        Certificate(**certificate),
        Goal(data.search, data.objective, data.memory),
        origin,
        Predicted(*numbers, tuple(baselines), data.notes),
        Scratch.from_json(None if data.scratch is None else msgspec.to_builtins(data.scratch)),
        where,
        trust,
    )


def _sharding(item: tuple[int, ...] | str, key: str) -> Sharding:
    """As text, or as version 2 has it: the codes of solvers.

    Raises:
        PlanError: it is neither.
    """
    try:
        return parse_sharding(item) if isinstance(item, str) else sharding_of(item)
    except ValueError as error:
        raise PlanError(f"{key}: {error}") from error


def _number(item: float | str | None) -> float | None:
    return None if item is None else float(item)


def _fields(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__struct_fields__}


def load(path: str | Path, *, trust: bool = False) -> Plan:
    """Read a plan that `save` wrote; see `girih.plans.plan.load`."""
    where = Path(path)
    with _refused(where):
        result = from_json(read_schema(_text(where), OLDEST, VERSION), trust, str(where))
        check(result)
        if trust:
            _import_all(result.graph)
            _import_all(result.origin.undivided or result.graph)
    return result


def _text(where: Path) -> bytes:
    """The file's text, inflated.

    Raises:
        PlanError: there is none, or more than a plan can have.
    """
    try:
        with where.open("rb") as file:
            start = file.read(2)
            raw = start + file.read(MOST_TEXT)
    except FileNotFoundError:
        raise PlanError(f"there is no file {where}") from None
    except OSError as error:
        raise PlanError(f"{where} cannot be read: {error.strerror or error}") from error
    try:
        text = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MOST_TEXT + 1) if start == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise PlanError(f"{where} is damaged: it cannot be inflated ({error})") from error
    if len(text) > MOST_TEXT:
        raise PlanError(
            f"{where} is no plan: it has more than {MOST_TEXT} bytes of text, the most that a plan can have"
        )
    return text


def _import_all(graph: Graph) -> None:
    """Every function that a trusted file names, and every operator that is not girih's: now, not in a worker."""
    for node in graph.nodes:
        if node.operator.startswith("girih.") and FUNCTION in node.attributes:
            imported(str(node.attributes[FUNCTION]))
        elif not is_safe(node.operator):
            from girih.kernels.evaluate import resolve

            resolve(node.operator)


@contextmanager
def _refused(where: Path) -> Iterator[None]:
    """Whatever is wrong with a file is one line of a PlanError. Attributes that no operator takes break in any way,
    where its description computes with them."""
    try:
        yield
    except PlanError as error:
        message = one_line(error)
        raise PlanError(message if str(where) in message else f"{where}: {message}") from error
    except SchemaError as error:
        raise PlanError(f"{where} {error}") from error
    except (GraphError, FunctionError) as error:
        raise PlanError(f"{where} is damaged: {one_line(error)}") from error
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError) as error:
        raise PlanError(f"{where} is damaged: {type(error).__name__}: {one_line(error)}") from error
    except (RecursionError, MemoryError) as error:
        raise PlanError(f"{where} is damaged: it is nested or sized beyond what can be read") from error
