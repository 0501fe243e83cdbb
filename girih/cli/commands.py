"""What each command of the command line does. Functions from parsed options to an exit code."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.table import Table

from girih.api import Plan, check_choices, check_exact, load, plan_graph, rewritten_program
from girih.cli import captured
from girih.cli.arguments import did_you_mean
from girih.cli.checkpoints import checkpoint
from girih.cli.programs import batch_of, exactly, in_micro_batches, in_precision, is_file, program
from girih.cli.terminal import BadInputError, FailedRunError, TerminalProgress, check_output, clear_errors, print_rows
from girih.cli.terminal import show as show_table
from girih.machine import Machine, MachineError, machine, presets
from girih.machine.units import format_bytes, format_count, format_gap, format_seconds
from girih.partition.search import Search
from girih.plans.check import check
from girih.plans.inputs import Program, program_of
from girih.report.tables import operators_table, summary, tensors_table, times_of
from girih.search.table import BASELINES, HOLDS, SEARCHES, class_of, options_of, search_of

__all__ = ["BadInputError", "FailedRunError", "checkpoint"]


def models(options: argparse.Namespace) -> int:
    from girih.models import names

    if options.name:
        with clear_errors():
            named = program(options.name)
        parameters = sum(item.numel() for item in named.step.model.parameters())
        tensors = {path: f"{item.dtype}{list(item.shape)}" for path, item in batch_of(named).items()}
        if options.json:
            print(json.dumps({"name": options.name, "parameters": parameters, "batch": tensors}))
        else:
            print(f"{options.name}: {format_count(parameters)} parameters; batch {tensors}")
        return 0
    families = names()
    if options.json:
        print(json.dumps([{"name": item.name, "pattern": item.pattern, "examples": list(item.examples),
                           "description": item.description, "source": item.source} for item in families]))  # fmt: skip
        return 0
    table = Table("model", "examples", "what it is", "source", box=None, pad_edge=False)
    for item in families:
        table.add_row(item.pattern, ", ".join(item.examples), item.description, item.source)
    show_table(table)
    print("or file.py:function that returns a girih.TrainingStep and a batch")
    return 0


def machines(options: argparse.Namespace) -> int:
    with clear_errors():
        listed = [_machine(options.name)] if options.name else [machine("local:4"), machine("2x4"), *presets().values()]
    if options.json:
        print(json.dumps([{"name": item.name, "devices": item.devices, "mesh": item.mesh.sizes,
                           "device": vars(item.device), "levels": [vars(level) for level in item.levels],
                           "source": item.source} for item in listed]))  # fmt: skip
        return 0
    rows = [("machine", "devices", "memory", "FLOP/s", "links")]
    for item in listed:
        links = ", ".join(f"{level.name} {format_bytes(level.bytes_per_second)}/s" for level in item.levels)
        memory = format_bytes(item.device.memory_bytes)
        rows.append((item.name, item.described_devices, memory, format_count(item.device.flops_per_second), links))
    print_rows(rows)
    if options.name:
        print(f"mesh {listed[0].mesh}; {listed[0].source}")
    print("forms: local:N (processes of this host), cuda:N (its GPUs), HOSTSxDEVICES such as 2x4, or a name")
    if not options.name:
        print("`girih machines NAME` shows one with its mesh and the source of its numbers")
    return 0


def searches(options: argparse.Namespace) -> int:
    known = [class_of("search", item) for item in SEARCHES]
    if options.json:
        print(json.dumps([{"name": item.name, "objectives": item.objectives, "options": list(options_of(item)),
                           "summary": item.summary()} for item in known]))  # fmt: skip
        return 0
    rows = [("search", "objectives", "options", "what it does")]
    rows += [(item.name, ", ".join(item.objectives), ", ".join(options_of(item)), item.summary()) for item in known]
    print_rows(rows)
    return 0


def holds(options: argparse.Namespace) -> int:
    known = [class_of("baseline", item) for item in BASELINES]
    rows = [(name, "", what) for name, what in HOLDS.items()]
    rows += [(item.name, ", ".join(f"{option.name}={option.default}" for option in fields(item)), item.summary())
             for item in known]  # fmt: skip
    if options.json:
        print(json.dumps([{"name": name, "options": text, "summary": what} for name, text, what in rows]))
        return 0
    print_rows([("hold", "options", "what it does where a memory limit is too small"), *rows])
    return 0


def _machine(name: str) -> Machine:
    """A machine by name; for one that is not known, what may have been meant."""
    try:
        return machine(name)
    except MachineError as error:
        base = name.partition(":")[0]
        near = "" if base in presets() else did_you_mean(base, presets())
        if not near:
            raise
        raise MachineError(f"no machine {name!r}{near} `girih machines` lists all") from error


def rewrite(options: argparse.Namespace) -> int:
    from girih.cli import rewrite as actions

    return int(getattr(actions, options.action)(options))


def gnn(options: argparse.Namespace) -> int:
    from girih.cli import graphs

    return graphs.gnn(options)


def plan(options: argparse.Namespace) -> int:
    check_output(options.output)
    with clear_errors(), TerminalProgress() as progress:
        goal = _machine(options.machine)
        progress("model", 0.0)
        ways: dict[str, Any] = {
            "machine": goal,
            "memory": options.memory,
            "search": _search(options),
            "objective": options.objective,
            "compare": () if options.no_compare else None,
            "store": _store(options),
            "hold": options.hold,
            "order": options.order,
            "observe": progress,
        }
        check_choices(**{name: value for name, value in ways.items() if name != "observe"})
        if options.exact:
            check_exact(goal, options.rewrite)
        own = _program(options, progress)
        if options.rewrite:
            progress("rewrite", 0.0)
            own = rewritten_program(own, goal)
        result = own.in_plan(plan_graph(own.graph, **ways))
        check(result)
        if options.output:
            result.save(options.output)
    if options.json:
        print(json.dumps(_numbers(result)))
    else:
        show_table(summary(result))
        if options.output:
            print(f"plan written to {options.output}")
    return 0


def _search(options: argparse.Namespace) -> Search | None:
    """The search that is asked for, by its name or its seconds; None where the objective says it."""
    if options.search is None and options.seconds is None:
        return None
    return search_of(options.search or "exact", options.seconds)


def _program(options: argparse.Namespace, progress: TerminalProgress) -> Program:
    """The captured program that is asked for; of a model by name as it was captured before."""
    by_name = not is_file(options.model) and not options.exact
    kept = captured.file_of(options.model, options.batch, options.optimizer, options.micro_batches, options.precision)
    if by_name and not options.fresh and (known := captured.load(kept)) is not None:
        return known
    named = in_micro_batches(program(options.model, options.batch, options.optimizer), options.micro_batches)
    named = in_precision(named, options.precision)
    if options.exact:
        named = exactly(named)
    progress("capture", 0.0)
    captured_program = program_of(named.step, named.batch, named.name)
    if by_name:
        captured.save(kept, captured_program)
    return captured_program


def _numbers(item: Plan) -> dict[str, Any]:
    return {
        "model": item.origin.model,
        "machine": item.machine.name,
        "search": item.search,
        "objective": item.objective,
        "nodes": len(item.graph.nodes),
        "cost": item.certificate.cost,
        "bound": item.certificate.bound,
        "gap": None if item.gap == float("inf") else item.gap,
        "how": item.certificate.how,
        "stopped": item.certificate.stopped,
        "bytes": int(item.bytes_received.sum()),
        "seconds": item.costs.seconds,
        "simulated": item.costs.simulated,
        "peak": [use.peak for use in item.memory_by_device],
        "peak_is": item.told_scratch.words,
        "state": [use.state for use in item.memory_by_device],
        "memory": item.memory,
        "baselines": [vars(other) for other in item.baselines],
        "statistics": item.certificate.statistics,
        "notes": item.notes,
    }


def show(options: argparse.Namespace) -> int:
    from girih.report.memory import memory_numbers, memory_table

    other = next((name for name in ("tensors", "operators", "choice", "graph") if getattr(options, name)), None)
    if options.device is not None and other:
        raise BadInputError(f"--device is for instructions, and with --memory for storages: leave it, or --{other}")
    with clear_errors():
        item = load(options.plan, trust=options.trust)
    if options.device is not None and not 0 <= options.device < item.machine.devices:
        raise BadInputError(f"no device {options.device}: the plan has devices 0 to {item.machine.devices - 1}")
    if options.json:
        numbers = _numbers(item)
        if options.tensors:
            numbers["tensors"] = {name: str(layout) for name, layout in item.strategy.layouts.items()}
        if options.memory:
            numbers["over_time"] = memory_numbers(item, options.device or 0)
        print(json.dumps(numbers))
    elif options.memory:
        show_table(memory_table(item, options.device or 0))
    elif options.tensors:
        show_table(tensors_table(item))
    elif options.operators:
        show_table(operators_table(item))
    elif options.choice:
        print(item.choice)
    elif options.graph:
        print(item.graph)
    elif options.device is not None:
        from girih.report.instructions import instructions

        for line in instructions(item.program, options.device):
            print(line)
    else:
        show_table(summary(item))
    return 0


def run(options: argparse.Namespace) -> int:
    from girih.cli.running import check_options, run_plan

    check_options(options)
    with clear_errors():
        item = load(options.plan, trust=options.trust)
        with TerminalProgress() as progress:
            return run_plan(item, options, progress)


def compare(options: argparse.Namespace) -> int:
    if options.as_parallelized:
        return _as_parallelized(options)
    for name in ("machine", "objective", "seconds", "output", "store"):
        if getattr(options, name) is not None:
            raise BadInputError(f"--{name} is for --as-parallelized: plans are compared as they were made")
    with clear_errors():
        items = [load(path, trust=options.trust) for path in options.plans]
    if options.json:
        print(json.dumps([{"plan": path, **_numbers(item)} for path, item in zip(options.plans, items, strict=True)]))
        return 0
    show_table(_side_by_side(options.plans, items))
    return 0


def _as_parallelized(options: argparse.Namespace) -> int:
    from girih.cli.parallelized import compared, said

    check_output(options.output)
    options.machine, options.objective = options.machine or "local:2", options.objective or "time"
    options.seconds = options.seconds or 60.0
    with clear_errors(), TerminalProgress() as progress:
        items = compared(options, _store(options), progress)
        if options.output:
            items[1].save(options.output)
    if options.json:
        names = ("as parallelized", "girih's")
        print(json.dumps([{"plan": name, **_numbers(item)} for name, item in zip(names, items, strict=True)]))
        return 0
    show_table(_side_by_side(("as parallelized", "girih's"), items))
    print(said(*items))
    for note in items[0].notes:
        print(note)
    if options.output:
        print(f"girih's plan written to {options.output}")
    return 0


def _side_by_side(names: Sequence[str], items: Sequence[Plan]) -> Table:
    """Plans by these names in a table; ratios are to the first one."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    how, times = times_of([item.costs for item in items])
    for name in ("plan", "model", "machine", "search", "bytes moved", "×", "peak of a device", "×", how, "×", "gap"):
        table.add_column(name)
    first = items[0].costs
    for path, item, took in zip(names, items, times, strict=True):
        own = item.costs
        ratios = [f"{a / b:.2f}" if b else "-" for a, b in
                  ((own.bytes, first.bytes), (own.peak, first.peak), (took, times[0]))]  # fmt: skip
        table.add_row(
            path, item.origin.model, str(item.machine.name), item.search, format_bytes(own.bytes), ratios[0],
            format_bytes(own.peak), ratios[1], format_seconds(took), ratios[2], format_gap(item.gap),
        )  # fmt: skip
    return table


