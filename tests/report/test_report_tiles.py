"""Kinds of work, tiles and folded layers: what the page says of each operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from girih.api import Plan
from girih.layout import Mesh, parse_sharding
from girih.ops.derive.classes import PARAMETER, SAMPLE
from girih.report.kinds import ELEMENTWISE, MOVEMENT, PRODUCT, REDUCTION, kind_of
from girih.report.page.folds import folds
from girih.report.palette import device_colours
from girih.report.tiles import AxisDivision, DrawnTile, axis_divisions, division_words, parameter_values, tile_of

SAMPLES = AxisDivision("divides", (0, 1), "i", SAMPLE, 64)
CHANNELS = AxisDivision("divides", (0, 1), "j", PARAMETER, 256)
SUMMED = AxisDivision("sums", (0, 1), "k", PARAMETER, 256)
REPEATED = AxisDivision("repeats", (0, 1))
MESH = Mesh((2, 2))


def test_kinds_follow_from_descriptions(gpt: Plan) -> None:
    found = {node.operator: kind_of(gpt.graph, node) for node in gpt.graph.nodes}
    assert found["aten.mm"] == found["aten.bmm"] == PRODUCT
    assert found["aten.gelu"] == found["aten.add.Tensor"] == found["aten.masked_fill.Scalar"] == ELEMENTWISE
    assert found["girih.logsumexp"] == found["girih.product_sum"] == REDUCTION  # a dot product is no matrix product
    assert found["aten.permute"] == found["aten.reshape"] == MOVEMENT


@pytest.mark.parametrize(
    ("divided", "expected"),
    [
        ((SAMPLES, CHANNELS), DrawnTile(2, 2, ((0,), (1,), (2,), (3,)), False)),
        ((CHANNELS, SAMPLES), DrawnTile(2, 2, ((0,), (2,), (1,), (3,)), False)),
        ((SAMPLES, SAMPLES), DrawnTile(4, 1, ((0,), (1,), (2,), (3,)), False)),
        ((CHANNELS, SUMMED), DrawnTile(1, 4, ((0,), (1,), (2,), (3,)), True)),
        ((SAMPLES, REPEATED), DrawnTile(2, 1, ((0, 1), (2, 3)), False)),
        ((REPEATED, REPEATED), DrawnTile(1, 1, ((0, 1, 2, 3),), False)),
        ((AxisDivision("divides", (1,), "i", SAMPLE, 64), SAMPLES), DrawnTile(2, 1, ((2,), (3,)), False)),
    ],
)
def test_rows_are_samples_and_columns_the_rest(divided: tuple[AxisDivision, ...], expected: DrawnTile) -> None:
    assert tile_of(divided, MESH) == expected


def test_tiles_of_many_devices_draw_the_outer_axes() -> None:
    whole = tuple(range(32))
    divided = (AxisDivision("divides", whole, "i", SAMPLE, 64), AxisDivision("divides", whole, "j", PARAMETER, 64))
    tile = tile_of(divided, Mesh((32, 32)))
    assert (tile.rows, tile.columns) == (32, 1)
    assert [cell[0] for cell in tile.cells] == [32 * row for row in range(32)]


def test_divisions_name_what_each_axis_does(small: Plan) -> None:
    graph, parameters = small.graph, parameter_values(small.graph)
    product = next(number for number, node in enumerate(graph.nodes) if node.operator == "aten.mm")
    divisions = list(small.strategy.divisions)
    divisions[product] = parse_sharding("S0@1·S2")
    strategy = replace(small.strategy, divisions=tuple(divisions))
    divided = axis_divisions(graph, strategy, product, parameters)
    assert [(item.what, item.of_class, item.size) for item in divided] == [
        ("divides", SAMPLE, 64), ("sums", PARAMETER, 256),
    ]  # fmt: skip
    assert division_words(divided, MESH).endswith(f"@1 · Σ{divided[1].variable}")
    divisions[product] = parse_sharding("R·P")
    strategy = replace(small.strategy, divisions=tuple(divisions))
    assert division_words(axis_divisions(graph, strategy, product, parameters), MESH) == "repeated · passed"


def test_every_cell_of_every_tile_is_what_its_device_computes(gpt: Plan) -> None:
    """Together the cells of a tile are all devices that take part, each once."""
    parameters = parameter_values(gpt.graph)
    for number in range(len(gpt.graph.nodes)):
        tile = tile_of(axis_divisions(gpt.graph, gpt.strategy, number, parameters), MESH)
        assert sorted(device for cell in tile.cells for device in cell) == [0, 1, 2, 3]
        assert len(tile.cells) == tile.rows * tile.columns


def test_values_of_the_model_are_told_from_values_of_a_batch(gpt: Plan) -> None:
    found = parameter_values(gpt.graph)
    assert {item.name for item in gpt.graph.state_inputs} <= found
    assert not {item.name for item in gpt.graph.inputs if item.role == "batch"} & found
    updates = {name for node in gpt.graph.nodes if node.phase == "update" for name in node.outputs}
    assert updates <= found
    activations = {node.outputs[0] for node in gpt.graph.nodes if node.operator == "aten.gelu"}
    assert not activations & found


def test_folds_begin_with_a_layer(gpt: Plan) -> None:
    forward, update = folds(gpt.graph)
    assert (forward.first, forward.last, forward.count) == ("blocks.0", "blocks.1", 2)
    assert (update.first, update.last, update.count) == ("blocks.0", "blocks.1", 2)
    for fold in (forward, update):
        scopes = [node.scope for node in gpt.graph.nodes[fold.start : fold.stop]]
        assert all(scope.startswith("blocks.0") for scope in scopes[: fold.period])
        assert all(scope.startswith("blocks.1") for scope in scopes[fold.period :])
        assert not gpt.graph.nodes[fold.start - 1].scope.startswith("blocks")


@pytest.mark.parametrize("count", [1, 2, 4, 8, 9, 16, 64, 1024])
def test_devices_have_different_colours(count: int) -> None:
    colours = device_colours(count)
    assert len(colours) == count
    if count <= 64:
        assert len(set(colours)) == count


def test_neighbouring_colours_can_be_told_apart_without_red_and_green() -> None:
    """Distances in the two cones that people with the commonest deficiency share with others: light and blue-yellow."""
    for count in range(2, 10):
        numbers = np.asarray([[int(c[at : at + 2], 16) for at in (1, 3, 5)] for c in device_colours(count)]) / 255
        light = numbers @ [0.2126, 0.7152, 0.0722]
        yellow = (numbers[:, 0] + numbers[:, 1]) / 2 - numbers[:, 2]
        points = np.stack([light, yellow], axis=1)
        apart = np.linalg.norm(points[:, None] - points[None], axis=-1) + 9 * np.eye(count)
        assert apart.min() > 0.06
