"""ONNX files out: open dimensions stay open where the program holds for every size, and inputs keep their names."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import girih
from girih.capture import Inference, capture, state_of
from girih.inference.export import exported, write
from girih.inference.open_sizes import Sizes, resized
from girih.inference.optimized import AS_IT_WAS, REWRITTEN, Optimized
from girih.kernels.evaluate import interpret

PROGRAMS = (AS_IT_WAS, REWRITTEN)
QUICK: dict[str, Any] = {"threads": 1, "seconds": 0.5, "backends": ("eager",)}


class Images(nn.Sequential):
    def __init__(self) -> None:
        parts = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        super().__init__(*parts, nn.Linear(16, 5))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.parts, self.out = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        count, length, width = x.shape
        q, k, v = self.parts(x).view(count, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v
        return self.out(y.transpose(1, 2).reshape(count, length, width)) + x  # type: ignore[no-any-return]


class Mean(nn.Module):
    """A number of the program is the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)).sum(0) / x.shape[0]


class Product(nn.Module):
    def forward(self, right: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
        return torch.relu(left @ right)


@pytest.mark.parametrize(("count", "length"), [(5, 7), (1, 7), (2, 9), (9, 1), (7, 3)])
def test_a_graph_is_made_for_other_sizes(count: int, length: int) -> None:
    model, x = Words().eval(), torch.randint(50, (3, 7))
    captured = capture(Inference(model), x)
    graph, (name,) = captured.graph, captured.batch_names.values()
    state = state_of(Inference(model), graph)
    weights = {item.name: state[item.path] for item in graph.inputs if item.path in state}
    sizes = Sizes((x,), ({0: "count", 1: "length"},), model)
    other = resized(graph, weights, [name], sizes, {"count": count, "length": length})
    assert other is not None
    assert [node.name for node in other.nodes] == [node.name for node in graph.nodes]
    y = torch.randint(50, (count, length))
    (result,) = interpret(other, {**weights, name: y}).values()
    torch.testing.assert_close(result, model(y).detach())


def shapes(file: Path) -> dict[str, list[Any]]:
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    values = (*model.graph.input, *model.graph.output)
    return {item.name: [dim.dim_param or dim.dim_value for dim in item.type.tensor_type.shape.dim] for item in values}


def saved(fast: Optimized, program: str, file: Path) -> list[str]:
    """As if this program had won, which is a matter of time; the warnings."""
    first = fast._first
    chosen = next(item for item in first.explanation.candidates if item.program == program)
    fast._first = replace(first, explanation=replace(first.explanation, chosen=chosen))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fast.save(file)
    return [str(item.message) for item in told]


def equal(file: Path, model: nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        expected = model(*inputs)
    read = girih.read_onnx(file, inputs)
    torch.testing.assert_close(read(*inputs), expected)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    given = {item.name: tensor.numpy() for item, tensor in zip(session.get_inputs(), inputs, strict=True)}
    torch.testing.assert_close(torch.from_numpy(session.run(None, given)[0]), expected, atol=1e-4, rtol=1e-4)


CASES: dict[str, tuple[type[nn.Module], torch.Tensor, Mapping[int, str], tuple[tuple[int, ...], ...]]] = {
    "images": (Images, torch.randn(4, 3, 8, 8), {0: "batch"}, ((1, 3, 8, 8), (9, 3, 8, 8))),
    "words": (Words, torch.randint(50, (4, 6)), {0: "batch", 1: "length"}, ((1, 9), (7, 2))),
}


@pytest.mark.parametrize("case", CASES)
def test_open_dimensions_stay_open(case: str, tmp_path: Path) -> None:
    make, x, dims, others = CASES[case]
    torch.manual_seed(0)
    model = make().eval()
    write(exported(model, (x,), {}, ["given"], ["result"], [dims]), tmp_path / "in.onnx")
    before = shapes(tmp_path / "in.onnx")
    assert [before["given"][dim] for dim in dims] == list(dims.values())
    fast = girih.optimize(tmp_path / "in.onnx", x, **QUICK)
    for program in PROGRAMS:
        assert not saved(fast, program, tmp_path / "out.onnx")
        assert shapes(tmp_path / "out.onnx") == before
        for shape in others:
            equal(tmp_path / "out.onnx", model, x.new_zeros(shape) + 3)


def test_a_program_of_one_size_keeps_it_and_says_so(tmp_path: Path) -> None:
    model, x = Mean().eval(), torch.randn(64, 8)
    write(exported(model, (x,), {}, ["given"], ["result"], [{0: "batch"}]), tmp_path / "in.onnx")
    fast = girih.optimize(tmp_path / "in.onnx", x, **QUICK)
    told = saved(fast, REWRITTEN, tmp_path / "out.onnx")
    assert len(told) == 1
    assert told[0].startswith("out.onnx is for the example's sizes alone (batch=64)")
    assert shapes(tmp_path / "out.onnx")["given"] == [64, 8]
    equal(tmp_path / "out.onnx", model, x)


def test_a_file_that_branches_keeps_the_sizes_of_the_example(tmp_path: Path) -> None:
    """Other sizes may take the other branch, and no sample of them would show it."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    branches = {
        name: helper.make_graph([helper.make_node(operator, ["x"], [name])], name, [],
                                [helper.make_tensor_value_info(name, kind, ["batch", 2])])
        for name, operator in (("then", "Relu"), ("other", "Neg"))
    }  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=0, end=1),
        helper.make_node("Squeeze", ["shape"], ["count"]),
        helper.make_node("Less", ["count", "many"], ["few"]),
        helper.make_node("If", ["few"], ["y"], then_branch=branches["then"], else_branch=branches["other"]),
    ]
    graph = helper.make_graph(
        nodes, "branches", [helper.make_tensor_value_info("x", kind, ["batch", 2])],
        [helper.make_tensor_value_info("y", kind, ["batch", 2])],
        [onnx.numpy_helper.from_array(torch.tensor(1000).numpy(), "many")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, tmp_path / "in.onnx")
    x = torch.randn(4, 2)
    fast = girih.optimize(tmp_path / "in.onnx", x, **QUICK)
    assert len(saved(fast, REWRITTEN, tmp_path / "out.onnx")) == 1
    assert shapes(tmp_path / "out.onnx")["x"] == [4, 2]


def test_an_exported_program_stays_open(tmp_path: Path) -> None:
    model, x = Words().eval(), torch.randint(50, (4, 6))
    whole = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    fast = girih.optimize(whole, **QUICK)
    for program in PROGRAMS:
        assert not saved(fast, program, tmp_path / "out.onnx")
        batch, length = shapes(tmp_path / "out.onnx")["words"]
        assert isinstance(batch, str)
        assert length == 6
        equal(tmp_path / "out.onnx", model, torch.randint(50, (9, 6)))


@pytest.mark.parametrize("order", [None, "right left", "left right"])
def test_inputs_keep_the_names_of_arguments(order: str | None, tmp_path: Path) -> None:
    given = {"right": torch.randn(4, 5), "left": torch.randn(3, 4)}
    example = tuple(given.values()) if order is None else {name: given[name] for name in order.split()}
    fast = girih.optimize(Product().eval(), example, **QUICK)
    for program in PROGRAMS:
        assert not saved(fast, program, tmp_path / "out.onnx")
        found = shapes(tmp_path / "out.onnx")
        assert (found["right"], found["left"]) == ([4, 5], [3, 4])


class Segments(nn.Module):
    """Every position is of the first segment, as BERT's and Albert's are by default."""

    def __init__(self) -> None:
        super().__init__()
        self.segments = nn.Embedding(2, 8)
        self.register_buffer("zeros", torch.zeros(1, 64, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.segments(torch.gather(self.zeros, 1, torch.arange(64).expand(1, 64)).expand(1, 64))


def test_the_exporter_says_nothing_of_what_it_cannot_fold(logged: list[logging.LogRecord]) -> None:
    """Warnings that nobody handles come to the terminal."""
    exported(Segments(), (torch.randn(1, 64, 8),))
    assert [record.getMessage() for record in logged if record.levelno >= logging.WARNING] == []
