"""Plan files: JSON with a version. What can be derived again is not in it: programs are lowered on loading."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from girih.graph import format_graph, parse_graph
from girih.lower import Overlap
from girih.machine import Device, Level, Machine
from girih.machine.scratch import Scratch
from girih.partition import Certificate, Strategy
from girih.plans import Costs, Plan, PlanError, check

VERSION = 1


def save(made: Plan, path: str | Path) -> None:
    """Write the plan as JSON (gzipped if the name ends in .gz)."""
    text = json.dumps(to_json(made), indent=1)
    where = Path(path)
    where.parent.mkdir(parents=True, exist_ok=True)
    if where.suffix == ".gz":
        where.write_bytes(gzip.compress(text.encode()))
    else:
        where.write_text(text)


def to_json(made: Plan) -> dict[str, Any]:
    machine_json = {
        "name": made.machine.name,
        "source": made.machine.source,
        "device": vars(made.machine.device),
        "levels": [vars(level) for level in made.machine.levels],
    }
    return {
        "girih plan": VERSION,
        "model": made.model,
        "search": made.search,
        "objective": made.objective,
        "memory": made.memory,
        "machine": machine_json,
        "certificate": vars(made.certificate),
        "simulated": made.simulated,
        "notes": made.notes,
        "baselines": [vars(item) for item in made.baselines],
        "scalars": made.scalars,
        "ranges": made.ranges,
        "overlap": vars(made.overlap),
        "scratch": made.told_scratch.to_json(),
        "keys": made.keys,
        "constants": made.constants,
        "initial": made.initial,
        "layouts": made.strategy.layouts,
        "divisions": made.strategy.divisions,
        "graph": format_graph(made.graph).splitlines(),
    }


def from_json(data: Any, where: str) -> Plan:
    if not isinstance(data, dict) or "girih plan" not in data:
        raise PlanError(f"{where} is no plan: expected JSON with the key 'girih plan'")
    if data["girih plan"] != VERSION:
        raise PlanError(
            f"{where} is a plan of version {data['girih plan']}; this girih reads version {VERSION}: plan it again"
        )
    try:
        described = data["machine"]
        levels = tuple(Level(**{**level, "axes": tuple(level["axes"])}) for level in described["levels"])
        where_to = Machine(described["name"], Device(**described["device"]), levels, described["source"])
        graph = parse_graph("\n".join(data["graph"]))
        strategy = Strategy(
            where_to.mesh,
            tuple(tuple(codes) for codes in data["divisions"]),
            {name: tuple(layout) for name, layout in data["layouts"].items()},
        )
        return Plan(
            graph,
            where_to,
            strategy,
            Certificate(**data["certificate"]),
            data["search"],
            data["objective"],
            data["memory"],
            {path: (kind, a, b) for path, (kind, a, b) in data["initial"].items()},
            data["model"],
            data["scalars"],
            tuple(Costs(**item) for item in data["baselines"]),
            data["ranges"],
            Overlap(**data.get("overlap", {})),  # plans from before there was overlap have none
            keys=data.get("keys"),  # plans from before these have none
            constants=data.get("constants", {}),
            simulated=data.get("simulated"),
            notes=tuple(data.get("notes", ())),
            scratch=Scratch.from_json(data.get("scratch")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"{where} is damaged: {error}") from error


def load(path: str | Path) -> Plan:
    """Read a plan that `save` wrote.

    Raises:
        PlanError: if there is no such file, or it is no plan, of another version, or damaged.
    """
    where = Path(path)
    try:
        raw = where.read_bytes()
        text = gzip.decompress(raw).decode() if raw[:2] == b"\x1f\x8b" else raw.decode()
        data = json.loads(text)
    except FileNotFoundError as error:
        raise PlanError(f"there is no file {where}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise PlanError(f"{where} is no plan: {error}") from error
    made = from_json(data, str(where))
    check(made)
    return made
