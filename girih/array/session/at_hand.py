"""Programs that the only worker computes in the thread that asks, with nothing between the question and the kernels.

One worker in this process has nothing to divide and nobody to wait for. What is small enough for a core's cache needs
no plan: it is computed call by call (`girih.run.worker.whole`), and planned when somebody asks how. What a plan
computes in blocks is planned once; from then on its instructions are called as they stand.
"""

from __future__ import annotations

from dataclasses import dataclass

from girih.array.session.planning import Planned, Unplanned
from girih.capture.lazy.expressions import Needed
from girih.graph import Graph
from girih.ops.catalogue import catalogue
from girih.run.engines.threads import QUICK_BYTES
from girih.run.worker.whole import Calls


@dataclass(frozen=True, eq=False)
class AtHand:
    """results: the name and the bytes of each output. peak: the most bytes (a bound), tiles apart."""

    calls: Calls
    planned: Planned | Unplanned
    results: tuple[tuple[str, int], ...]
    peak: int


def results_of(work: Needed, graph: Graph) -> tuple[tuple[str, int], ...]:
    names = [work.names[item] for item in work.results]
    return tuple([(name, graph.values[name].bytes) for name in names])


def small_work(graph: Graph, cache: int) -> int | None:
    """The bytes that kernels read and make, if those of each fit into a block, so that a plan would compute it whole,
    and all together are few; None for more, and where a function of the user's is called, which may take long."""
    sizes = {name: value.bytes for name, value in graph.values.items()}
    described, total = catalogue(), 0
    for node in graph.nodes:
        if any(name == "function" for name, _ in node.arguments):
            return None
        item = described.get(node.operator)
        view = item is not None and item.view  # of which at most what it shows is copied
        work = sum([sizes[name] for name in (node.outputs if view else (*node.inputs, *node.outputs))])
        total += work
        if work > cache or total >= QUICK_BYTES:
            return None
    return total
