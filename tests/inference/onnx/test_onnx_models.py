"""ONNX models become modules and graphs that give their outputs; what they cannot is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

import girih
from girih.capture import CaptureError, Inference, capture
from girih.capture.torch.state import state_of
from girih.inference.onnx.errors import OnnxError
from girih.inference.onnx.file import from_proto
from girih.inference.onnx.module import OnnxModule
from girih.inference.onnx.translate import translated
from girih.kernels.evaluate import interpret
from girih.models import example

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def model(text: str, opset: int = 21) -> ModelProto:
    """A model in ONNX's own textual form."""
    return onnx.parser.parse_model(HEAD.replace("21", str(opset)) + "agraph " + text)


def of(proto: ModelProto, *inputs: torch.Tensor, **sizes: int) -> OnnxModule:
    return translated(from_proto(proto), inputs or None, sizes)


def through_a_graph(module: OnnxModule) -> list[torch.Tensor]:
    """What the captured graph makes of the module's example."""
    batch = tuple(module.example.values())
    captured = capture(Inference(module), batch)
    state = state_of(Inference(module), captured.graph)
    given = {item.name: state[item.path] for item in captured.graph.inputs if item.path in state}
    results = interpret(captured.graph, given | captured.flatten(batch))
    return [results[item.name] for item in captured.graph.outputs]


def reference(proto: ModelProto, *inputs: torch.Tensor) -> list[np.ndarray]:
    """By ONNX's own reference implementation."""
    evaluator = onnx.reference.ReferenceEvaluator(proto)
    names = [item.name for item in proto.graph.input]
    return evaluator.run(None, {name: item.numpy() for name, item in zip(names, inputs, strict=True)})  # type: ignore[no-any-return]


X = torch.linspace(-2.0, 2.0, 24).reshape(2, 3, 4)

MODELS = {
    "attention": """(float[2, 3, 4] x) => (float[2, 3, 4] y) {
        t = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, t)  w = Softmax <axis = -1> (s)  y = MatMul (w, x) }""",
    "sizes from shapes": """(float[2, 3, 4] x) => (float[N, M] y) {
        s = Shape (x)  zero = Constant <value = int64 {0}> ()  n = Gather (s, zero)
        axis = Constant <value = int64[1] {0}> ()  rows = Unsqueeze (n, axis)
        rest = Constant <value = int64[1] {-1}> ()  both = Concat <axis = 0> (rows, rest)  y = Reshape (x, both) }""",
    "reductions": """(float[2, 3, 4] x) => (float[A, B, C] y, int64[D, E, F] z) {
        axes = Constant <value = int64[2] {0, 2}> ()  m = ReduceMean <keepdims = 1> (x, axes)
        l = ReduceLogSumExp <keepdims = 1> (x, axes)  y = Mul (m, l)
        z = ArgMax <axis = 2, select_last_index = 1> (x) }""",
    "norms": """(float[2, 3, 4] x) => (float[2, 3, 4] y) {
        w = Constant <value = float[4] {1., 2., 3., 4.}> ()  b = Constant <value = float[4] {0., 1., 0., 1.}> ()
        n = LayerNormalization <axis = -1> (x, w, b)  y = LpNormalization <p = 2> (n) }""",
    "a function of ONNX": "(float[2, 3, 4] x) => (float[2, 3, 4] y) { y = MeanVarianceNormalization <axes = [2]> (x) }",
    "windows": """(float[2, 3, 4] x) => (float[N, C, L] y) {
        p = MaxPool <kernel_shape = [2], strides = [1]> (x)
        y = AveragePool <kernel_shape = [2], pads = [0, 1], count_include_pad = 1> (p) }""",
    "pads and slices": """(float[2, 3, 4] x) => (float[A, B, C] y) {
        p = Constant <value = int64[6] {0, 1, 2, 0, 1, 1}> ()  r = Pad <mode = "reflect"> (x, p)
        s = Constant <value = int64[1] {-1}> ()  e = Constant <value = int64[1] {-100}> ()
        a = Constant <value = int64[1] {2}> ()  t = Constant <value = int64[1] {-2}> ()  y = Slice (r, s, e, a, t) }""",
    "a branch": """(float[2, 3, 4] x) => (float[N] y) {
        n = Size (x)  hundred = Constant <value = int64 {100}> ()  c = Less (n, hundred)
        y = If (c) <then_branch = small () => (float[N] a) { a = Relu (x) },
                    else_branch = large () => (float[N] b) { b = Neg (x) }> }""",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_gives_what_onnx_says(name: str) -> None:
    proto = model(MODELS[name])
    module = of(proto, X)
    for results in (module(X), through_a_graph(module)):
        results = [results] if isinstance(results, torch.Tensor) else results
        for ours, theirs in zip(results, reference(proto, X), strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)


def test_onnx_own_test_data_gives_what_is_expected(tmp_path: Path) -> None:
    """A tenth of what `python -m benchmarks.onnx_coverage` runs, of the files in the wheel."""
    from benchmarks.onnx_coverage import RIGHT, Case, loaded_cases, verdict

    cases: list[Case] = list(loaded_cases(("pytorch-converted", "pytorch-operator")))[::9]
    assert len(cases) > 10
    wrong = {case.name: verdict(case, tmp_path) for case in cases}
    assert not {name: said for name, said in wrong.items() if said[0] != RIGHT}


def test_open_dimensions_are_given_by_name_or_by_an_example() -> None:
    proto = model("(float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }")
    assert of(proto, batch=3).example["x"].shape == (3, 4)
    assert of(proto, torch.zeros(5, 4)).example["x"].shape == (5, 4)
    with pytest.raises(OnnxError, match=r"dimension 'batch' is open, say its size, as batch=1"):
        of(proto)
    with pytest.raises(OnnxError, match=r"input 'x' is \['batch', 4\], the example has \[5, 3\]"):
        of(proto, torch.zeros(5, 3))


def test_inputs_on_which_shapes_depend_are_fixed() -> None:
    proto = model("(float[6] x, int64[2] shape) => (float[N, M] y) { y = Reshape (x, shape) }")
    module = of(proto, torch.arange(6.0), torch.tensor([2, 3]))
    assert module.names == ("x",)
    assert module.fixed["shape"].tolist() == [2, 3]
    assert module(torch.arange(6.0)).shape == (2, 3)
    with pytest.raises(
        ValueError, match=r"expected 1 inputs \(x\), got 2: shapes or branches depend on shape, which the"
    ):
        module(torch.arange(6.0), torch.tensor([2, 3]))
    with pytest.raises(OnnxError, match="'shape' of operator Reshape depends on the input shape: give an example"):
        of(proto)
    data = model("(float[6] x) => (int64[N, M] y) { y = NonZero (x) }")
    with pytest.raises(OnnxError, match="node NonZero: its result's shape depends on data"):
        of(data, torch.arange(6.0))


def test_outputs_need_no_declared_shape() -> None:
    """ONNX Runtime writes and reads such files."""
    proto = model("(float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert torch.equal(of(proto)(X[0, :2, :3]), X[0, :2, :3].relu())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(string[2] x) => (string[2] y) { y = Identity (x) }", "tensors of STRING are not supported"),
        (
            "(float[2] x) => (float[2] y) <float r = {0.5}, bool t = {1}> { y = Dropout (x, r, t) }",
            "node Dropout: in training mode it draws random numbers",
        ),
        ("(float[2] x) => (int64[N] y) { u = Unique (x) y = Shape (u) }", "operator Unique is not supported"),
        ("(uint64[2] x, uint64[2] z) => (bool[2] y) { y = Less (x, z) }", "operator Less of uint64 is not supported"),
    ],
)
def test_what_is_not_supported_is_named(text: str, says: str) -> None:
    with pytest.raises(CaptureError, match=says) as caught:
        of(model(text))
    assert "\n" not in str(caught.value)


