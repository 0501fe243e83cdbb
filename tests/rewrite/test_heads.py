"""Batch and heads apart: the products are others, the results are the same."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

import girih
from girih.capture import capture
from girih.graph import Graph
from girih.models import example
from girih.rewrite import check
from girih.rewrite.passes.heads import SeparateHeads
from girih.rewrite.results import check_results


def captured(name: str) -> Graph:
    model = example(name, device="meta")
    step = girih.TrainingStep(
        model.module, step=model.step, optimizer=torch.optim.SGD(model.module.parameters(), lr=0.1)
    )
    return capture(step, model.inputs).graph


@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny", "bert-tiny"])
def test_batch_and_heads_apart(name: str) -> None:
    graph = captured(name)
    apart = SeparateHeads().apply(graph)
    check(graph, apart)
    assert SeparateHeads().apply(apart) is apart
    operators = Counter(node.operator for node in apart.nodes)
    assert operators["girih.head_product"] == 12
    assert operators["aten.bmm"] == 0
    assert len(apart.nodes) < len(graph.nodes)
    check_results(graph, apart)


def test_products_of_one_batch_are_left_as_they_are() -> None:
    graph = captured("nmt-tiny")
    assert SeparateHeads().apply(graph) is graph
