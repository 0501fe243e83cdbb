"""Plans of graph networks: cut before they are made, learned from while they run, used for graphs that come later.

A plan on several devices of one level has a range of vertices for each, cut by what a cost model knows of the network's
layers (ROC, Jia et al. 2020, §4.4). A run tells the model what each layer took on each piece. Where the model then
predicts that another cut takes back what it costs to change to, the workers end, and others go on with the same state.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from girih import api
from girih.capture.torch.training import Inference
from girih.gnn.data.errors import DataError
from girih.gnn.geometric import reads_edges
from girih.gnn.partitioner.cost import CostModel, Layer
from girih.gnn.partitioner.features import Features
from girih.gnn.partitioner.layers import FORWARDS, layers_of
from girih.gnn.partitioner.learning import Repartitioner
from girih.gnn.partitioner.partition import partition, with_cuts
from girih.gnn.partitioner.search import Vertices, pieces_of
from girih.graph import Graph
from girih.kernels.products import single
from girih.machine import Machine
from girih.machine import machine as machine_by_name
from girih.plans.plan import PlanError
from girih.program import ComputeStep
from girih.run.errors import WorkerError
from girih.run.training.training import TrainingRun

LEARNS_FIRST, LEARNS_EVERY = 16, 16
"""A run learns from each of its first steps, but for the very first, in which kernels are compiled; then from one of so
many."""

ONCE = (
    "the sum of the neighbours' features is computed once, before the first step, as nothing in it is learned or drawn"
)

Data = Any  # a `girih.gnn.Data`, which asks this module to prepare its plans
Tensor = Any  # torch is untyped for the type checker
Seconds = NDArray[np.float64]


@dataclass
class Work:
    """What a plan's runs have learned, and what they were made of: step, data (in the order of the cut) and options of
    `girih.plan`. cost: of the layers whose sums each step computes. state: the network's weights at the end of the last
    run."""

    step: Any
    data: Data
    machine: Machine
    options: Mapping[str, Any]
    cost: CostModel
    state: dict[str, Tensor] | None = None


@dataclass(frozen=True)
class Pieces:
    """The pieces of a run: `GraphRun.partition()`.

    ranges: (first vertex, one past the last) of each piece. edges: that it reads by. rows: of other pieces that it
    reads in each layer. predicted, measured: seconds of its computing in a step, by the cost model as it is now, and in
    the last step that was learned from (None: there is none yet). error: the mean of |predicted / measured - 1| of all
    times before they were learned, NaN before there are any. samples: how many times were learned. moves: how often the
    run was cut anew.
    """

    ranges: tuple[tuple[int, int], ...]
    edges: tuple[int, ...]
    rows: tuple[int, ...]
    predicted: tuple[float, ...]
    measured: tuple[float, ...] | None
    error: float
    samples: int
    moves: int

    @property
    def imbalance(self) -> float:
        """The largest piece over the mean, by what was measured, or else predicted: 1 is balanced."""
        seconds = self.predicted if self.measured is None else self.measured
        return max(seconds) / (sum(seconds) / len(seconds))

    def tables(self) -> list[dict[str, Any]]:
        """What the page of a plan draws of them (`girih.report.page`)."""
        names = [f"{number}: vertices {start:,} to {stop - 1:,}" for number, (start, stop) in enumerate(self.ranges)]
        read = [f"{edges:,} edges, {rows:,} rows of others" for edges, rows in zip(self.edges, self.rows, strict=True)]
        tables = [("as predicted", self.predicted), ("as measured in the last step that was learned", self.measured)]
        return [
            {
                "title": f"What each piece of the graph computes, {how}",
                "note": self._known,
                "rows": [
                    (*row[:2], f"{row[1] * 1e3:,.3f} ms, {row[2]}", True)
                    for row in zip(names, times, read, strict=True)
                ],
            }
            for how, times in tables
            if times is not None
        ]

    @property
    def _known(self) -> str:
        known = "nothing was predicted yet" if np.isnan(self.error) else f"predictions were off by {self.error:.1%}"
        return f"{known}, {self.samples} times learned; cut anew {self.moves} times"

    def __str__(self) -> str:
        rows = [("piece", "vertices", "edges", "rows of others", "predicted ms", "measured ms")]
        for number, (start, stop) in enumerate(self.ranges):
            taken = "-" if self.measured is None else f"{self.measured[number] * 1e3:,.3f}"
            told = f"{self.predicted[number] * 1e3:,.3f}"
            edges, read = f"{self.edges[number]:,}", f"{self.rows[number]:,}"
            rows.append((str(number), f"{start:,} to {stop - 1:,}", edges, read, told, taken))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*lines, self._known])


class GraphPlan(api.Plan):
    """A plan of a step and data; see `girih.Plan`. work: what its runs learn."""

    work: Work

    @classmethod
    def on(cls, plan: api.Plan, work: Work) -> GraphPlan:
        own = cls.of(plan)
        assert isinstance(own, cls)
        own.__dict__["work"] = work
        return own

    def but(self, **changes: Any) -> GraphPlan:
        return GraphPlan.on(super().but(**changes), self.work)

    @property
    def cost(self) -> CostModel:
        """What was learned of the network's layers; `cost.save(path)` keeps it for other plans."""
        return self.work.cost

    @property
    def _cost_of_all(self) -> CostModel:
        """What was learned, with the layers of which training computes the sums once as they are guessed."""
        own = self.work.cost
        whole = cost_of(self.work.step.model, self.work.data.features)
        return own.among(whole.layers, _sums_once(self)) if len(whole.layers) > len(own.layers) else own

    def start(self, **options: Any) -> TrainingRun:
        """Start the workers; see `girih.Plan.start`. A run of several pieces has `partition()`, learns what pieces take
        and is cut anew where that pays; not so under torchrun, where workers are not this program's to end."""
        if self.work.data.graph.cuts:
            return GraphRun(self, {"measure": True, **options})
        return WatchedRun(self, super().start(**options).run)

    def partition(self) -> Pieces:
        """The pieces with which a run begins, with what they take as predicted.

        Raises:
            PlanError: the graph is in one piece.
        """
        if not (graph := self.work.data.graph).cuts:
            raise PlanError("the graph is in one piece: plan for several devices, machine='local:2'")
        return pieces_of_work(self.work, self.cost.features(graph))

    def report(self, path: str | Path, *, store: str | Path | None = None) -> None:
        """Write the plan as one page (HTML) to look at, with its pieces; see `girih.Plan.report`."""
        if not self.work.data.graph.cuts:
            super().report(path, store=store)
            return
        from girih.report.page import write_page

        write_page(path, self, self.predict(store=store).timeline, beside=self.partition().tables())

    def infer(self, data: Any, *, backend: Any = None) -> Tensor:
        """The network's outputs [vertices, …] on a graph that the plan has not seen, on the plan's machine, cut by what
        was learned. The weights are those at the end of the plan's last run, or else the module's own.

        data: a `gnn.Data` with features, as `gnn.load` reads it. backend: see `girih.Plan.start`; by default
        `threads` for one device, else `processes`.

        Raises:
            DataError: it is no data, has no features, or not as many as the network reads.
        """
        work = self.work
        if not hasattr(data, "prepared"):
            raise DataError(f"got {type(data).__name__}: expected a graph with features, as gnn.load(…) reads it")
        if data.features != work.data.features:
            raise DataError(
                f"{data.name} has {data.features} features of each vertex, the plan was made for {work.data.features}: "
                "give the graph with those"
            )
        network = copy.deepcopy(work.step.model)
        if work.state is not None:
            network.load_state_dict(work.state)
        options = {name: work.options[name] for name in ("memory", "progress") if name in work.options}
        known = _with_cuts(data, cuts_of(data, work.machine.devices, self._cost_of_all))
        plan = api.plan(Inference(network.eval()), known, machine=work.machine, compare=(), **options)
        where = backend or ("threads" if plan.machine.devices == 1 else "processes")
        with api.Plan.start(plan, backend=where) as run:
            return torch.as_tensor(run.step()[0])


