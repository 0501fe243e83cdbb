"""ONNX out, and the libraries that run it: the model's results, and the fastest that gives them."""

from __future__ import annotations

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import girih
from girih.capture import Inference, capture
from girih.capture.torch.state import state_of
from girih.inference import trial
from girih.inference.export import ExportError, exported, write
from girih.inference.module import module_of
from girih.inference.optimized import OptimizeError
from girih.inference.runtimes.apart import Apart, ApartError
from girih.inference.runtimes.backends import RUNTIMES
from girih.inference.trial import choice, fastest
from girih.rewrite.constants import folded
from girih.rewrite.passes.whole import Whole
from girih.rewrite.results import check_results


class Block(nn.Module):
    """A transformer's block on the pixels of a small image: all that is put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.norm = nn.LayerNorm(8)
        self.take = nn.Linear(8, 24)
        self.words = nn.Embedding(5, 8)

    def forward(self, image: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.pool(image).flatten(2).transpose(1, 2) + self.words(words)
        q, k, v = self.take(self.norm(x)).reshape(2, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v
        return mixed.mean((1, 3)), torch.log_softmax(x, -1)


def block() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return Block().eval(), (torch.randn(2, 8, 4, 4), torch.randint(5, (2, 4)))


def test_parts_become_whole_operators() -> None:
    model, inputs = block()
    graph = capture(Inference(model), inputs).graph
    whole = Whole().apply(graph)
    operators = {node.operator for node in whole.nodes}
    expected = {"max_pool2d", "layer_norm", "embedding", "_log_softmax", "scaled_dot_product_attention", "mean.dim"}
    assert {f"aten.{name}" for name in expected} <= operators
    assert not any(name.startswith("girih.") for name in operators)
    check_results(graph, whole)


@pytest.mark.parametrize("heads", [4, 2])
def test_attention_that_stayed_whole_is_pytorch_s(heads: int) -> None:
    class Attention(nn.Module):
        def forward(self, query: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
            mixed = nn.functional.scaled_dot_product_attention
            return mixed(query, both, 2.0 * both, is_causal=True, enable_gqa=heads < 4)  # type: ignore[no-any-return]

    inputs = torch.randn(2, 4, 5, 8), torch.randn(2, heads, 5, 8)
    graph = capture(Inference(Attention()), inputs).graph
    whole = Whole().apply(graph)
    assert [node.operator for node in whole.nodes] == ["aten.mul.Tensor", "aten.scaled_dot_product_attention"]
    check_results(graph, whole)


@pytest.fixture(scope="module")
def program() -> bytes:
    """The block as ONNX."""
    model, inputs = block()
    captured = capture(Inference(model), inputs)
    state = state_of(Inference(model), captured.graph)
    weights = {item.name: state[item.path] for item in captured.graph.inputs if item.path in state}
    graph, weights = folded(Whole().apply(captured.graph), weights)
    program = exported(module_of(graph, weights), inputs).model_proto
    onnx.checker.check_model(program)
    return program.SerializeToString()  # type: ignore[no-any-return]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtimes_give_the_model_s_results(runtime: str, program: bytes, tmp_path: Path) -> None:
    if find_spec(runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    model, inputs = block()
    (tmp_path / "model.onnx").write_bytes(program)
    with Apart(1) as place:
        try:
            place.check(runtime, str(tmp_path / "model.onnx"), {}, [item.numpy() for item in inputs])
        except ApartError as error:
            pytest.skip(f"{runtime} {error}: as OpenVINO 2026.4 does with ONEDNN_MAX_CPU_ISA=AVX2")
    run = RUNTIMES[runtime](program, 1, None)
    assert sys.modules.get("openvino_telemetry") is None  # nothing is reported to anybody
    first = run(*inputs)
    run(*(torch.zeros_like(item) for item in inputs))  # results are the caller's own
    with torch.no_grad():
        for ours, theirs in zip(first, model(*inputs), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_model_goes_through_a_file_and_back(tmp_path: Path) -> None:
    """`girih optimize model.onnx -o faster.onnx` and `faster.pt2`."""
    onnxruntime = pytest.importorskip("onnxruntime")
    model, inputs = block()
    write(exported(model, inputs, inputs=["image", "words"]), tmp_path / "model.onnx")
    fast = girih.optimize(tmp_path / "model.onnx", inputs, threads=1, seconds=1, backends=("eager", "onnxruntime"))
    with torch.no_grad():
        expected = model(*inputs)
        for ours, theirs in zip(fast(*inputs), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert {item.backend for item in fast.explain().candidates} == {"eager", "onnxruntime"}
    fast.save(tmp_path / "faster.onnx")
    onnx.checker.check_model(tmp_path / "faster.onnx", full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "faster.onnx", providers=["CPUExecutionProvider"])
    assert [item.name for item in session.get_inputs()] == ["image", "words"]  # as in the file that came
    assert [item.name for item in session.get_outputs()] == list(fast.model.results)
    given = {item.name: value.numpy() for item, value in zip(session.get_inputs(), inputs, strict=True)}
    for ours, theirs in zip(session.run(None, given), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=1e-4, atol=1e-5)
    fast.save(tmp_path / "faster.pt2")
    again = torch.export.load(tmp_path / "faster.pt2").module()(*inputs)
    torch.testing.assert_close(again[0], expected[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(OptimizeError, match=r"is to end in \.pt2, \.onnx or \.girih"):
        fast.save(tmp_path / "faster.txt")


def test_what_onnx_has_not_is_told_in_one_line() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.airy_ai(x)

    with pytest.raises(ExportError, match="PyTorch's exporter writes no ONNX of it") as caught:
        exported(Odd(), (torch.randn(3),))
    assert "\n" not in str(caught.value)


def test_ties_go_to_the_simplest_and_noise_decides_nothing() -> None:
    even = [1.0, 1.001] * 10
    assert choice([even, [0.999] * 20]) == 0
    assert choice([[2.0] * 20, even]) == 1
    assert choice([even, [0.8, 0.801] * 10]) == 1
    busy = [0.9 if number % 3 else 5.0 for number in range(20)]  # another program had the core in a third of the rounds
    assert choice([even, busy]) == 1
    assert choice([[0.1] * 4, even, even]) == 1  # out of the race after four rounds
    assert choice([[0.0] * 20, [0.0] * 20]) == 0  # a clock that is too coarse for such a model


def test_a_way_with_other_results_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3)

    def broken() -> object:
        raise ImportError("no module named moon")

    def slow(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return x + 1

    ways = [
        ("as it was", "slow", lambda: slow),
        ("rewritten", "wrong", lambda: lambda x: x + 2),
        ("rewritten", "absent", broken),
        ("rewritten", "quick", lambda: lambda x: 1 + x),
    ]
    candidates, chosen, run = fastest(iter(ways), (x,), {})
    assert chosen.backend == "quick"
    assert run(x).tolist() == [2.0, 2.0, 2.0]
    assert [item.why for item in candidates if item.seconds is None] == [
        "refused: its results are others",
        "does not run: ImportError: no module named moon",
    ]


@pytest.mark.parametrize(("spins", "sleeps"), [(0, 1), (20, 21), (1000, 50)])
def test_a_turn_begins_when_threads_of_the_way_before_are_asleep(
    spins: int, sleeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or after a tenth of a second: something else may compute in this process all the time."""
    slept: list[float] = []
    busy = lambda: sum(slept[:spins]) + 0.01 * sum(slept[spins:])  # noqa: E731
    monkeypatch.setattr(trial.time, "sleep", slept.append)
    monkeypatch.setattr(trial.time, "process_time", busy)
    called: list[int] = []
    turn = trial.Turn(lambda: float(len(called)), 1.0)
    assert turn.seconds(lambda: called.append(len(slept))) == 1
    assert called == [sleeps] * trial.CALLS