def _store(options: argparse.Namespace) -> Path | None:
    from girih.cli.predicting import store_path

    return store_path(options.store)


def calibrate(options: argparse.Namespace) -> int:
    from girih.cli.predicting import calibrate_machine

    check_output(options.store)
    with clear_errors(), TerminalProgress() as progress:
        numbers, lines = calibrate_machine(options, progress)
    print(json.dumps(numbers) if options.json else "\n".join(lines))
    return 0


def optimize(options: argparse.Namespace) -> int:
    from girih.cli.optimizing import optimize_program

    check_output(options.output)
    check_output(options.store)
    with clear_errors(), TerminalProgress() as progress:
        numbers, lines = optimize_program(options, progress)
    print(json.dumps(numbers) if options.json else "\n".join(lines))
    return 0


def simulate(options: argparse.Namespace) -> int:
    from girih.cli.predicting import predicted, simulation_numbers, simulation_table

    with clear_errors(), TerminalProgress() as progress:
        item = load(options.plan, trust=options.trust)
        progress("simulate", 0.0)
        prediction = predicted(item, options)
    if options.json:
        print(json.dumps(simulation_numbers(item, prediction)))
    else:
        for part in simulation_table(item, prediction):
            show_table(part)
    return 0


def report(options: argparse.Namespace) -> int:
    from girih.cli.predicting import measured_steps, predicted, store_path
    from girih.report.page import MissingLibraryError, write_page
    from girih.report.page.assemble import scripts
    from girih.search.compare import simulated_alternatives

    check_output(options.output)
    try:
        scripts()
    except MissingLibraryError as error:
        raise BadInputError(str(error)) from error
    with clear_errors(), TerminalProgress() as progress:
        item = load(options.plan, trust=options.trust)
        progress("simulate", 0.0)
        prediction = predicted(item, options)
        progress("simulate the alternatives", 0.3)
        others = simulated_alternatives(item, machine=options.machine, store=store_path(options.store))
        measured = measured_steps(item, progress) if options.measure else None
        progress("page", 0.9)
        path = write_page(options.output, item, prediction.timeline, measured=measured, others=others)
    _written(options, path)
    return 0