def cost_of(network: torch.nn.Module, features: int) -> CostModel:
    """A cost that knows of a network's layers no more than their sizes; of one that is not understood, one layer."""
    return CostModel(_layers(network, features) or (Layer(max(1, features), 0),))


def _layers(network: torch.nn.Module, features: int) -> tuple[Layer, ...]:
    """What a network's layers gather; () where it cannot be run on two vertices, or reads no neighbours."""
    try:
        with torch.random.fork_rng(devices=()), torch.enable_grad():
            return layers_of(copy.deepcopy(network), features)
    except Exception:  # a network may ask for anything that two vertices do not have
        return ()


def cuts_of(data: Data, pieces: int, cost: CostModel) -> tuple[int, ...]:
    """Where the cost cuts the vertices into so many pieces; (): where there are fewer vertices than pieces."""
    if pieces < 2 or data.vertices < pieces or data.graph.sources != data.vertices:
        return ()
    cuts = partition(data, pieces, cost).cuts
    return cuts if min(np.diff(cuts)) > 0 else ()


def prepared(step: Any, data: Data, where: str | Machine, search: Any) -> tuple[Data, Machine, Any]:
    """The data with its cuts, the machine with all devices along one axis, and the search that gives each its range.

    As it came, where a search is given, the machine has one device or several levels, or the network does not read
    neighbours by girih's operators.
    """
    where = machine_by_name(where)
    cut = data.graph.cuts
    if search is not None or where.devices < 2 or len(where.levels) != 1 or not _reads(step.model, data):
        return (data if search is not None or not cut else _with_cuts(data, ())), where, search
    if len(cut) - 1 != where.devices:
        cut = cuts_of(data, where.devices, cost_of(step.model, data.features))
    if not cut:
        return _with_cuts(data, ()), where, search
    level = replace(where.levels[0], axes=(where.devices,))
    return _with_cuts(data, cut), replace(where, levels=(level,)), Vertices()


