"""An ONNX file, read as data: checked before anything of it is used, and nothing outside its folder is opened.

What is refused, each in one line: a file that is not whole, or over protobuf's 2 GB; a graph in which a value is read
before it is made (a cycle), made twice or never; weights in other files that are not plain files of the model's own
folder, or shorter than the model says; operators that neither ONNX defines nor the model itself, as a function.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.version_converter
from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from girih.inference.onnx.errors import OnnxError
from girih.inference.onnx.tensors import dtype_of, first_line, from_numpy, tensor_of

PROTOBUF_BYTES = (1 << 31) - 1
OLDEST = 13
"""Models of older opsets are brought to this one by ONNX's own converter."""
KEPT_BYTES = 4096
"""Larger weights are taken out of the message before it is checked and converted, which copies it."""


@dataclass(frozen=True)
class OnnxFile:
    """weights: initial values by name. functions: the model's own, by domain and name. opset: of ONNX's own domain.
    path: where it was read."""

    graph: GraphProto
    weights: dict[str, Any]
    functions: dict[tuple[str, str], FunctionProto]
    opset: int
    path: Path | None


def read_file(path: str | Path) -> OnnxFile:
    """Read a model, and refuse with an OnnxError what the head of this file names."""
    path = Path(path)
    try:
        status = path.stat()
    except OSError as error:
        raise OnnxError(f"there is no file {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise OnnxError(f"{path} is no file")
    if status.st_size > PROTOBUF_BYTES:
        raise OnnxError(
            f"{path} has {status.st_size / 1e9:.2f} GB: protobuf holds no message over 2 GB; store the weights as "
            "external data beside the model"
        )
    model = ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except (DecodeError, RuntimeError, ValueError) as error:
        raise OnnxError(f"{path} is no ONNX file, or damaged: {first_line(error)}") from error
    try:
        return from_proto(model, path)
    except OnnxError as error:
        raise OnnxError(f"{path}: {error}") from error


def from_proto(model: ModelProto, path: Path | None = None) -> OnnxFile:
    """The same for a model in memory, whose external data, if any, lies beside `path`."""
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise OnnxError("it is no ONNX model, or damaged: it has no graph")
    versions = {item.domain: item.version for item in model.opset_import}
    opset = versions.get("", versions.get("ai.onnx"))
    if opset is None and model.graph.node and all(node.domain in ("", "ai.onnx") for node in model.graph.node):
        raise OnnxError("it does not say the version of its operators (opset_import)")
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and opset > newest:
        raise OnnxError(
            f"its operators are of opset {opset}, the installed onnx {onnx.__version__} knows up to {newest}"
        )
    _check_order(model.graph, set())
    weights = _taken_out(model, path)
    _check_names(model)
    kinds = [item.type.tensor_type for item in model.graph.output if item.type.WhichOneof("value") == "tensor_type"]
    bare = [kind for kind in kinds if not kind.HasField("shape")]
    for kind in bare:  # ONNX Runtime, which writes such files, asks for none, but the checker does
        kind.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise OnnxError(f"it is no valid ONNX model: {first_line(error)}") from error
    except UnicodeDecodeError as error:
        raise OnnxError("it is no valid ONNX model: a name is not UTF-8") from error
    for kind in bare:
        kind.ClearField("shape")
    model, opset = _converted(model, opset or newest)
    weights |= {item.name: tensor_of(item) for item in model.graph.initializer if item.name not in weights}
    functions = {(item.domain, item.name): item for item in model.functions}
    return OnnxFile(model.graph, weights, functions, opset, path)


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    for item in node.attribute:
        if item.type == AttributeProto.GRAPH:
            yield item.g
        yield from item.graphs


def _check_order(graph: GraphProto, outer: set[str]) -> None:
    """Every value is made once, and before it is read: so nothing runs in a circle."""
    known = outer | {item.name for item in graph.input} | {item.name for item in graph.initializer}
    known |= {item.values.name for item in graph.sparse_initializer}
    makers = {name: node for node in graph.node for name in node.output if name}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                what = f"node {title(node)} reads {name!r}, which "
                if name in makers:
                    raise OnnxError(
                        f"{what}{title(makers[name])} makes behind it: the graph has a cycle, or is unsorted"
                    )
                raise OnnxError(f"{what}nothing makes")
        for name in node.output:
            if name and name in known and name not in outer:
                raise OnnxError(f"{name!r} is made twice, by node {title(node)} too")
        for inner in graphs_of(node):
            _check_order(inner, known)
        known.update(name for name in node.output if name)
    for item in graph.output:
        if item.name not in known:
            raise OnnxError(f"the output {item.name!r} is made by nothing")


def title(node: NodeProto) -> str:
    """How messages call a node."""
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"{domain}{node.op_type}{f' {node.name!r}' if node.name else ''}"


def _check_names(model: ModelProto) -> None:
    """Every operator is one of ONNX's, or a function of the model."""
    own = {(item.domain, item.name) for item in model.functions}
    imported = {item.domain for item in model.opset_import}
    for graph in (model.graph, *model.functions):
        for node in every_node(graph.node):
            known = onnx.defs.has(node.op_type, "" if node.domain == "ai.onnx" else node.domain)
            if (node.domain, node.op_type) in own:
                continue
            if not known:
                raise OnnxError(f"operator {title(node)} is unknown: it is neither ONNX's nor a function of the model")
            if node.domain not in imported and node.domain not in ("", "ai.onnx"):
                raise OnnxError(f"operator {title(node)} is of a domain that the model does not import")


def every_node(nodes: Any) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for inner in graphs_of(node):
            yield from every_node(inner.node)


def _taken_out(model: ModelProto, path: Path | None) -> dict[str, Any]:
    """The initial values of the graph; large ones, and those in other files, become inputs of the message instead."""
    graph, weights = model.graph, {}
    if graph.sparse_initializer:
        raise OnnxError(f"sparse weights ({graph.sparse_initializer[0].values.name!r}) are not supported")
    for inner in _tensors_within(model):
        if inner.data_location == TensorProto.EXTERNAL:
            raise OnnxError(f"tensor {inner.name!r}, which is no weight of the graph, lies in another file")
    inputs = {item.name for item in graph.input}
    kept = []
    for item in graph.initializer:
        if not item.name:
            raise OnnxError("a weight has no name")
        if item.name in weights:
            raise OnnxError(f"weight {item.name!r} is there twice")
        external = item.data_location == TensorProto.EXTERNAL
        weights[item.name] = _external(item, path) if external else tensor_of(item)
        if external or len(item.raw_data) > KEPT_BYTES:
            if item.name not in inputs:
                graph.input.append(onnx.helper.make_tensor_value_info(item.name, item.data_type, item.dims))
        else:
            kept.append(item)
    copies = [TensorProto.FromString(item.SerializeToString()) for item in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
    return weights


def _tensors_within(model: ModelProto) -> Iterator[TensorProto]:
    """Tensors in attributes, and in graphs and functions within."""
    for nodes in (model.graph.node, *(item.node for item in model.functions)):
        for node in every_node(nodes):
            for item in node.attribute:
                yield from (item.t, *item.tensors)
            for inner in graphs_of(node):
                yield from inner.initializer


def _external(proto: TensorProto, path: Path | None) -> Any:
    """Numbers from a plain file of the model's own folder.

    Raises:
        OnnxError: it lies elsewhere, through `..`, an absolute path or a link; or is too short.
    """
    told = {item.key: item.value for item in proto.external_data}
    location = told.get("location", "")
    where = f"weight {proto.name!r} lies in {location!r}"
    if path is None:
        raise OnnxError(f"{where}: a model in memory has no folder")
    parts = Path(location).parts
    if not location or "\0" in location or "\\" in location or Path(location).is_absolute() or ".." in parts:
        raise OnnxError(f"{where}: expected a file in the model's own folder")
    folder = path.parent
    for count in range(1, len(parts) + 1):
        if folder.joinpath(*parts[:count]).is_symlink():
            raise OnnxError(f"{where}, which is reached by a link: expected a plain file in the model's own folder")
    file = folder / location
    if not file.is_file():
        raise OnnxError(f"{where}, and there is no such file")
    if os.stat(file).st_nlink > 1:
        raise OnnxError(f"{where}, which has other names too (hard links): expected a plain file")
    dtype = dtype_of(proto.data_type)
    numpy_dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)
    if any(size < 0 for size in proto.dims):
        raise OnnxError(f"{where} and has the shape {list(proto.dims)}")
    count = math.prod(proto.dims)
    try:
        offset, length = int(told.get("offset", 0)), int(told.get("length", count * numpy_dtype.itemsize))
    except ValueError as error:
        raise OnnxError(f"{where}: its offset and length are no numbers") from error
    if offset < 0 or length != count * numpy_dtype.itemsize or offset + length > file.stat().st_size:
        raise OnnxError(
            f"{where}: {length} bytes from {offset} on are not {list(proto.dims)} of {dtype} in a file of "
            f"{file.stat().st_size} bytes"
        )
    with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as stream:
        array = np.fromfile(stream, numpy_dtype, count, offset=offset)
    return from_numpy(array.reshape(tuple(proto.dims)), dtype)


def _converted(model: ModelProto, opset: int) -> tuple[ModelProto, int]:
    """The model in an opset that the pages describe."""
    if opset >= OLDEST:
        return model, opset
    try:
        return onnx.version_converter.convert_version(model, OLDEST), OLDEST
    except Exception as error:
        raise OnnxError(f"opset {opset} cannot be brought to {OLDEST}: {first_line(error)}") from error