def trace(options: argparse.Namespace) -> int:
    from girih.cli.predicting import measured_steps, predicted
    from girih.report.trace import write_trace

    check_output(options.output)
    with clear_errors(), TerminalProgress() as progress:
        item = load(options.plan, trust=options.trust)
        progress("simulate", 0.0)
        timeline = measured_steps(item, progress) if options.measure else predicted(item, options).timeline
        path = write_trace(options.output, timeline, item)
    _written(options, path)
    return 0


def export(options: argparse.Namespace) -> int:
    from girih.run.export.dtensor import export_dtensor
    from girih.run.export.fx import export_fx

    check_output(options.output)
    with clear_errors(), TerminalProgress() as progress:
        progress("export", 0.0)
        plan = load(options.plan, trust=options.trust)
        if options.to == "dtensor":
            placements = export_dtensor(plan)
            placements.save(options.output)
        else:
            export_fx(plan, options.device).save(options.output, resume=options.resume, seed=options.seed)
    size = Path(options.output).stat().st_size
    if options.json:
        print(json.dumps({"file": options.output, "bytes": size, "ranks": plan.machine.devices}))
    elif options.to == "dtensor":
        print(placements)
    else:
        state = Path(options.output).with_suffix(".pt")
        print(f"{options.output} written ({format_bytes(size)}), its state in {state}")
        print(f"run it with: torchrun --nproc-per-node {plan.machine.devices} {options.output}")
    return 0


