"""Megatron-LM's tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053, §3), on blocks recognised in the graph.

On the devices of the innermost level of the machine:

- MLP: the first matrix is cut by columns, the second by rows; what lies between, each device computes of its columns.
- Attention: the matrices of queries, keys and values are cut by columns, whole heads to each device; the output's by
  rows.
- The embedding is cut along the vocabulary, and with it the matrix in front of the loss; the loss of each token is
  computed from the parts (parallel cross-entropy).
- Everything else (norms, residuals, dropouts, other embeddings) is computed by each device for itself.

So a block has one all-reduce in the forward pass (the paper's g) and one in the backward pass (f), of
[batch, sequence, hidden] each. The batch is divided over the outer levels, which is data parallelism.

Blocks are recognised by their dataflow, not by names. From the input of each product with a weight we walk back to the
products with weights before it; if a cut of their columns can be followed through every operator between and ends as a
cut of the terms of that product, and nowhere else, these are a block. Then all cuts are followed through the backward
pass and the update as well; a block whose cut cannot be followed everywhere is left whole, and the certificate says so.

Where we differ: a weight that stacks queries, keys and values, as GPT-2's was released, holds no device's heads side by
side. Megatron stores it in another order; here its attention is left whole. Vocabularies are not padded: parts are
uneven. What is left open (where sums of parts are reduced, how the gradients of outer levels meet) the exact search
chooses.

Cost: one walk over the nodes for each candidate block, then the exact search over few choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from girih.graph import Graph
from girih.layout import PARTIAL, REPLICATE, Layout, Mesh
from girih.machine.units import counted
from girih.ops.known import descriptions
from girih.partition.search import Search
from girih.partition.searches.data_parallel import along, along_the_batch, batch_dimensions
from girih.partition.searches.exact import exact
from girih.partition.space.options import SECONDS, division_codes, joined_codes, value_layouts
from girih.partition.space.problem import Candidates, Objective
from girih.partition.strategy import PASS, REPEAT, SearchError, SearchResult
from girih.published.divisions.transformer_blocks import VOCABULARY, Flow, recognised
from girih.rewrite.passes.heads import SeparateHeads
from girih.rewrite.passes.parts_first import AddPartsFirst

STATES = ("copied", "sharded")
"""What outer levels may do with what lives from step to step."""


@dataclass(frozen=True)
class Megatron(Search):
    """Megatron-LM's tensor parallelism on the innermost level, data parallelism outside of it.

    tensor: neighbours that share each block, some of the innermost mesh axes; 0: all of the innermost level. state:
    `copied`, or `sharded`: the outer levels divide weights and what an optimizer keeps of them, and gather weights
    where they are used (ZeRO-3 beside tensor parallelism).

    Raises:
        SearchError: the graph has no block that can be divided so, or no axes of the mesh have so many devices; or
            state is neither.
    """

    tensor: int = 0
    state: str = "copied"

    name: ClassVar[str] = "megatron"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.state not in STATES:
            raise SearchError(f"no state {self.state!r}: expected one of {', '.join(STATES)}")

    def search(self, graph: Graph, objective: Objective) -> SearchResult:
        apart = SeparateHeads().apply(graph)
        mesh = objective.machine.mesh
        inner = len(objective.machine.levels[-1].axes) if not self.tensor else self.axes(mesh)
        within = Mesh(mesh.sizes[mesh.axes - inner :])
        blocks = recognised(apart, within.devices)
        grouped = AddPartsFirst(frozenset(blocks.flow.sums)).apply(apart)
        if grouped is not apart:
            apart, blocks = grouped, recognised(grouped, within.devices)
        if not any(block.kind != VOCABULARY for block in blocks.blocks):
            raise SearchError(
                "this program has no attention block or MLP (products with weights, one behind the other) that "
                f"divides over {counted(within.devices, 'device')} as Megatron-LM does{blocks.left_whole}: search by "
                "`exact` or `data`"
            )
        outer = Mesh(mesh.sizes[: mesh.axes - inner])
        shards = state_shards(apart, outer, blocks.flow) if self.state == "sharded" else None
        candidates = candidates_of(apart, mesh, outer, blocks.flow, shards)
        also = ", the batch and all state" if shards else ", the batch"
        space = f"Megatron-LM: {blocks.space}; all else computed by each of them{also} divided over outer levels"
        result = exact(apart, objective, rules=SECONDS, candidates=candidates, seconds=self.seconds, space=space)
        return result if apart is graph else replace(result, graph=apart)

    def axes(self, mesh: Mesh) -> int:
        """How many of the innermost mesh axes have `tensor` devices together."""
        for count in range(1, mesh.axes + 1):
            if prod(mesh.sizes[mesh.axes - count :]) == self.tensor:
                return count
        raise SearchError(f"megatron:tensor={self.tensor}: no innermost axes of the mesh {mesh} have so many devices")


def state_shards(graph: Graph, outer: Mesh, flow: Flow) -> dict[str, Layout]:
    """How the outer axes divide what lives from step to step: along the longest dimension that the inner axes leave."""
    shards = {}
    for item in graph.state_inputs:
        value, inside = graph.values[item.name], flow.cuts.get(item.name)
        able = [number for number, size in enumerate(value.shape) if number != inside and size >= outer.devices]
        shards[item.name] = along(value, max(able, key=value.shape.__getitem__, default=None), outer)
    return shards


def candidates_of(
    graph: Graph,
    mesh: Mesh,
    outer: Mesh,
    flow: Flow,
    shards: Mapping[str, Layout] | None = None,
    held: Mapping[str, int] | None = None,
    *,
    free: bool = False,
) -> Candidates:
    """Fixed on the inner axes, but for where sums are reduced; along the batch on the outer ones.

    shards: how the outer axes divide what lives from step to step; what is not in it lies whole on each. held: by
    value, what the inner axes do with it whatever the flow says. free: what the flow says nothing of may be divided by
    the inner axes, too.
    """
    inner = mesh.axes - outer.axes
    within = Mesh(mesh.sizes[outer.axes :])
    carriers = batch_dimensions(graph)
    split = along_the_batch(graph, outer, carriers) if outer.axes else {}
    divisions: dict[int, np.ndarray] = {}
    for number, (node, description) in enumerate(zip(graph.nodes, descriptions(graph), strict=True)):
        if description is None:
            continue
        passed = flow.sets(node, description)
        own = [flow.variables[number]] if number in flow.variables else [REPEAT, *(PASS - item for item in passed)]
        inside = np.asarray([[code] * inner for code in own], np.int64)
        if not inner:
            inside = inside[:1]
        elif free and number not in flow.variables:
            inside = division_codes(description, within, SECONDS)
        outside = split.get(number)
        if outside is None:
            outside = division_codes(description, outer, SECONDS)
        codes = joined_codes(description, outside, inside, mesh)
        if len(codes):
            divisions[number] = codes
    return Candidates(_layouts(graph, mesh, outer, flow, carriers, shards or {}, held or {}, free), divisions)


def _layouts(
    graph: Graph,
    mesh: Mesh,
    outer: Mesh,
    flow: Flow,
    carriers: Mapping[str, int],
    shards: Mapping[str, Layout],
    held: Mapping[str, int],
    free: bool,
) -> dict[str, tuple[Layout, ...]]:
    inner = mesh.axes - outer.axes
    entering = {item.name: item.role for item in graph.inputs}
    leaving = {item.name for item in graph.outputs}
    by_name: dict[str, tuple[Layout, ...]] = {}
    for name, value in graph.values.items():
        stored = name in entering or name in leaving
        floating = value.dtype.startswith(("float", "bfloat")) and not stored
        within: Sequence[Layout]
        if not inner:
            within = [()]
        elif name in held:
            within = [(held[name],) * inner]
        elif free and name not in flow.cuts and not stored:
            within = value_layouts(value.shape, floating, Mesh(mesh.sizes[outer.axes :]), SECONDS)
        else:
            codes = [flow.cuts.get(name, REPLICATE), *([PARTIAL] if name in flow.sums and not stored else [])]
            within = [(code,) * inner for code in codes]
        across: tuple[Layout, ...]
        if entering.get(name) in ("parameter", "state", "buffer", "data"):
            across = (shards.get(name, (REPLICATE,) * outer.axes),)
        elif name in carriers and value.shape[carriers[name]] >= outer.devices:
            across = (along(value, carriers[name], outer),)
        else:
            across = value_layouts(value.shape, floating, outer, SECONDS)
        both = [(*one, *two) for one in across for two in within]
        by_name[name] = tuple(layout for layout in both if _fits(value.shape, layout, mesh))
    for old, new in graph.updates.items():
        by_name[new] = by_name[old]
    return {name: layouts for name, layouts in by_name.items() if layouts}


def _fits(shape: Sequence[int], layout: Layout, mesh: Mesh) -> bool:
    parts = [prod(size for size, code in zip(mesh.sizes, layout, strict=True) if code == dimension)
             for dimension in range(len(shape))]  # fmt: skip
    return all(part <= max(size, 1) for part, size in zip(parts, shape, strict=True))