def test_what_is_asked_before_a_call_counts() -> None:
    """The model itself answers every call, and is asked nothing."""
    ways = [("as it was", "eager", lambda: lambda x: time.sleep(0.002)), ("rewritten", "quick", lambda: lambda x: None)]
    asked: list[object] = []

    def check(*call: object) -> None:
        asked.append(call)
        time.sleep(0.02)

    assert fastest(iter(ways), (3,), {}, check=check)[1].backend == "eager"
    assert set(map(repr, asked)) == {"((3,), {})"}
    assert fastest(iter(ways), (3,), {})[1].backend == "quick"


@pytest.mark.parametrize(("tolerance", "runs"), [(0.2, True), (1e-6, False), (None, False)])
@pytest.mark.parametrize(
    ("backend", "type"), [("onnxruntime", "int8"), ("eager", "bfloat16"), ("openvino", "bfloat16")]
)
def test_shorter_types_are_tried_where_a_tolerance_is_stated(
    backend: str, type: str, tolerance: float | None, runs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if backend != "eager":
        pytest.importorskip(backend)
    monkeypatch.setattr(trial, "FAR", float("inf"))
    monkeypatch.setattr(trial, "choice", lambda took: len(took) - 1)
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU()).eval(), torch.randn(4, 32)
    options = {"threads": 1, "seconds": 0.1, "backends": (backend,), "tolerance": tolerance}
    fast = girih.optimize(model, x, **options)
    short = [item for item in fast.explain().candidates if item.program.endswith(f", {type}")]
    if tolerance is None:
        assert short == []
        return
    assert len(short) == 2
    if backend == "openvino" and short[-1].error == 0:
        pytest.skip("this processor has no bfloat16, in which OpenVINO then does not compute")
    if backend == "openvino" and "ONEDNN_MAX_CPU_ISA" in os.environ and short[-1].error is None:
        pytest.skip("oneDNN may not use what the processor has, and OpenVINO does not compute in bfloat16 then")
    if not runs:
        assert all(item.why.startswith("refused: it is off by ") for item in short)
        return
    assert all(0 < item.error < tolerance for item in short)
    assert fast.explain().chosen in short
    assert f"off by {short[-1].error:.2g} of the largest number" in str(fast.explain())
    apart = (fast(x) - model(x)).detach().abs().max() / model(x).abs().max()
    assert 0 < apart < tolerance
    with pytest.raises(OptimizeError, match=f"{type} has won, which is not written"):
        fast.save(tmp_path / "x.girih")


def test_a_program_in_short_types_is_refused_where_numbers_are_lost() -> None:
    nan, one = torch.tensor([float("nan"), 1.0]), torch.tensor([1.0, 1.0])
    for result in ((nan, one), (one, nan), (one, one[:1]), (one,), (one, one.long())):
        ways = [("as it was", "x", lambda: lambda x: (one, one)),
                ("rewritten, int8", "y", lambda result=result: lambda x: result)]  # fmt: skip
        candidates, chosen, _ = fastest(iter(ways), (one,), {}, tolerance=0.5)
        assert chosen.backend == "x"
        assert candidates[1].why.startswith("refused: it is off by inf")
