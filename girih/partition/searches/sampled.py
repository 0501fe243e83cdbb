"""`sampled`: search in the SOAP space by simulated execution (FlexFlow §3.3 and §3.5).

Every node is divided along sample, attribute and parameter dimensions and reductions, and placed on any part of each
mesh axis (the operator dimension), independently of its neighbours. A Markov chain proposes, for a node drawn at
random, any division that its operator allows; the Metropolis-Hastings rule (equation 3.1) accepts by what the step
then takes; a chain starts from each initial candidate and from what the exact search finds, and ends when its
proposals or its time are used up, or the best is not improved on for half of those made or of the time (§3.5.2), and
not before some proposals for each node. The time is counted: what a proposal takes is known from the sizes of the
tables, so that a chain makes the same proposals on a busy machine and on any number of cores.

Where we differ, and why:
- A proposal completes the layer of the drawn node: what is divided otherwise than its neighbours costs transfers, and
  FlexFlow's operators are whole layers too. The nodes of the layer follow greedily (`makespan.complete`).
- Half of the nodes are drawn from the path that leads to the end of the step, not from all.
- The chain is guided by the tables of the exact search, in which a collective is one task (`makespan.makespan`), at
  tens to thousands of proposals a millisecond; the simulator of the lowered program judges what the chains find. It is
  the objective's score.

Cost: proposals × (nodes × their labels in one layer + nodes × devices).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.host import cores_here
from girih.layout import Mesh, coordinates_of
from girih.layout.budget import Budget
from girih.partition.search import ScoredSearch
from girih.partition.searches.data_parallel import DataParallel
from girih.partition.searches.exact import Exact
from girih.partition.solver.chains import Flat, Layers, Users, chain, makespan
from girih.partition.space.layers import layers_of
from girih.partition.space.options import CHAINS, Rules
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.partition.strategy import SearchError, SearchResult, Strategy
from girih.rewrite.certificate import Certificate

MOST = {"proposals": 10**9, "patience": 10**9, "sharpness": 1e9, "guided": 1, "seed": 2**32 - 1}
"""What options may be at most; all are at least 0."""
AT_ONCE = 2
"""Chains that have the search's time together: so many cores are expected."""
TOUCHED, MEMBER, ENTRY = 10.0, 0.3, 0.7
"""Nanoseconds of the guide for each node and transfer, and for each of its devices; and of completing a layer for each
entry of a table."""


@dataclass(frozen=True)
class Sampled(ScoredSearch):
    """The fastest simulated step that Markov chains from several candidates find (FlexFlow §3.5).

    known: candidates by name; `data` and `exact` are searched where they are not among them.
    proposals: of each chain, at most. patience: so many proposals for each node are made in vain before a chain ends,
    and as many as it took to find its best. sharpness: β of equation 3.1, for times relative to the chain's first: at
    200 a proposal that takes 1 % longer is accepted once in e² times. guided: the share of proposals on the critical
    path. seed: equal seeds give equal answers.
    bound, how: a lower bound on any strategy's seconds, for the certificate. rules: what may be chosen.

    An objective without a score is scored by the chains' guide.

    Raises:
        SearchError: an option is out of its range.
    """

    proposals: int = 20_000
    patience: int = 10
    sharpness: float = 200.0
    guided: float = 0.5
    seed: int = 0
    bound: float = field(default=0.0, repr=False)
    how: str = field(default="none", repr=False)
    rules: Rules = field(default=CHAINS, repr=False)

    name: ClassVar[str] = "sampled"

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, most in MOST.items():
            if not 0 <= (value := getattr(self, option)) <= most:
                raise SearchError(f"{option} must be at least 0 and at most {most}, got {value!r}")

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        return _sampled(self, graph, objective)


@dataclass(frozen=True)
class Arrays:
    """A PartitionProblem for the compiled loops."""

    flat: Flat
    users: Users
    layers: Layers


