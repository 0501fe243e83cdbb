"""What a worker would do in one step, as an FX graph of ATen operators and functional collectives.

The worker's own instructions (`girih.run.worker`) run once on fake tensors, and every operator that they call is
written down: its cuts, pads and kernels, those of girih's own operators too as far as they are calls of PyTorch. So the
exported program is the Program that the worker runs, and there is no second translation of operators. An exchange is
written as the collective that it is, or as an `all_to_all_single` among those who have messages for each other.
"""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.fx import Graph, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from girih.kernels.evaluate import resolve
from girih.kernels.products import PRODUCTS
from girih.plans.plan import PlanError
from girih.program import ComputeStep, FreeStep, Message, Program, StartStep, TransferStep
from girih.program.life.accounts import taken_over
from girih.program.steps import Step
from girih.run.transport.transport import Messages, NoTransport
from girih.run.worker.compute import Compute, compile_compute
from girih.run.worker.parts import Box, Tensor, box_of, held_box, narrow, relative, shape_of
from girih.run.worker.transfers import Transfer

REDUCERS = {"sum": "sum", "max": "max", "min": "min", "prod": "product"}
"""What PyTorch's collectives call the ways in which contributions are combined."""


MOST_NUMBERS = 64
"""Elements of a constant of a kernel, which is written out."""


GROUP = "ranks "


def group_of(ranks: tuple[int, ...]) -> str:
    """What stands in a graph for the name of the process group of these ranks, which is known when they have met."""
    return GROUP + ",".join(map(str, ranks))


def ranks_of(argument: Any) -> tuple[int, ...] | None:
    """The ranks of the group for which an argument stands; None of any other argument."""
    if isinstance(argument, str) and argument.startswith(GROUP):
        return tuple(map(int, argument.removeprefix(GROUP).split(",")))
    return None


@dataclass
class Recorded:
    """One rank's graph. comments: by node before which it stands, what step of the program begins there."""

    graph: Graph = field(default_factory=Graph)
    comments: dict[Node, str] = field(default_factory=dict)