def _written(options: argparse.Namespace, path: Path) -> None:
    size = path.stat().st_size
    print(json.dumps({"path": str(path), "bytes": size}) if options.json else f"{path}: {format_bytes(size)}")


def ops(options: argparse.Namespace) -> int:
    from girih.ops import description_of
    from girih.ops.coverage import count, standard

    rows = list(standard())
    with clear_errors():
        if options.models:
            from girih.capture import capture
        # All of them are there, before any is captured.
        for model, named in [(model, program(model)) for model in options.models]:
            graph = capture(named.step, named.batch).graph
            rows.append(count(model, [(node.operator, description_of(graph, node)) for node in graph.nodes]))
    if options.json:
        print(json.dumps([{**vars(row), "described": row.described, "total": row.total} for row in rows]))
        return 0
    table = Table("operators", "described", "element-wise", "with reductions", "opaque", "others", box=None)
    for row in rows:
        table.add_row(
            row.title,
            f"{row.described} of {row.total} ({row.described / max(row.total, 1):.1%})",
            str(len(row.elementwise)),
            str(len(row.reducing)),
            str(len(row.opaque)),
            str(len(row.plain)),
        )
    show_table(table)
    for row in rows:
        if row.undescribed:
            print(f"not described of {row.title}: {', '.join(row.undescribed)}")
    return 0