def flatten(item: PartitionProblem) -> Arrays:
    """The arrays of a problem. Tables and masks of equal options are kept once."""
    graph, problem = item.graph, item.problem
    count = len(item.layouts)
    masks = _Masks(item.mesh)
    table_at = _starts(table.size for table in problem.tables)
    position = {name: number for number, name in enumerate(graph.values)}
    reads: list[tuple[int, int, int]] = []
    makes: list[tuple[int, int, int]] = []
    in_from, out_from = [0], [0]
    users: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    maker = np.full(len(position), -1, np.int64)
    pairs = iter(problem.pairs)  # of each node in order: what it reads, then what it makes
    for number, node in enumerate(graph.nodes):
        for names, side in ((node.inputs, reads), (node.outputs, makes)):
            for name in names:
                _, variable, table = next(pairs)
                side.append((position[name], variable, table))
                users[variable].append((number, table))
        for name in node.outputs:
            maker[position[name]] = number
        in_from.append(len(reads))
        out_from.append(len(makes))
    kept = np.zeros(count, np.bool_)
    for fixed in graph.inputs:
        kept[item.variable[fixed.name]] = True
    layer = np.asarray(layers_of(graph), np.int64)
    belongs = np.asarray([layer[some[0][0]] if some else -1 for some in users], np.int64)
    node_mask_at = np.asarray([masks.add(options.divisions) for options in item.options], np.int64)
    value_mask_at = np.asarray([masks.add(np.asarray(some, np.int64)) for some in item.layouts], np.int64)
    flat = Flat(
        np.concatenate([table.ravel() for table in problem.tables]),
        table_at[np.asarray(problem.unary[count:], np.int64)],
        masks.rows(),
        node_mask_at,
        value_mask_at,
        np.asarray(in_from, np.int64),
        *_columns(reads),
        np.asarray(out_from, np.int64),
        *_columns(makes),
        table_at,
        np.asarray([table.shape[-1] for table in problem.tables], np.int64),
        maker,
        len(position),
        item.mesh.devices,
    )
    return Arrays(
        flat,
        Users(layer, *_ragged(users), np.asarray(problem.domains, np.int64), kept),
        Layers(*_members(layer), *_members(belongs, int(layer.max(initial=-1)) + 1)),
    )


def _starts(sizes: Iterable[int]) -> np.ndarray:
    return np.cumsum([0, *sizes])[:-1].astype(np.int64)


def _columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    first, second, third = np.ascontiguousarray(np.asarray(rows, np.int64).reshape(-1, 3).T)
    return first, second, third


