"""A model that is rewritten gives its results, and what is returned is the fastest of what was measured."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from torch import nn

import girih
from girih.capture import CaptureError, Inference, capture
from girih.capture.torch.state import state_of
from girih.graph import Graph, Node
from girih.inference.costs import KernelCosts
from girih.inference.module import ONEDNN, module_of
from girih.inference.optimized import OptimizeError
from girih.inference.strided import CHANNELS_LAST
from girih.inference.trial import Candidate, same
from girih.models import example
from girih.rewrite.backtracking import Backtracking
from girih.rewrite.constants import folded
from girih.rewrite.rules.rule import parse
from girih.rewrite.rules.shipped import shipped
from girih.rewrite.segments import joined, segments
from girih.rewrite.ways import ROWS, Way, cheapest


class Inner(nn.Module):
    """What a model may return, and how it may be called."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, image: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"one": torch.relu(self.norm(self.one(image))) * scale, "two": self.two(image).relu()}


def with_weights(model: nn.Module, x: torch.Tensor) -> tuple[Graph, dict[str, torch.Tensor]]:
    """The captured graph, and its weights by the names of inputs."""
    graph = capture(Inference(model), (x,)).graph
    state = state_of(Inference(model), graph)
    return graph, {item.name: state[item.path] for item in graph.inputs if item.path in state}


def trained(model: nn.Module) -> nn.Module:
    """With statistics that are not those of an untrained batch norm."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return model.eval()


def pieces(name: str) -> tuple[nn.Module, torch.Tensor]:
    shown = example(name, batch=2, device="cpu")
    return trained(shown.module), torch.randn(shown.inputs["images"].shape)


def by_onednn(graph: Graph) -> dict[str, Way]:
    """oneDNN's call wherever it has one."""
    return {node.name: Way(ONEDNN, (ROWS,) * len(node.inputs), ROWS, 0.0) for node in graph.nodes}


@pytest.mark.parametrize("name", ["squeezenet-tiny", "resnext-tiny", "nasrnn-tiny", "densenet-tiny", "nasnet-tiny"])
def test_the_rewritten_program_computes_the_same(name: str) -> None:
    """By every kernel: PyTorch's, and oneDNN's wherever it can be."""
    model, x = pieces(name)
    graph, weights = folded(*with_weights(model, x))
    parts = segments(graph, weights, size=12)
    assert len(parts) > 1
    again = joined(graph, parts, parts)
    assert [node.operator for node in again.nodes] == [node.operator for node in graph.nodes]

    def calls(graph: Graph, node: Node) -> float:
        return float(node.operator in ("aten.convolution", "aten.mm", "girih.normalise"))

    found = [Backtracking(alpha=1.5, graphs=15).search(part, shipped(), calls) for part in parts]
    better, smaller = folded(joined(graph, [item.graph for item in found], parts), weights)
    assert any(item.sequence for item in found)
    every = by_onednn(better)
    with torch.no_grad():
        expected = model(x)
        for module in (module_of(better, smaller), module_of(better, smaller, every)):
            torch.testing.assert_close(module(x)[0], expected, rtol=1e-3, atol=1e-4)
    assert any("mkldnn" in str(node.target) for node in module_of(better, smaller, every).graph.nodes)