class Recorder(TorchDispatchMode):
    """Writes every operator that is called into a graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self._known: dict[int, tuple[Tensor, Node]] = {}  # by identity; the tensor is kept, so that it stays its own

    def learn(self, tensor: Tensor, node: Node) -> None:
        self._known[id(tensor)] = tensor, node

    def node_of(self, tensor: Tensor) -> Node:
        if id(tensor) not in self._known:
            if isinstance(tensor, FakeTensor) or tensor.numel() > MOST_NUMBERS:
                raise LookupError(f"a constant of {tensor.numel()} numbers")
            with unset_fake_temporarily():
                numbers = tensor.tolist()
            self.learn(tensor, self.graph.call_function(torch.tensor, (numbers,), {"dtype": tensor.dtype}))
        return self._known[id(tensor)][1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = partial(tree_map, lambda item: self.node_of(item) if isinstance(item, torch.Tensor) else item)
        arguments, options = known(args), known(kwargs)
        made = func(*args, **kwargs)
        if func.namespace == "prim":  # asks for what is known
            return made
        if func is torch.ops.aten.detach.default:  # there are no gradients to be detached from
            self.learn(made, self.node_of(args[0]))
            return made
        node = self.graph.call_function(func, tuple(arguments), options)
        if isinstance(made, torch.Tensor):
            self.learn(made, node)
        elif isinstance(made, (tuple, list)):
            for number, item in enumerate(made):
                if isinstance(item, torch.Tensor):
                    self.learn(item, self.graph.call_function(operator.getitem, (node, number)))
        return made


class CollectiveTransport(NoTransport):
    """Messages of one exchange as one `all_to_all_single` among those who have any for each other."""

    packs = False

    def __init__(self, device: Any) -> None:
        super().__init__()
        self._device = device
        self.members: tuple[int, ...] = ()
        self.dtype: Any = None

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        members = self.members  # by the time of the wait, another exchange may have begun
        if not members:
            return lambda: None
        out = [item.reshape(-1) for peer in members for to, item in sends if to == peer]
        sizes = [[sum(item.numel() for to, item in every if to == peer) for peer in members]
                 for every in (receives, sends)]  # fmt: skip
        flat = torch.cat(out) if out else torch.empty(0, dtype=self.dtype, device=self._device)
        arriving = torch.ops._c10d_functional.all_to_all_single(flat, *sizes, group_of(members))

        def wait() -> None:
            came = torch.ops._c10d_functional.wait_tensor(arriving)
            at = 0
            for peer in members:
                for source, into in receives:
                    if source == peer:
                        into.copy_(came.narrow(0, at, into.numel()).view(into.shape))
                        at += into.numel()

        return wait


def together(messages: tuple[Message, ...], rank: int) -> tuple[int, ...]:
    """The devices, this one among them, that messages tie to each other; () where it neither sends nor receives."""
    found, before = {rank}, 0
    while len(found) > before:
        before = len(found)
        for message in messages:
            if message.source in found or message.target in found:
                found |= {message.source, message.target}
    return tuple(sorted(found)) if len(found) > 1 else ()


@dataclass(frozen=True)
class Collective:
    """A transfer as one of PyTorch's collectives, for one rank: what starts it, of the source's part, and what waits
    for it, of what the start has made."""

    start: Callable[[Tensor], Tensor]
    finish: Callable[[Tensor], Tensor]


def collective_of(program: Program, step: TransferStep, rank: int) -> Collective | None:
    """The collective that a transfer is among the devices that messages tie to this one; None where it is none.

    An all-gather: each sends one box to all others, all boxes are alike, and side by side they are what each keeps. A
    reduce-scatter: each holds a contribution to what all keep, in equal boxes. An all-reduce in one hop among two;
    where more are summed in one hop, everyone gets every contribution, which is more than PyTorch's all-reduce moves.
    """
    swap = program.exchange_of(step)
    remote = tuple(message for message in swap.messages if message.source != message.target)
    members = together(remote, rank)
    if not members:
        return None
    mine = [message for message in swap.messages if message.target in members]
    goals = {member: held_box(program, step.target, step.after, member) for member in members}
    held = held_box(program, step.source, step.before, rank)
    size, group, ops = len(members), group_of(members), torch.ops._c10d_functional
    scalar = not program.graph.values[step.value].shape
    pairs = {(message.source, message.target): () if scalar else message.box for message in mine}
    if len(pairs) != size * size or len(mine) != size * size:
        return None
    alike = len({shape_of(box) for box in pairs.values()}) == 1
    if not alike:
        return None
    if swap.terms == size and step.reducer in REDUCERS:
        if any(pairs[source, target] != goals[target] for source, target in pairs):
            return None
        cuts = [relative(goals[member], held) for member in members]
        if len(set(goals.values())) == 1:
            if size > 2:
                return None

            def reduce_all(source: Tensor) -> Tensor:
                return ops.all_reduce(narrow(source, cuts[0]).contiguous(), REDUCERS[step.reducer], group)

            return Collective(reduce_all, ops.wait_tensor)

        def reduce(source: Tensor) -> Tensor:
            parts = torch.cat([narrow(source, cut).reshape(-1) for cut in cuts])
            return ops.reduce_scatter_tensor(parts, REDUCERS[step.reducer], size, group)

        shape = shape_of(goals[rank])
        return Collective(reduce, lambda made: ops.wait_tensor(made).view(shape))
    if swap.terms > 1 or len(set(goals.values())) > 1:
        return None
    boxes = {source: box for (source, _), box in pairs.items()}
    if any(pairs[source, target] != boxes[source] for source, target in pairs):
        return None
    along = _side_by_side([boxes[member] for member in members], goals[rank])
    if along is None:
        return None
    own = relative(boxes[rank], held)

    def gather(source: Tensor) -> Tensor:
        return ops.all_gather_into_tensor(narrow(source, own).contiguous(), size, group)

    def joined(made: Tensor) -> Tensor:
        made = ops.wait_tensor(made)
        return made if along == 0 else torch.cat(made.chunk(size), along)

    return Collective(gather, joined)


def _side_by_side(boxes: list[Box], whole: Box) -> int | None:
    """The dimension along which boxes, in their order, are side by side the whole box; None if they are not."""
    for along in range(len(whole)):
        others = all(box[number] == whole[number] for box in boxes for number in range(len(whole)) if number != along)
        edges = [edge for box in boxes for edge in box[along]]
        meet = edges[1:-1:2] == edges[2:-1:2] and (edges[0], edges[-1]) == whole[along]
        if others and meet:
            return along
    return None


class Sharer:
    """One rank's walk through its steps: slots hold fake tensors, as a worker's hold real ones."""

    def __init__(self, program: Program, rank: int, device: Any) -> None:
        self.program, self.rank, self.device = program, rank, device
        self.slot = {name: number for number, name in enumerate(program.places)}
        self.slots: list[Any] = [None] * len(self.slot)
        self._transport = CollectiveTransport(device)
        self._started: dict[str, tuple[Collective | Transfer, Any]] = {}
        self._taken = taken_over(program, rank)

    def run(self, step: Step) -> None:
        if isinstance(step, ComputeStep):
            self._compute(step)
        elif isinstance(step, StartStep) and isinstance(step.transfer, TransferStep):
            self._started[step.transfer.target] = self._start(step.transfer)
        elif isinstance(step, TransferStep):
            self._finish(step, *(self._started.pop(step.target, None) or self._start(step)))
        elif isinstance(step, FreeStep):
            for name in step.buffers:
                self.slots[self.slot[name]] = None
        else:
            raise LookupError(f"{type(step).__name__}: a step of girih's own engine")

    def _compute(self, step: ComputeStep) -> None:
        taken = self._taken.get(step.writes[0])
        call = compile_compute(self.program, step, self.rank, self.slot, self.device, taken)
        name = self.program.graph.nodes[step.node].operator
        if isinstance(call, Compute) and call.function is PRODUCTS.get(name):
            call.function = resolve(name)  # NumPy's product, which no graph of PyTorch can call
        call.run(self.slots, [0.0, 0.0])

    def _start(self, step: TransferStep) -> tuple[Collective | Transfer, Any]:
        collective = collective_of(self.program, step, self.rank)
        if collective is not None:
            return collective, collective.start(self.slots[self.slot[step.source]])
        transfer = Transfer(self.program, step, self.rank, self.slot, self._transport, self.device)
        remote = tuple(item for item in self.program.exchange_of(step).messages if item.source != item.target)
        self._transport.members = together(remote, self.rank)
        self._transport.dtype = transfer.dtype
        return transfer, transfer.start(self.slots)

    def _finish(self, step: TransferStep, transfer: Collective | Transfer, underway: Any) -> None:
        if isinstance(transfer, Collective):
            self.slots[self.slot[step.target]] = transfer.finish(underway)
        else:
            transfer.finish(self.slots, underway)


def recorded(program: Program, rank: int, device: Any) -> Recorded:
    """One rank's share of a program as a graph: placeholders are the inputs, in their order; it gives by name what the
    program gives, None for what lies elsewhere.

    device: a torch.device, of which none need be here.

    Raises:
        PlanError: what a step does is no call of PyTorch; it names the operator and its line.
    """
    result = Recorded()
    graph, names, recorder = result.graph, Names(), Recorder(result.graph)
    share = Sharer(program, rank, device)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        for item in program.graph.inputs:
            dtype = getattr(torch, program.graph.values[item.name].dtype)
            tensor = torch.empty(shape_of(box_of(program, item.name, rank)), dtype=dtype, device=device)
            node = graph.placeholder(names.of(item.name))
            node.meta["input"] = item.name
            recorder.learn(tensor, node)
            share.slots[share.slot[item.name]] = tensor
        with recorder:
            for step in program.steps_of(rank):
                last = next(iter(reversed(graph.nodes)))
                try:
                    share.run(step)
                except Exception as error:
                    raise _refused(program, step, error) from error
                first = last.next
                if first.op == "root":
                    continue
                result.comments[first] = comment_of(program, step)
                for name in step.targets:
                    made = share.slots[share.slot[name]]
                    if isinstance(made, torch.Tensor) and (node := recorder.node_of(made)).op == "call_function":
                        node._rename(names.of(name))
        results = [(output.name, share.slots[share.slot[output.name]]) for output in program.graph.outputs]
        graph.output({name: None if made is None else recorder.node_of(made) for name, made in results})
    return result


class Names:
    """Names of Python for names of the program, each another one."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def of(self, name: str) -> str:
        plain = re.sub(r"\W", "_", name.replace("~", "_partial"))
        if plain[:1].isdigit() or keyword.iskeyword(plain):
            plain = f"_{plain}"
        while plain in self._used:
            plain += "_"
        self._used.add(plain)
        return plain


def comment_of(program: Program, step: Step) -> str:
    """What a step is, in a line above its calls."""
    if isinstance(step, ComputeStep):
        node = program.graph.nodes[step.node]
        where = ", ".join(part for part in (node.phase, node.scope) if part)
        return f"{', '.join(step.writes)} = {node.operator} ({where})"
    start = isinstance(step, StartStep)
    transfer = step.transfer if isinstance(step, StartStep) else step
    assert isinstance(transfer, TransferStep)
    kind = program.exchange_of(transfer).kind
    return f"{'begin ' if start else ''}{kind}: {transfer.target} from {transfer.source}"


def _refused(program: Program, step: Step, error: Exception) -> PlanError:
    if not isinstance(step, ComputeStep):
        return PlanError(f"{comment_of(program, step)}: PyTorch alone cannot run it ({error})")
    node = program.graph.nodes[step.node]
    return PlanError(
        f"{node.operator} ({node.source or 'no source line'}) is computed by a kernel of girih's own, which is no call "
        f"of PyTorch ({type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}): run the plan "
        "with plan.start, or export one without this operator"
    )