def _ragged(users: list[list[tuple[int, int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the users of each variable begin, and the users' nodes and tables."""
    every = np.asarray([pair for some in users for pair in some], np.int64).reshape(-1, 2)
    starts = np.cumsum([0, *map(len, users)]).astype(np.int64)
    return starts, np.ascontiguousarray(every[:, 0]), np.ascontiguousarray(every[:, 1])


def _members(group: np.ndarray, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The members of each group in order, and where each group begins. Group -1 is nobody's."""
    groups = int(group.max(initial=-1)) + 1 if count is None else count
    order = np.argsort(group, kind="stable").astype(np.int64)
    return order, np.searchsorted(group[order], np.arange(groups + 1)).astype(np.int64)


class _Masks:
    """Rows of bytes, one for each label of each set of options: which devices take part."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.parts: list[np.ndarray] = []
        self.at: dict[bytes, int] = {}
        self.count = 0

    def add(self, codes: np.ndarray) -> int:
        """codes: [labels, axes]. The number of the first row."""
        codes = codes.reshape(len(codes), self.mesh.axes)
        key = codes.tobytes() + len(codes).to_bytes(8, "little")
        if key not in self.at:
            self.at[key] = self.count
            self.parts.append(self._taking_part(codes))
            self.count += len(codes)
        return self.at[key]

    def _taking_part(self, codes: np.ndarray) -> np.ndarray:
        rows = np.ones((len(codes), self.mesh.devices), np.uint8)
        for axis, size in enumerate(self.mesh.sizes):
            for code in np.unique(codes[:, axis]):
                able = np.isin(np.arange(size), coordinates_of(int(code), size))
                rows[codes[:, axis] == code] &= able[self.mesh.coordinates[:, axis]].astype(np.uint8)
        return rows

    def rows(self) -> np.ndarray:
        return np.concatenate(self.parts)


def labels_of(item: PartitionProblem, strategy: Strategy) -> np.ndarray | None:
    """The labels of a strategy; None where it chooses what the problem does not offer."""
    labels = np.zeros(len(item.problem.domains), np.int64)
    where: dict[int, dict[tuple[int, ...], int]] = {}
    for name, variable in item.variable.items():
        layouts = item.layouts[variable]
        codes = strategy.layouts[name].even_codes
        if codes not in layouts:
            return None
        labels[variable] = layouts.index(codes)
    for number, options in enumerate(item.options):
        known = where.get(id(options))
        if known is None:
            known = where[id(options)] = {tuple(row): label for label, row in enumerate(options.divisions.tolist())}
        position = known.get(strategy.divisions[number].even_codes or ())
        if position is None:
            return None
        labels[len(item.layouts) + number] = position
    return labels


@dataclass(frozen=True)
class MarkovChain:
    """One chain's answer. before, seconds: of the step by the guide, where it began and at its best. work: nanoseconds
    that it has spent."""

    name: str
    labels: np.ndarray
    before: float
    seconds: float
    proposals: int
    accepted: int
    found_at: int
    work: float
    stopped: str

    @property
    def improved(self) -> bool:
        return self.found_at > 0


def _sampled(search: Sampled, graph: Graph, objective: Objective) -> SearchResult:
    if not (support := search.supports(objective)):
        raise SearchError(support.why_not)
    started = time.perf_counter()
    budget = objective.budget or Budget(search.seconds)
    candidates = {result.search: result.strategy for result in search.known}
    for first in (Exact(search.seconds / 4), DataParallel(search.seconds / 4)):
        if first.name not in candidates:
            result = first.search(graph, objective)
            candidates[first.name] = result.strategy
            if objective.budget is None:
                budget.spend(result.certificate.work * 1e9)
    item = build(graph, objective, search.rules)
    if objective.budget is None:
        budget.spend(item.seconds * 1e9)
    arrays = flatten(item)
    priced = time.perf_counter()
    starts = {name: labels_of(item, strategy) for name, strategy in candidates.items()}
    usable = {name: labels for name, labels in starts.items() if labels is not None}
    budget.spend(objective.judging * len(usable) * 1e9)  # of the judge, who looks at what the chains find
    chains = _chains(arrays, usable, search, budget)
    tried: list[tuple[str, Strategy]] = list(candidates.items())
    tried += [(f"chain from {chain.name}", item.strategy(chain.labels)) for chain in chains if chain.improved]
    score = objective.score or (lambda strategy: _guide(item, arrays, strategy))
    judged = sorted(((score(strategy), name, strategy) for name, strategy in tried), key=lambda one: one[:2])
    cost, name, best = judged[0]
    statistics: dict[str, float | int | str] = {
        "seconds to price": round(priced - started, 3),
        "seconds to search": round(time.perf_counter() - priced, 3),
        "seconds of work": round((budget.spent + sum(chain.work for chain in chains)) / 1e9, 3),
        "proposals": sum(chain.proposals for chain in chains),
        "accepted": sum(chain.accepted for chain in chains),
        "found by": name,
        **{f"seconds, {other}": value for value, other, _ in judged},
    }
    stopped = ", ".join(sorted({chain.stopped for chain in chains})) or "no candidate fits the space"
    certificate = Certificate(
        cost, search.bound, "seconds", search.how, stopped, "SOAP: divisions and places of every node", statistics
    )
    return SearchResult(best, certificate, search=search.name)


def _guide(item: PartitionProblem, arrays: Arrays, strategy: Strategy) -> float:
    labels = labels_of(item, strategy)
    return float("inf") if labels is None else guided_seconds(arrays, labels)


def guided_seconds(arrays: Arrays, labels: np.ndarray) -> float:
    """What a step takes by the guide: seconds."""
    nodes = len(arrays.users.inside)
    cause = np.empty(nodes, np.int64)
    return float(makespan(arrays.flat, labels, cause, np.empty(nodes), np.empty(nodes)))


def proposal_nanoseconds(arrays: Arrays) -> float:
    """The work of a proposal, in the mean over the nodes: the guide's walk over all nodes, and two sweeps over the
    layer that is completed, in which each node looks at its tables."""
    flat, users = arrays.flat, arrays.users
    nodes = len(users.inside)
    touched = len(flat.in_value) + len(flat.out_value)
    divisions = users.domains[len(users.domains) - nodes :]
    entries = np.zeros(nodes)
    np.add.at(entries, np.repeat(np.arange(nodes), np.diff(flat.in_from)), 1.0)
    entries *= divisions
    made = np.repeat(np.arange(nodes), np.diff(flat.out_from))
    np.add.at(entries, made, (divisions[made] * users.domains[flat.out_variable]).astype(np.float64))
    of_layer = np.bincount(users.inside, entries)
    completing = 2 * float(of_layer[users.inside].mean()) if nodes else 0.0
    return (TOUCHED + MEMBER * flat.devices) * (touched + nodes) + ENTRY * completing


def _chains(arrays: Arrays, starts: Mapping[str, np.ndarray], options: Sampled, budget: Budget) -> list[MarkovChain]:
    """Every start's chain, in slices, so that the budget is kept; the compiled loops run beside each other."""
    share = budget.seconds / max(-(-len(starts) // AT_ONCE), 1)
    nodes, proposal = len(arrays.users.inside), proposal_nanoseconds(arrays)

    def one(number: int, name: str, labels: np.ndarray) -> MarkovChain:
        own = budget.part(share)
        before = guided_seconds(arrays, labels)
        best, seconds, sampler, accepted, found_at, better = labels.copy(), before, 0, 0, 0, 0.0
        now = labels.copy()
        slice_size = 1
        while not (stopped := _stopped(options, nodes, sampler, found_at, own, better)):
            size = min(slice_size, options.proposals - sampler)
            got, cost, did, took, at = chain(
                arrays.flat, arrays.users, arrays.layers, now, options.seed * 1_000_003 + number * 10_007 + sampler,
                options.sharpness, size, size, options.guided,
            )  # fmt: skip
            own.spend(int(did) * proposal)
            if cost < seconds * (1 - 1e-9):
                best, seconds, found_at, better = got, float(cost), sampler + int(at), own.spent
            sampler += int(did)
            accepted += int(took)
            slice_size = min(2 * slice_size, 256)
        return MarkovChain(name, best, before, seconds, sampler, accepted, found_at, own.spent, stopped)

    with ThreadPoolExecutor(cores_here()) as pool:
        work = [pool.submit(one, number, name, labels) for number, (name, labels) in enumerate(starts.items())]
        return [job.result() for job in work]


def _stopped(options: Sampled, nodes: int, proposals: int, found_at: int, budget: Budget, better: float) -> str:
    """Why a chain ends now; "" if it goes on. better: what was spent when the best was found."""
    if proposals >= options.proposals:
        return "all proposals made"
    if budget.late:
        return budget.why
    if proposals - found_at > max(found_at, options.patience * nodes):
        return "no better for half of the proposals"
    if budget.spent - better > budget.left / 2:
        return "no better for half of the time"
    return ""