class Residual(nn.Module):
    """Branches that are added: convolutions, a product, and what is no call of oneDNN's with this sum."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.line = nn.Linear(8, 8)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.relu(image + self.one(image))  # the image is what is added
        both = torch.relu(self.two(first) + self.three(first))  # one of the two takes the other's result
        rows = first.reshape(-1, 8)
        line = torch.relu(self.line(rows) + rows)  # a product has a sum, and no function of it
        kept = self.one(both)
        return line, kept + both, kept  # the first convolution's result leaves: it stays by itself


def test_what_is_added_behind_a_convolution_is_computed_with_it() -> None:
    model, x = Residual().eval(), torch.randn(2, 4, 8, 8)
    graph, weights = folded(*with_weights(model, x))
    module = module_of(graph, weights, by_onednn(graph))
    with torch.no_grad():
        for mine, expected in zip(module(x), model(x), strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-5)
    named = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert named.count("mkldnn._convolution_pointwise.binary") == 2
    assert named.count("mkldnn._convolution_pointwise.default") == 2
    assert named.count("mkldnn._linear_pointwise.binary") == 1
    assert named.count("aten.relu.default") == 1  # behind the product


class Chain(nn.Module):
    """Residual blocks: what is added is read by the block's first convolution too, by another block, or by a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two, self.three, self.last = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(5))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        start = torch.relu(self.first(image))
        one = torch.relu(start + self.one(start))  # its own data is what is added
        two = torch.relu(one + self.two(torch.relu(self.first(one))))  # nobody reads `one` afterwards
        three = two + self.three(torch.relu(self.one(two)))  # `two` is read once more
        four = torch.relu(self.last(torch.relu(self.two(two))) + three)  # a sum reads `three` too
        seen = four[:, :2]
        five = four + self.one(torch.relu(self.last(four)))  # what is seen of `four` is read once more
        return five + seen.sum(1, keepdim=True), three.sum()


def test_what_is_added_is_overwritten_where_nobody_reads_it_afterwards() -> None:
    model, x = Chain().eval(), torch.randn(2, 4, 8, 8)
    graph, weights = folded(*with_weights(model, x))
    ways = {
        node.name: Way(
            ONEDNN if node.operator == "aten.convolution" else "aten",
            tuple(CHANNELS_LAST if len(graph.values[name].shape) == 4 else ROWS for name in node.inputs),
            CHANNELS_LAST if len(graph.values[node.outputs[0]].shape) == 4 else ROWS,
            0.0,
        )
        for node in graph.nodes
    }
    module = module_of(graph, weights, ways=ways)
    with torch.no_grad():
        for _ in range(2):  # the second run finds nothing of the first
            for mine, expected in zip(module(x), model(x), strict=True):
                torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)
    named = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert named.count("mkldnn._convolution_pointwise_.binary") == 1
    assert named.count("mkldnn._convolution_pointwise.binary") == 4


def test_what_is_of_weights_alone_is_computed_before() -> None:
    model, x = pieces("resnext-tiny")
    captured, weights = with_weights(model, x)
    graph, smaller = folded(captured, weights)
    assert len(graph.nodes) < len(captured.nodes)
    assert not any(set(node.inputs) <= smaller.keys() and node.inputs for node in graph.nodes)


def test_costs_are_measured_once_and_kept(tmp_path: Path) -> None:
    from girih.cost.store import Store

    model, x = pieces("squeezenet-tiny")
    graph, weights = with_weights(model, x)
    first = KernelCosts(weights, 1, Store(tmp_path / "costs.sqlite"))
    before = [first(graph, node) for node in graph.nodes]
    assert first.measured > 0
    assert max(before) > 0
    second = KernelCosts(weights, 1, Store(tmp_path / "costs.sqlite"))
    assert [second(graph, node) for node in graph.nodes] == before
    assert second.measured == 0


class Elementwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.sigmoid(torch.relu(self.layer(x))) * x)


def test_what_is_element_wise_has_a_price_but_for_what_a_product_computes_too() -> None:
    graph, weights = folded(*with_weights(Elementwise().eval(), torch.randn(4, 8)))
    costs = KernelCosts(weights, 1)
    costs.seconds = lambda call: 1.0  # type: ignore[method-assign]
    priced = [node.operator for node in graph.nodes if costs(graph, node) > 0]
    assert priced == ["aten.mm", "aten.sigmoid", "aten.mul.Tensor", "aten.exp"]
    assert cheapest(graph, costs).cost == 4.0