def test_functions_of_a_model_are_written_out() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        agraph (float[3] x) => (float[3] y) { y = own.twice <by = 3.0> (x) }
        <domain: "own", opset_import: ["" : 21]> twice <by: float = 2.0> (a) => (b) {
            c = Constant <value_float: float = @by> ()  b = Mul (a, c) }"""
    x = torch.tensor([1.0, 2.0, 3.0])
    assert of(onnx.parser.parse_model(text), x)(x).tolist() == [3.0, 6.0, 9.0]


def test_loops_are_written_out() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["v", "x"], ["w"]),
            helper.make_node("Identity", ["on"], ["go"]),
            helper.make_node("Identity", ["w"], ["s"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [2]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["last", "every"], body=body)],
        "loop",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [
            helper.make_tensor_value_info("last", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("every", TensorProto.FLOAT, [3, 2]),
        ],
        [numpy_helper.from_array(np.array(3), "n")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = torch.tensor([2.0, 3.0])
    last, every = of(proto, x)(x)
    assert last.tolist() == [16.0, 81.0]
    assert every.tolist() == [[4.0, 9.0], [8.0, 27.0], [16.0, 81.0]]


def test_large_logits_have_a_softmax() -> None:
    """A graph takes exponentials of differences to a logarithm of a sum, which float32 cannot hold."""
    proto = model("(float[1, 1000] x) => (float[1, 1000] y) { y = Softmax (x) }")
    x = torch.full((1, 1000), 1e9)
    torch.testing.assert_close(through_a_graph(of(proto, x))[0], torch.full((1, 1000), 1e-3))


def test_a_model_that_pytorch_wrote_comes_back(tmp_path: Path) -> None:
    """PyTorch → ONNX → girih: the same results."""
    from girih.inference.export import exported, write

    shown = example("squeezenet-tiny", batch=2, device="cpu")
    net, x = shown.module.eval(), torch.randn(shown.inputs["images"].shape)
    write(exported(net, (x,)), tmp_path / "net.onnx")
    again = girih.read_onnx(tmp_path / "net.onnx", (x,))
    with torch.no_grad():
        torch.testing.assert_close(again(x), net(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(through_a_graph(again)[0], net(x), rtol=1e-4, atol=1e-5)