def cut_as(data: Data, graph: Graph) -> Data:
    """The data with the cuts of the program of a plan."""
    shares = pieces_of(graph).shares
    return _with_cuts(data, tuple(np.cumsum([0, *shares]).tolist()) if shares else ())


def _with_cuts(data: Data, cuts: tuple[int, ...]) -> Data:
    if data.graph.cuts == cuts:
        return data
    return data.but(graph=replace(data.graph, cuts=cuts), ordered_from=data.ordered_from)


def _reads(network: torch.nn.Module, data: Data) -> bool:
    """Does a network read neighbours by girih's operators, or by layers that are put on the graph?"""
    if data.x is None or data.graph.sources != data.vertices:
        return False
    return reads_edges(network) or bool(_layers(network, data.features))


class WatchedRun(TrainingRun):
    """A run whose plan gets its weights at the end, for `infer`."""

    plan: GraphPlan

    def close(self) -> None:
        if self.plan.graph.updates:
            with suppress(WorkerError):  # without workers the plan keeps the weights that it had
                self.plan.work.state = self.state_dict()
        super().close()


class GraphRun(WatchedRun):
    """Workers that have a piece of the graph each. See `GraphPlan.start`."""

    def __init__(self, plan: GraphPlan, options: dict[str, Any]) -> None:
        began = time.perf_counter()
        super().__init__(plan, api.Plan.start(plan, **options).run)
        self._options = options
        self._starting = time.perf_counter() - began
        graph, cost = plan.work.data.graph, plan.work.cost
        self._here = 0
        self._measured: Seconds | None = None
        self._layers = layers_of_nodes(plan.graph, len(cost.layers))
        known = cost.features(graph)
        self._learner = Repartitioner(graph, known, cost, with_cuts(graph, graph.cuts, cost, known), 0)

    def planned_step(self, batch: tuple[Any, ...], lr: Any = None) -> Any:
        result = super().planned_step(batch, lr)
        self._here += 1
        if 1 < self._here <= LEARNS_FIRST or self._here % LEARNS_EVERY == 0:
            self._learn()
        return result

    def _learn(self) -> None:
        """Tell the cost model what the last step took, and cut anew where that pays.

        It pays where what is saved in as many steps as there have been takes back what it takes to plan and to start
        anew: nobody knows how many are still to come, and this way no run takes more than twice as long as it could.
        """
        intervals = self.run.timeline()
        if not any(intervals):
            return
        self._measured = measured_seconds(self.plan, intervals, self._layers, self._learner.known)
        before = self._learner
        with single() or nullcontext():  # threads of NumPy's would still spin on the workers' cores in the next step
            after = replace(before, left=self._here + 1, move_seconds=self._starting).after(self._measured)
        self.plan.work.cost = after.model
        self._learner = replace(after, partition=before.partition, moves=before.moves)
        if after.moves > before.moves and self.run.one_clock and 0 not in after.partition.vertices:
            self.cut(after.partition.cuts)

    def cut(self, cuts: tuple[int, ...]) -> None:
        """Go on with other pieces: other workers, with the state of these.

        cuts: places from 0 to the number of vertices, one more than there are pieces.

        Raises:
            ValueError: they do not ascend, or are of another number of pieces.
        """
        work = self.plan.work
        if len(cuts) != len(work.data.graph.cuts):
            raise ValueError(f"{len(cuts) - 1} pieces: expected {len(work.data.graph.cuts) - 1}, one for each worker")
        began = time.perf_counter()
        data = _with_cuts(work.data, tuple(cuts))
        options = dict(work.options)
        if isinstance(search := options.get("search"), Vertices) and search.shares:
            options["search"] = replace(search, shares=tuple(np.diff(cuts).tolist()))
        plan = api.plan(work.step, data, machine=work.machine, **options)
        kept, own = self.run.state(), plan.origin.state
        stays = {item.path for item in plan.graph.state_inputs if item.role != "data"}  # which is cut otherwise
        state = {path: tensor for path, tensor in kept.items() if path in stays}
        started = plan.but(state=lambda: {**(own() if own is not None else {}), **state})
        options = {name: value for name, value in self._options.items() if name not in ("resume", "model")}
        old = self.run
        new = api.Plan.start(started, **options).run
        new.steps, new.seed = old.steps, old.seed
        old.close()
        self.run, work.data, self._measured = new, data, None
        self._turn_to(GraphPlan.on(plan, work))
        self._layers = layers_of_nodes(plan.graph, len(work.cost.layers))
        self._starting = time.perf_counter() - began
        learner = self._learner
        self._learner = replace(
            learner, partition=with_cuts(data.graph, cuts, work.cost, learner.known), moves=learner.moves + 1, seen=()
        )

    def partition(self) -> Pieces:
        """The pieces, with what they take as predicted and as measured."""
        measured = None if self._measured is None else tuple(self._measured.sum(axis=0).tolist())
        return pieces_of_work(self.plan.work, self._learner.known, measured, self._learner.moves)

    def report(self, path: str | Path) -> None:
        """Write the plan as one page, with the last step as it was measured beside its prediction, and the pieces."""
        from girih.report.page import write_page

        timeline = self.plan.predict().timeline
        write_page(path, self.plan, timeline, measured=self.timeline(), beside=self.partition().tables())


