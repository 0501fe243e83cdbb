"""ONNX files that are damaged or hostile: one line, nothing outside the model's folder is read, nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, external_data_helper, helper, numpy_helper

from girih.cli.main import main
from girih.inference.onnx import translate
from girih.inference.onnx.errors import OnnxError
from girih.inference.onnx.file import PROTOBUF_BYTES, read_file
from girih.inference.onnx.translate import read

HEAD = '<ir_version: 10, opset_import: ["" : 21]> agraph '


def saved(path: Path, text: str) -> Path:
    """A model of ONNX's textual form, unchecked."""
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    return path


def with_weights(location: str, **more: str) -> ModelProto:
    """x + w, where w is 4 numbers that lie elsewhere."""
    weight = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    external_data_helper.set_external_data(weight, location)
    weight.ClearField("raw_data")
    for key, value in more.items():
        weight.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def damaged(folder: Path) -> Path:
    path = saved(folder / "m.onnx", HEAD + "(float[4] x) => (float[4] y) { y = Relu (x) }")
    path.write_bytes(path.read_bytes()[:-7])
    return path


def text(folder: Path) -> Path:
    (folder / "m.onnx").write_text("this is no model\n" * 20)
    return folder / "m.onnx"


def empty(folder: Path) -> Path:
    (folder / "m.onnx").write_bytes(b"")
    return folder / "m.onnx"


def too_large(folder: Path) -> Path:
    with (folder / "m.onnx").open("wb") as file:
        file.truncate(PROTOBUF_BYTES + 1)  # a hole: it takes no room on the disk
    return folder / "m.onnx"


def a_folder(folder: Path) -> Path:
    (folder / "m.onnx").mkdir()
    return folder / "m.onnx"


def cyclic(folder: Path) -> Path:
    return saved(folder / "m.onnx", HEAD + "(float[4] x) => (float[4] y) { a = Add (x, b) b = Relu (a) y = Neg (b) }")


def made_twice(folder: Path) -> Path:
    return saved(folder / "m.onnx", HEAD + "(float[4] x) => (float[4] y) { y = Relu (x) y = Neg (x) }")


def made_by_nothing(folder: Path) -> Path:
    return saved(folder / "m.onnx", HEAD + "(float[4] x) => (float[4] y) { y = Add (x, other) }")


def unknown_operator(folder: Path) -> Path:
    return saved(folder / "m.onnx", HEAD + "(float[4] x) => (float[4] y) { y = Frobnicate (x) }")


def another_library(folder: Path) -> Path:
    head = '<ir_version: 10, opset_import: ["" : 21, "com.other" : 1]> agraph '
    return saved(folder / "m.onnx", head + "(float[4] x) => (float[4] y) { y = com.other.FusedThing (x) }")


def from_the_future(folder: Path) -> Path:
    newer = HEAD.replace("21", str(onnx.defs.onnx_opset_version() + 1))
    return saved(folder / "m.onnx", newer + "(float[4] x) => (float[4] y) { y = Relu (x) }")


def wrong_attribute(folder: Path) -> Path:
    return saved(folder / "m.onnx", HEAD + "(float[4] x) => (float[4] y) { y = Relu <alpha = 2> (x) }")


