"""`plan.export("fx")`: a plan as FX graphs, and as one file that PyTorch runs without girih.

The file has a function for each class of ranks that do the same, with ATen operators and functional collectives as
`girih.run.export.record` has written them down; tables that say which part of what a rank has; and a page of code that
forms the process groups and takes a step (`program_page.txt`). Numbers in which ranks of a class differ, such as where
a cut begins, are in a table. The state that a run begins with lies beside it, as `torch.save` writes it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import Any

import torch
from torch.fx import GraphModule, Node

from girih.capture.scaled_step import SCALE
from girih.capture.torch.own_update import NUMBERS
from girih.plans.plan import Plan, PlanError
from girih.program import BlockStep, MoveStep
from girih.run.export.record import Recorded, ranks_of, recorded
from girih.run.training.checkpoint import CheckpointReader, read_manifest
from girih.run.training.training import ROLES, check_state
from girih.run.worker.initial import key_of, make
from girih.run.worker.parts import Tensor, box_of, reporters

PAGE = Path(__file__).with_name("program_page.txt")


def check_exportable(plan: Plan) -> None:
    """Raises PlanError for a plan that needs girih's own engine; it names what of it does."""
    program = plan.program
    if program.host or any(isinstance(step, MoveStep) for step in program.steps):
        raise PlanError(
            "the plan moves tensors to a large memory and back, which girih's own workers do: export a plan without "
            "memory=, or with hold='recompute'"
        )
    if any(isinstance(step, BlockStep) for step in program.steps) or program.streamed or program.files:
        raise PlanError(
            "the plan computes steps piece by piece, which girih's own workers do: export a plan without memory=, or "
            "for more devices"
        )
    for item in plan.graph.inputs:
        if item.role == "scalar" and (item.path == SCALE or item.path.startswith(NUMBERS)):
            raise PlanError(
                f"the plan takes {item.path!r} anew at each step from code beside it (a GradScaler, or an optimizer of "
                "your own): export a plan of a step without it"
            )