def pieces_of_work(work: Work, known: Features, measured: tuple[float, ...] | None = None, moves: int = 0) -> Pieces:
    """The pieces of the data as it is cut; known: its features for the cost."""
    cost, graph = work.cost, work.data.graph
    cut = with_cuts(graph, graph.cuts, cost, known)
    tested = [item for item in cost.quality() if item.samples]
    samples = sum(item.samples for item in tested)
    error = sum(item.error * item.samples for item in tested) / samples if samples else float("nan")
    told = tuple(cut.totals.tolist())
    return Pieces(tuple(pairwise(graph.cuts)), cut.edges, cut.reads, told, measured, error, cost.samples, moves)


def layers_of_nodes(graph: Graph, layers: int) -> dict[int, int]:
    """To which of a network's layers each node's time counts, by its number; nodes of the update count to none.

    A layer is known by the module in which its sum over neighbours is made; what has no module, as gradients of sums,
    counts to the layer of what stands before it. Where modules do not tell layers apart, all counts to layer 0.
    """
    homes = pieces_of(graph).homes
    sums = [node for n, node in enumerate(graph.nodes) if node.operator in FORWARDS and homes.get(n) == 0]
    scopes = [node.scope for node in sums if node.phase == "forward"]
    apart = len(scopes) == layers == len(set(scopes)) and all(scopes)
    found: dict[int, int] = {}
    layer, phase = 0, "forward"
    for number, node in enumerate(graph.nodes):
        if node.phase == "update":
            continue
        if node.phase != phase:
            layer, phase = layers - 1, node.phase
        if apart:
            mine = [n for n, scope in enumerate(scopes) if node.scope == scope or node.scope.startswith(f"{scope}.")]
            layer = mine[0] if mine else layer
        found[number] = layer if apart else 0
    return found


def measured_seconds(plan: GraphPlan, intervals: Any, layers: Mapping[int, int], known: Features) -> Seconds:
    """(layers, pieces): what each layer's computing took on each piece in the last step; transfers are left out.

    Where the nodes' layers are not told apart, a piece's seconds count to layers as the cost model has them.
    """
    cost = plan.work.cost
    taken = np.zeros((len(cost.layers), plan.machine.devices))
    steps = plan.program.steps
    for piece, own in enumerate(intervals):
        for item in own:
            step = steps[item.step]
            if isinstance(step, ComputeStep) and step.node in layers:
                taken[layers[step.node], piece] += item.stop - item.start
    taken = np.maximum(taken, 1e-9)
    if set(layers.values()) == {0} and len(cost.layers) > 1:
        told = cost.seconds(known, plan.work.data.graph.cuts)
        taken = taken.sum(axis=0) * told / told.sum(axis=0)
    return taken


def _sums_once(plan: api.Plan) -> tuple[int, ...]:
    """Which of the network's sums over neighbours are computed once, counted from the first."""
    return getattr(plan.origin.data, "sums_once", ())


def planned(plan: api.Plan, step: Any, data: Data, machine: Machine, options: Mapping[str, Any]) -> GraphPlan:
    """A plan that was made of a step and data, as one that learns and infers."""
    cost, once = cost_of(step.model, data.features), _sums_once(plan)
    left = tuple(layer for number, layer in enumerate(cost.layers) if number not in once)
    if once:
        plan = plan.but(notes=(*plan.notes, ONCE))
    return GraphPlan.on(plan, Work(step, data, machine, options, CostModel(left) if left else cost))
