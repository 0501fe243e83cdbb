"""Short ways to divisions and regions give what the long ones give."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import girih
from girih.capture import capture
from girih.graph import Graph
from girih.layout import Mesh, bounds
from girih.models import example
from girih.ops.derive.divisions import clip, clipped_regions, input_regions, output_regions, placed_regions, spans_of
from girih.ops.known import descriptions
from girih.partition.space.options import Rules, division_codes, divisions_along, node_options

REPEATING = Rules(repeat=True)


@pytest.fixture(scope="module", params=["lenet-tiny", "gpt-tiny", "wresnet-tiny"])
def graph(request: pytest.FixtureRequest) -> Graph:
    made = example(request.param)
    optimizer = torch.optim.SGD(made.module.parameters(), lr=0.1, momentum=0.9)
    return capture(girih.TrainingStep(made.module, step=made.step, optimizer=optimizer), made.inputs).graph


@pytest.mark.parametrize("mesh", [Mesh(()), Mesh((2,)), Mesh((2, 3)), Mesh((64,))], ids=str)
def test_divisions_along_variables_are_among_all(graph: Graph, mesh: Mesh) -> None:
    for description in dict.fromkeys(descriptions(graph)):
        if description is not None:
            every = division_codes(description, mesh, REPEATING)
            for variables in (set(), {0}, {0, 1}, set(range(description.rank))):
                wanted = every[np.isin(every, sorted(variables)).all(axis=1)]
                assert np.array_equal(divisions_along(description, variables, mesh), wanted)


def test_regions_of_bare_variables_are_those_of_any(graph: Graph) -> None:
    mesh = Mesh((2, 2))
    for description in dict.fromkeys(descriptions(graph)):
        if description is None or 0 in description.sizes:
            continue
        starts, stops = bounds(division_codes(description, mesh, REPEATING), description.sizes, mesh)
        spans = spans_of(starts, stops)
        for tensor, kind in enumerate(description.inputs):
            wanted = clip(input_regions(description, tensor, starts, stops), kind.shape)
            assert np.array_equal(clipped_regions(description, tensor, spans), wanted)
        assert np.array_equal(placed_regions(description, spans), output_regions(description, starts, stops))


def test_tensors_that_are_read_alike_share_their_pieces(graph: Graph) -> None:
    shared = 0
    for description in dict.fromkeys(descriptions(graph)):
        if description is not None and len(description.inputs) > 1:
            items = tuple(range(1, len(description.inputs) + 2))
            needs = node_options(description, items, Mesh((2, 2)), Rules(partial=True)).needs
            for number, one in enumerate(needs):
                for other in needs[:number]:
                    alike = np.array_equal(one.regions, other.regions) and np.array_equal(one.partial, other.partial)
                    assert one is not other or alike
                    shared += one is other
    assert shared > 3
