"""Plans to draw: a perceptron that is planned at once, and GPT's layers, which repeat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from graphs import machine_of, perceptron
from stand_in import HOSTILE

import girih
from girih.api import Plan, plan_graph
from girih.cli.programs import program
from girih.search.memory.holding import TooLittleError

TOFU = "exact:space=tofu"
"""Plans in which every layer is divided alike and fetches for itself: what pages fold."""


@pytest.fixture(scope="session")
def small() -> Plan:
    plan = plan_graph(
        perceptron(), machine=machine_of((2, 2)), compare=("single", "data"), objective="bytes", search=TOFU
    )
    return plan.but(model="perceptron")


@pytest.fixture(scope="session")
def gpt() -> Plan:
    made = program("gpt-tiny", None, "momentum")
    return girih.plan(made.step, made.batch, machine="local:4", objective="bytes", search=TOFU).but(model=made.name)


@pytest.fixture(scope="session")
def capped() -> Plan:
    """LeNet on one device that is too small: tensors go out and come back. The limit is the smallest one that works,
    which is another on each processor: its convolutions need scratch memory."""
    named = program("lenet-tiny", 16, "momentum")
    with pytest.raises(TooLittleError) as refused:
        girih.plan(named.step, named.batch, machine="local:1", memory="1KB", compare=(), hold="swap", objective="bytes")
    limit = int(refused.value.smallest)
    plan = girih.plan(
        named.step, named.batch, machine="local:1", memory=limit, compare=(), hold="swap", objective="bytes"
    )
    return plan.but(model=named.name)


@pytest.fixture(scope="session")
def hostile(small: Plan) -> Plan:
    """A plan whose every name would break out of a page that does not escape."""
    graph = small.graph
    told = {name: f"{name}{HOSTILE}" for name in graph.values}
    nodes = tuple(
        replace(
            node,
            name=f"{node.name}{HOSTILE}",
            arguments=tuple((key, _renamed(value, told)) for key, value in node.arguments),
            outputs=tuple(told[name] for name in node.outputs),
            source=HOSTILE,
            scope=HOSTILE,
        )
        for node in graph.nodes
    )
    made = replace(
        graph,
        values={told[name]: replace(value, name=told[name]) for name, value in graph.values.items()},
        nodes=nodes,
        inputs=tuple(replace(item, name=told[item.name]) for item in graph.inputs),
        outputs=tuple(
            replace(item, name=told[item.name], replaces=item.replaces and told[item.replaces])
            for item in graph.outputs
        ),
    )
    layouts = {told[name]: layout for name, layout in small.strategy.layouts.items()}
    strategy = replace(small.strategy, layouts=layouts)
    return small.but(graph=made, strategy=strategy, model=f"model{HOSTILE}")


def _renamed(argument: object, told: dict[str, str]) -> object:
    from girih.graph import Ref

    return Ref(told[argument.name]) if isinstance(argument, Ref) else argument


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")