@dataclass(frozen=True, eq=False)
class FxExport:
    """A plan as FX graphs: `export.module(rank)`, `export.save("step.py")`; `print(export)` shows the file.

    ranks: each rank's graph. device: for which they are, `cpu` or `cuda`.
    """

    plan: Plan
    ranks: tuple[Recorded, ...]
    device: str

    def module(self, rank: int, groups: Mapping[tuple[int, ...], str]) -> GraphModule:
        """One rank's graph as a module: it takes the inputs in the graph's order and gives the outputs by name.

        groups: by the ranks of a process group its name (`group.group_name`); `groups_needed` lists them.
        """
        graph = torch.fx.Graph()
        known: dict[Node, Node] = {}
        for node in self.ranks[rank].graph.nodes:
            known[node] = graph.node_copy(node, known.__getitem__)

        def named(item: Any) -> Any:
            if (ranks := ranks_of(item)) is not None:
                return groups[ranks]
            return torch.device(self.device) if isinstance(item, torch.device) else item

        for node in graph.nodes:
            node.args = torch.fx.node.map_aggregate(node.args, named)
        return GraphModule(torch.nn.Module(), graph)

    @cached_property
    def groups_needed(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each process group, in the order in which all ranks form them."""
        every = {ranks_of(item) for own in self.ranks for node in own.graph.nodes for item in _leaves(node.args)}
        return tuple(sorted(ranks for ranks in every if ranks is not None))

    def save(self, path: str | Path, *, resume: str | Path | None = None, seed: int = 0) -> None:
        """Write the program, a file of Python, and beside it, with the ending `.pt`, the state that it begins with.

        The state is the planned model's and optimizer's as they are now; of a plan that was read from a file, as its
        recipes make it. resume: a checkpoint of girih, whose state it is instead. seed: of recipes, and of random
        numbers.

        Raises:
            PlanError: the name does not end in .py, the folder is not there, or a tensor has no value.
        """
        path = Path(path)
        if path.suffix != ".py":
            raise PlanError(f"{path}: the program is a file of Python: expected a name that ends in .py")
        if not path.absolute().parent.is_dir():
            raise PlanError(f"{path.parent} is no folder: make it first")
        tensors, step, seed = initial_state(self.plan, resume, seed)
        torch.save({"tensors": tensors, "step": step, "seed": seed}, path.with_suffix(".pt"))
        path.write_text(str(self), encoding="utf-8")

    def __str__(self) -> str:
        return "\n\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        classes = _classes(self.ranks)
        count = len(self.ranks)
        yield _head(self.plan, count)
        yield f'RANKS = {count}\nDEVICE = "{self.device}"\nBYTES = {int(self.plan.bytes_received.sum())}'
        yield _tables(self.plan)
        numbers: dict[int, tuple[int, ...]] = {}
        groups: dict[int, tuple[tuple[int, ...], ...]] = {}
        class_of = [0] * count
        for number, members in enumerate(classes):
            text, own_numbers, own_groups = _function(f"class_{number}", {rank: self.ranks[rank] for rank in members})
            numbers |= own_numbers
            groups |= own_groups
            for rank in members:
                class_of[rank] = number
            yield text
        steps = ", ".join(f"class_{number}" for number in range(len(classes)))
        rows = [f"STEPS = ({steps},)", f"CLASS_OF = {tuple(class_of)}  # of each rank"]
        for name, table in (("NUMBERS", numbers), ("GROUPS", groups)):
            lines = "".join(f"    {table[rank]},\n" for rank in range(count))
            rows.append(f"{name} = (  # of each rank\n{lines})")
        yield "\n".join(rows)
        yield PAGE.read_text(encoding="utf-8").rstrip("\n") + "\n"


def export_fx(plan: Plan, device: str | None = None) -> FxExport:
    """A plan as FX graphs; see `girih.api.Plan.export`.

    Raises:
        PlanError: the plan needs girih's own engine, or an operator a kernel of girih's own.
    """
    device = device or ("cuda" if plan.machine.on_gpus else "cpu")
    if device not in ("cpu", "cuda"):
        raise PlanError(f"no device {device!r}: expected cpu or cuda, on which each rank has its own")
    check_exportable(plan)
    where = torch.device(device)
    return FxExport(plan, tuple(recorded(plan.program, rank, where) for rank in range(plan.machine.devices)), device)


def initial_state(plan: Plan, resume: str | Path | None, seed: int) -> tuple[dict[str, Tensor], int, int]:
    """The state that a run begins with, whole, by path; the steps done before; and the seed.

    Raises:
        PlanError: a tensor has no value.
    """
    if resume is not None:
        manifest = read_manifest(resume)
        with CheckpointReader(resume, manifest) as reader:
            tensors = {path: reader.tensor(path) for path in manifest.entries}
        return check_state(plan, tensors), manifest.step, manifest.seed
    tensors = check_state(plan, plan.origin.state()) if plan.origin.state is not None else {}
    for item in plan.graph.state_inputs:
        path, value = key_of(item), plan.graph.values[item.name]
        if path not in tensors:
            if path not in plan.origin.initial:
                raise PlanError(
                    f"{item.role} {path!r} has no value: export the plan where it was made, or give resume="
                )
            kind, a, b = plan.origin.initial[path]
            whole = tuple((0, extent) for extent in value.shape)
            tensors[path] = make(_Recipe(kind, a, b), path, value.shape, value.dtype, whole, seed, "cpu")
    return {path: tensor.detach().cpu().clone() for path, tensor in tensors.items()}, 0, seed


@dataclass(frozen=True)
class _Recipe:
    kind: str
    a: float
    b: float


# ------------------------------------------------------------------------------------------------- classes of ranks


def _leaves(argument: Any) -> Iterator[Any]:
    if isinstance(argument, (tuple, list)):
        for item in argument:
            yield from _leaves(item)
    elif isinstance(argument, Mapping):
        for item in argument.values():
            yield from _leaves(item)
    else:
        yield argument


def _outline(own: Recorded) -> str:
    """What a rank does, without the numbers and groups in which ranks that do the same may differ."""
    place = {node: number for number, node in enumerate(own.graph.nodes)}

    def word(item: Any) -> str:
        if isinstance(item, (tuple, list)):
            return f"[{','.join(map(word, item))}]"
        if isinstance(item, Mapping):
            return f"[{','.join(f'{key}={word(part)}' for key, part in item.items())}]"
        if isinstance(item, Node):
            return f"%{place[item]}"
        if ranks_of(item) is not None:
            return "@"
        return "#" if type(item) is int else repr(item)

    return "\n".join(f"{node.op} {node.target} {word(node.args)} {word(node.kwargs)}" for node in own.graph.nodes)


def _classes(ranks: tuple[Recorded, ...]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for rank, own in enumerate(ranks):
        found.setdefault(_outline(own), []).append(rank)
    return list(found.values())


# ------------------------------------------------------------------------------------------------- the text of a class


def _function(
    name: str, members: Mapping[int, Recorded]
) -> tuple[str, dict[int, tuple[int, ...]], dict[int, tuple[tuple[int, ...], ...]]]:
    """The function of a class of ranks, and for each rank the numbers and the groups that are its own."""
    ranks = list(members)
    every = [list(_leaves([(node.args, node.kwargs) for node in own.graph.nodes])) for own in members.values()]
    columns = iter(zip(*every, strict=True))
    numbers: dict[tuple[int, ...], int] = {}
    groups: dict[tuple[str, ...], int] = {}

    def write(item: Any) -> str:
        if isinstance(item, (tuple, list)):
            return f"[{', '.join(map(write, item))}]"
        if isinstance(item, Mapping):
            return f"{{{', '.join(f'{key!r}: {write(part)}' for key, part in item.items())}}}"
        column = next(columns)
        if ranks_of(item) is not None:
            return f"group[{groups.setdefault(column, len(groups))}]"
        if type(item) is int and len(set(column)) > 1:
            return f"at[{numbers.setdefault(column, len(numbers))}]"
        return _word(item)

    first = members[ranks[0]]
    last = {used: node for node in first.graph.nodes for used in node.all_input_nodes}
    lines = []
    for node in first.graph.nodes:
        if node in first.comments:
            lines.append(f"# {first.comments[node]}")
        if node.op == "placeholder":
            lines.append(f"{node.name} = inputs[{node.meta['input']!r}]")
            continue
        if node.op == "output":
            lines.append(f"return {write(node.args[0])}")
            continue
        arguments = [write(item) for item in node.args]
        arguments += [f"{key}={write(item)}" for key, item in node.kwargs.items()]
        if node.target is operator.getitem:
            call = f"{arguments[0]}[{arguments[1]}]"
        elif node.target is torch.tensor:
            call = f"torch.tensor({', '.join(arguments)}, device=device)"
        else:
            call = f"{str(node.target).replace('_c10d_functional.', 'c10d.')}({', '.join(arguments)})"
        lines.append(f"{node.name} = {call}" if node.users else call)
        if gone := [used.name for used in node.all_input_nodes if last[used] is node]:
            lines.append(f"del {', '.join(gone)}")
    words = f"ranks {', '.join(map(str, ranks))}" if len(ranks) > 1 else f"rank {ranks[0]}"
    body = indent("\n".join(lines), " " * 8)
    text = (
        f'def {name}(at, group, device):\n    """What {words} compute{"" if len(ranks) > 1 else "s"} in a step."""\n\n'
        f"    def step(inputs):\n{body}\n\n    return step"
    )
    own_numbers = {rank: tuple(column[place] for column in numbers) for place, rank in enumerate(ranks)}
    own_groups = {rank: tuple(ranks_of(column[place]) or () for column in groups) for place, rank in enumerate(ranks)}
    return text, own_numbers, own_groups


def _word(item: Any) -> str:
    """An argument as Python writes it in the file."""
    if isinstance(item, Node):
        return str(item.name)
    if isinstance(item, torch.device):
        return "device"
    if isinstance(item, float) and not math.isfinite(item):
        return f'float("{item}")'
    return str(repr(item))


# ------------------------------------------------------------------------------------------------- around it


def _head(plan: Plan, ranks: int) -> str:
    about = plan.origin.model or "A program"
    return f'''"""{about}, laid out over {ranks} ranks: a file that PyTorch runs by itself.

    torchrun --nproc-per-node {ranks} THIS_FILE.py --steps 3

From Python, on every rank: `program = Program(); loss = program.step(x, y); program.save("state.pt")`, with the whole
batch on each. Beside this file lies the state that the program begins with (`.pt`). girih has written both, and neither
is needed nor asked for here. Comments say which step of the plan the calls below them are.
"""

import argparse
import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives
from torch.utils._python_dispatch import TorchDispatchMode

aten, c10d = torch.ops.aten, torch.ops._c10d_functional'''


def _tables(plan: Plan) -> str:
    program, graph = plan.program, plan.graph
    inputs, parts = [], {}
    for item in graph.inputs:
        value = graph.values[item.name]
        each = tuple(box_of(program, item.name, rank) for rank in range(plan.machine.devices))
        own = each[:1] if len(set(each)) == 1 else each
        inputs.append((item.name, item.role, key_of(item), value.dtype, value.shape, own))
    kept = [item.name for item in graph.state_inputs]
    for name in [*kept, *(output.name for output in graph.outputs if output.replaces is None)]:
        value = graph.values[name]
        summed = bool(program.strategy.layouts[name].partial_axes)
        boxes = {rank: box_of(program, name, rank) for rank in range(plan.machine.devices)}
        everywhere = not summed and set(boxes.values()) == {tuple((0, extent) for extent in value.shape)}
        held = None if everywhere else {rank: boxes[rank] for rank in reporters(program, name)}
        parts[name] = value.dtype, value.shape, summed, held
    paths = [item.path for item in graph.inputs if item.role in ("parameter", "buffer")]
    keys = dict(plan.origin.keys) if plan.origin.keys is not None else {path: path for path in paths}
    scalars = {key_of(item): 0.0 for item in graph.inputs if item.role == "scalar"} | dict(plan.origin.scalars)
    batch = [item.path for item in graph.inputs if item.role == "batch"]
    outputs = [(output.name, output.role, output.replaces) for output in graph.outputs]
    return "\n".join([
        _rows("INPUTS", inputs, "name, role, path, dtype, shape, and the part of each rank, or one that all have"),
        _rows("OUTPUTS", outputs, "name, role, and the name of the input that it replaces"),
        _rows("PARTS", parts, "dtype, shape, are parts added up, and by rank its part; None: all have all of it"),
        _rows("KEYS", keys, "of the module's state_dict, and the paths"),
        f"STATE = {ROLES}",
        f"RATES = {scalars}  # learning rates",
        f"CONSTANTS = {dict(plan.origin.constants)}  # what else a batch had",
        f"RANGES = {dict(plan.origin.ranges)}  # of numbers in a batch, for a random one",
        f"BARE = {batch == ['']}  # the batch is one tensor",
    ])  # fmt: skip


def _rows(name: str, items: Any, about: str) -> str:
    if isinstance(items, dict):
        return f"{name} = {{  # {about}\n" + "".join(f"    {key!r}: {item!r},\n" for key, item in items.items()) + "}"
    return f"{name} = (  # {about}\n" + "".join(f"    {item!r},\n" for item in items) + ")"