def test_a_user_gets_the_fastest_with_the_same_results() -> None:
    model = trained(Inner())
    inputs = {"image": torch.randn(2, 3, 8, 8), "scale": torch.rand(1)}
    fast = girih.optimize(model, inputs, threads=1, seconds=2, backends=("eager", "onednn"))
    before = torch.get_num_threads()
    results = fast(**inputs)
    assert torch.get_num_threads() == before
    for name, expected in model(**inputs).items():
        torch.testing.assert_close(results[name], expected.detach(), rtol=1e-3, atol=1e-4)
    explanation = fast.explain()
    timed = [item.seconds for item in explanation.candidates if item.seconds is not None]
    assert explanation.chosen in explanation.candidates
    assert explanation.chosen.seconds in timed
    assert len(timed) == 3
    assert "measured in turns" in str(explanation)


def test_the_program_is_saved_for_pytorch_alone(tmp_path: Path) -> None:
    model, x = pieces("squeezenet-tiny")
    fast = girih.optimize(model, x, threads=1, seconds=1, backends=("eager",))
    fast.save(tmp_path / "fast.pt2")
    again = torch.export.load(tmp_path / "fast.pt2").module()
    with torch.no_grad():
        result = again(x)
        result = result[0] if isinstance(result, tuple) else result
        torch.testing.assert_close(result, model(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backends": ("moon",)}, "no back end 'moon'"),
        ({"alpha": 0.5}, "alpha of 1 or more"),
        ({"threads": 0}, "expected a whole number of threads, 1 or more, got 0"),
        ({"threads": 1.5}, "expected a whole number of threads, 1 or more, got 1.5"),
        ({"seconds": "a"}, "expected numbers for seconds and alpha, got 'a'"),
        ({"backends": "eager"}, "backends are a sequence of names"),
        ({"backends": 3}, "backends are a sequence of names"),
        ({"rules": ("mm(a, b) == mm(b, a)",)}, "is no Rule"),
        ({"rules": 3}, "rules are a sequence of rules, got 3"),
        ({"rules": (parse("relu(x) == sigmoid(x)"),)}, r"refuted, so not used: .*relu\(x\) == sigmoid\(x\)"),
        ({"rules": (parse("x[m, n]: relu(x) == moonify(x)"),)}, "no operator 'moonify' is described"),
        ({"search": 3}, "no search 3 for rewrites: there are backtracking and saturation, or a Backtracking"),
        ({"tolerance": "a"}, "expected a number for tolerance, got 'a'"),
        ({"tolerance": 1.5}, "tolerance is a share of the largest number, such as 0.01, got 1.5"),
        ({"otherwise": "maybe"}, "no way 'maybe' to answer other calls: there are model, again, refuse"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(OptimizeError, match=says):
        girih.optimize(trained(Inner()), {"image": torch.zeros(1, 3, 8, 8)}, **options)  # type: ignore[arg-type]


def test_what_has_no_numbers_is_refused() -> None:
    with pytest.raises(OptimizeError, match=r"the example has no numbers \(Tensor \[1, 2\] on meta\)"):
        girih.optimize(nn.Linear(2, 2).eval(), torch.zeros(1, 2, device="meta"))
    with pytest.raises(OptimizeError, match="the model's 'weight' has no numbers"):
        girih.optimize(nn.Linear(2, 2, device="meta").eval(), torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("chosen", "from_onnx", "says"),
    [
        (0, False, "the model as it was is the fastest: nothing is gained over what you brought"),
        (1, False, "the rewritten program is the fastest: 2.00 × as fast as the model in eager PyTorch"),
        (2, False, "the model as it was, run by onnxruntime, is the fastest: 4.00 × as fast as the model in eager"),
        (2, True, "the model as it was, run by onnxruntime, is the fastest: nothing is gained over what you brought"),
        (3, True, "the rewritten program, run by openvino, is the fastest: 2.00 × as fast as the file in ONNX Runtime"),
    ],
)
def test_one_thing_is_said_and_compared_with_what_the_user_brought(chosen: int, from_onnx: bool, says: str) -> None:
    fast = girih.optimize(nn.ReLU().eval(), torch.randn(2), threads=1, seconds=0.1, backends=("eager",))
    candidates = (
        Candidate("as it was", "eager", 8.0),
        Candidate("rewritten", "eager", 4.0),
        Candidate("as it was", "onnxruntime", 2.0),
        Candidate("rewritten", "openvino", 1.0),
    )
    told = replace(fast.explain(), candidates=candidates, chosen=candidates[chosen], from_onnx=from_onnx)
    assert str(told).splitlines()[-1].startswith(says)
    assert "not used" not in str(told)


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(OptimizeError, match=r"call model\.eval"):
        girih.optimize(nn.Linear(2, 2).train(), torch.zeros(1, 2))


class Returns(nn.Module):
    """Results that are no tensors among those that are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[object, ...]:
        y = self.layer(x)
        return y, None, {"n": 3, "relu": y.relu()}


def test_results_that_are_no_tensors_are_returned_too() -> None:
    x = torch.randn(2, 4)
    fast = girih.optimize(Returns().eval(), x, threads=1, seconds=0.2, backends=("eager",))
    assert [item.why for item in fast.explain().candidates if item.seconds is None] == []
    _, nothing, more = fast(x)
    assert nothing is None
    assert more["n"] == 3
    captured = capture(Inference(Returns()), (x,))
    assert captured.nest([1, 2]) == (1, None, {"n": 3, "relu": 2})


class Holder:
    """What PyTorch does not open."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.layers = [{"key": tensor}]


def test_results_that_are_hidden_from_pytorch_are_refused_or_tell_who_uses_them() -> None:
    @dataclass
    class Answer:
        scores: torch.Tensor
        count: int = 3

    class Model(nn.Module):
        def __init__(self, close: Callable[[torch.Tensor], object]) -> None:
            super().__init__()
            self.layer, self.close = nn.Linear(4, 4), close

        def forward(self, x: torch.Tensor) -> object:
            return self.close(self.layer(x))

    x = torch.randn(2, 4)
    for close in (Answer, Holder, lambda y: UserDict(scores=y), lambda y: [MappingProxyType({"scores": y})]):
        with pytest.raises(CaptureError, match=r"is returned, whose tensors are not given back: .*register_dataclass"):
            capture(Inference(Model(close)), (x,))
    beside = Model(lambda y: (y, Holder(y))).eval()
    scores, _ = girih.optimize(beside, x, threads=1, seconds=0.1, backends=("eager", "onednn"))(x)
    torch.testing.assert_close(scores, beside.layer(x))
    captured = capture(Inference(beside), (x,))
    _, hidden = captured.nest([scores])
    assert repr(copy.deepcopy(hidden)) == "<a Holder, whose tensors are not given back>"
    for use in (lambda: hidden.layers, lambda: hidden[0], lambda: len(hidden), lambda: bool(hidden)):
        with pytest.raises(CaptureError, match="a Holder is returned, whose tensors are not given back"):
            use()
    torch.export.register_dataclass(Answer)
    model = Model(Answer).eval()
    answer = girih.optimize(model, x, threads=1, seconds=0.1, backends=("eager",))(x)
    assert isinstance(answer, Answer)
    assert answer.count == 3
    torch.testing.assert_close(answer.scores, model.layer(x))


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_a_model_that_writes_or_draws_is_refused_and_left_alone() -> None:
    model = Counts().eval()
    with pytest.raises(OptimizeError, match="writes into its buffer or parameter 'calls'"):
        girih.optimize(model, torch.ones(2), threads=1, seconds=0.1, backends=("eager",))
    assert model.calls == 0
    random = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
    random[1].train()
    with pytest.raises(OptimizeError, match="draws random numbers"):
        girih.optimize(random, torch.ones(1, 2), threads=1, seconds=0.1, backends=("eager",))


class WritesIntoItsInput(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1).relu()


def test_a_model_that_writes_into_its_input_is_refused_and_the_example_left_alone() -> None:
    x = torch.zeros(3)
    with pytest.raises(OptimizeError, match=r"writes into its input of shape \(3,\)"):
        girih.optimize(WritesIntoItsInput().eval(), x, threads=1, seconds=0.1, backends=("eager",))
    assert torch.equal(x, torch.zeros(3))


def test_an_optimised_model_stays_in_evaluation_and_is_not_pickled(tmp_path: Path) -> None:
    model = trained(Inner())
    mean = model.norm.running_mean.clone()
    inputs = {"image": torch.randn(2, 3, 8, 8), "scale": torch.rand(1)}
    fast = girih.optimize(model, inputs, threads=1, seconds=0.2, backends=("eager",))
    assert not fast.training
    fast.train()(**inputs)
    assert not model.training
    assert torch.equal(model.norm.running_mean, mean)
    with pytest.raises(OptimizeError, match=r"fast\.save"):
        torch.save(fast, tmp_path / "fast.pt")
    with pytest.raises(OptimizeError, match="there is no folder"):
        fast.save(tmp_path / "none" / "fast.pt2")


def test_a_model_is_optimised_in_inference_mode() -> None:
    """Whose tensors, the example among them, count no writes."""
    with torch.inference_mode():
        model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4)
        fast = girih.optimize(model, x, threads=1, seconds=0.1, backends=("eager", "onednn"), otherwise="again")
        for batch in (x, x[:1]):
            torch.testing.assert_close(fast(batch), model(batch))
    torch.testing.assert_close(fast(torch.zeros(2, 4)), model(torch.zeros(2, 4)))


def test_half_precision_with_a_layer_norm_is_optimised() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).eval().bfloat16()
    x = torch.randn(3, 8).bfloat16()
    fast = girih.optimize(model, x, threads=1, seconds=0.2, backends=("eager", "onednn"))
    torch.testing.assert_close(fast(x), model(x).detach(), rtol=2e-2, atol=2e-2)


def test_short_types_may_differ_by_a_few_roundings() -> None:
    one = torch.ones(4, dtype=torch.bfloat16)
    assert same([one], [one + torch.finfo(torch.bfloat16).eps])
    assert not same([one], [one * 1.1])
    assert not same([one.float()], [one.float() * 1.01])
    assert same([one.double()], [one.double() + 1e-15])
    assert not same([one.double()], [one.double() + 1e-7])  # a library that computes in float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16])
def test_infinities_and_nan_in_the_same_places_are_the_same(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0, float("inf"), float("-inf"), float("nan")], dtype=dtype)
    assert same([one], [one.clone()])
    near = one.clone()
    near[0] += torch.finfo(dtype).eps
    assert same([near], [one])
    for place, value in ((0, float("nan")), (1, float("-inf")), (2, 3.0), (3, 3.0), (0, 2.0), (0, float("inf"))):
        other = one.clone()
        other[place] = value
        assert not same([one], [other])
        assert not same([other], [one])
    assert same([torch.full((2,), float("-inf"), dtype=dtype)], [torch.full((2,), float("-inf"), dtype=dtype)])


def test_whole_numbers_are_compared_to_the_last_bit() -> None:
    one = torch.tensor([1 << 60, 3])
    assert same([one], [one.clone()])
    assert not same([one], [one + 1])
    assert not same([one > 3], [one > 2])


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layer(x)
        return y.masked_fill(y < 0, float("-inf")), torch.log(y)


def test_a_model_whose_results_have_infinities_and_nan_is_tried_everywhere() -> None:
    """But for PyTorch's own compiler, which takes as long as all others together."""
    backends = ["eager", "onednn", *(name for name in ("onnxruntime", "openvino") if find_spec(name))]
    fast = girih.optimize(Masked().eval(), torch.randn(16, 8), threads=1, seconds=0.2, backends=backends)
    assert {item.backend for item in fast.explain().candidates} == set(backends)
    assert [item for item in fast.explain().candidates if item.why] == []