def function_of_itself(folder: Path) -> Path:
    body = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        agraph (float[4] x) => (float[4] y) { y = own.again (x) }
        <domain: "own", opset_import: ["" : 21, "own" : 1]> again (a) => (b) { b = own.again (a) }"""
    return saved(folder / "m.onnx", body)


def large_constant(folder: Path) -> Path:
    """A few bytes that would be 4 TB."""
    body = (
        "(float[4] x) => (float[N] y) { s = Constant <value = int64[2] {1000000, 1000000}> () z = ConstantOfShape (s) "
    )
    return saved(folder / "m.onnx", HEAD + body + "y = Add (z, z) }")


def endless_loop(folder: Path) -> Path:
    one, on = (
        helper.make_tensor_value_info(*item, []) for item in (("i", TensorProto.INT64), ("on", TensorProto.BOOL))
    )
    state = helper.make_tensor_value_info("v", TensorProto.FLOAT, [4])
    ends = [helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_tensor_value_info("w", 1, [4])]
    nodes = [helper.make_node("Neg", ["v"], ["w"]), helper.make_node("Identity", ["on"], ["go"])]
    body = helper.make_graph(nodes, "body", [one, on, state], ends)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    loop = helper.make_node("Loop", ["", "", "x"], ["y"], body=body)
    graph = helper.make_graph([loop], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def outside(location: str, **more: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        inner = folder / "inner"
        inner.mkdir()
        np.arange(8, dtype=np.float32).tofile(folder / "secret.bin")
        np.arange(8, dtype=np.float32).tofile(inner / "weights.bin")
        (inner / "link.bin").symlink_to(folder / "secret.bin")
        (inner / "linked").symlink_to(folder)
        os.link(folder / "secret.bin", inner / "hard.bin")
        model = with_weights(location.replace("FOLDER", str(folder)), **more)
        (inner / "m.onnx").write_bytes(model.SerializeToString())
        return inner / "m.onnx"

    return make


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "damaged": (damaged, "is no ONNX file, or damaged"),
    "text": (text, "is no ONNX file, or damaged"),
    "empty": (empty, "it is no ONNX model, or damaged: it has no graph"),
    "2 GB": (too_large, "2.15 GB: protobuf holds no message over 2 GB"),
    "a folder": (a_folder, "is no file"),
    "cycle": (cyclic, "node Add reads 'b', which Relu makes behind it: the graph has a cycle, or is unsorted"),
    "made twice": (made_twice, "'y' is made twice, by node Neg too"),
    "made by nothing": (made_by_nothing, "node Add reads 'other', which nothing makes"),
    "unknown operator": (unknown_operator, "operator Frobnicate is unknown"),
    "another library": (another_library, "operator com.other.FusedThing is unknown"),
    "newer opset": (from_the_future, "knows up to"),
    "wrong attribute": (wrong_attribute, "it is no valid ONNX model: Unrecognized attribute: alpha"),
    "function of itself": (function_of_itself, ""),
    "large constant": (large_constant, "makes a constant of [1000000, 1000000]"),
    "endless loop": (endless_loop, "more than"),
    "above": (
        outside("../secret.bin"),
        "weight 'w' lies in '../secret.bin': expected a file in the model's own folder",
    ),
    "absolute": (outside("FOLDER/secret.bin"), "expected a file in the model's own folder"),
    "link": (outside("link.bin"), "which is reached by a link"),
    "linked folder": (outside("linked/secret.bin"), "which is reached by a link"),
    "hard link": (outside("hard.bin"), "which has other names too"),
    "absent": (outside("absent.bin"), "and there is no such file"),
    "too short": (outside("weights.bin", offset="24"), "16 bytes from 24 on are not [4] of torch.float32"),
    "wrong length": (outside("weights.bin", length="12"), "12 bytes from 0 on are not [4]"),
    "no number": (outside("weights.bin", offset="many"), "its offset and length are no numbers"),
    "no name": (outside("weights\0.bin"), "expected a file in the model's own folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_line_and_nothing_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "MOST_NODES", 300)
    make, says = BAD[name]
    path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main(["optimize", str(path), "--backends", "eager", "-o", str(tmp_path / "faster.onnx")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = [item for item in printed.err.splitlines() if item.startswith("girih optimize:")]
    assert says in line
    assert str(path) in line
    assert "Traceback" not in printed.err
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(OnnxError):
        read(path)


def test_weights_of_the_model_s_own_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    np.arange(8, dtype=np.float32).tofile(tmp_path / "parts" / "weights.bin")
    (tmp_path / "m.onnx").write_bytes(with_weights("parts/weights.bin", offset="16").SerializeToString())
    assert read_file(tmp_path / "m.onnx").weights["w"].tolist() == [4.0, 5.0, 6.0, 7.0]
    module = read(tmp_path / "m.onnx")
    assert module(*module.example.values()).shape == (4,)


def small(nodes: list[onnx.NodeProto], **declared: tuple[int, list[int]]) -> bytes:
    """A model of x to y; declared: types of values by name."""
    of = {"x": (onnx.TensorProto.FLOAT, [2, 3]), "y": (onnx.TensorProto.FLOAT, [2, 3])} | declared
    values = {name: onnx.helper.make_tensor_value_info(name, *kind) for name, kind in of.items()}
    graph = onnx.helper.make_graph(nodes, "graph", [values.pop("x")], [values.pop("y")], value_info=[*values.values()])
    return bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]).SerializeToString())


def loop(turns: int) -> list[onnx.NodeProto]:
    """As many turns of relu, or of nothing."""
    info, kinds = onnx.helper.make_tensor_value_info, onnx.TensorProto
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["on"], ["still"]), onnx.helper.make_node("Relu", ["v"], ["w"])],
        "body",
        [info("turn", kinds.INT64, []), info("on", kinds.BOOL, []), info("v", kinds.FLOAT, [2, 3])],
        [info("still", kinds.BOOL, []), info("w", kinds.FLOAT, [2, 3])],
    )
    return [
        onnx.helper.make_node("Constant", [], ["n"], value_int=turns),
        onnx.helper.make_node("Constant", [], ["t"], value=onnx.helper.make_tensor("t", kinds.BOOL, [], [True])),
        onnx.helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body),
    ]


@pytest.mark.parametrize(
    ("nodes", "declared", "says"),
    [
        ("relu", {"x": (onnx.TensorProto.FLOAT, [-2, 3])}, r"'x' is declared as \[-2, 3\]: sizes are 0 or more"),
        ("relu", {"y": (onnx.TensorProto.FLOAT, [5, 3])}, r"'y' is declared as float32\[5, 3\], and what computes it"),
        ("relu", {"y": (onnx.TensorProto.INT64, [2, 3])}, r"'y' is declared as int64.*makes float32\[2, 3\]"),
        ("two", {"z": (onnx.TensorProto.FLOAT16, [9])}, r"'z' is declared as float16\[9\]"),
        ("loop", {}, "with its loops written out it has more than 50000 nodes"),
    ],
)
def test_what_a_file_declares_falsely_is_told_at_once(
    nodes: str, declared: dict[str, tuple[int, list[int]]], says: str, tmp_path: Path
) -> None:
    node = onnx.helper.make_node
    graphs = {
        "relu": [node("Relu", ["x"], ["y"])],
        "two": [node("Relu", ["x"], ["z"]), node("Relu", ["z"], ["y"])],
        "loop": loop(10**9),
    }
    (tmp_path / "model.onnx").write_bytes(small(graphs[nodes], **declared))
    with pytest.raises(OnnxError, match=says):
        read(tmp_path / "model.onnx")
