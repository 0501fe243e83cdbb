"""An optimised model as one file: the program that won, the library that runs it, and the call that it is for.

    {"girih": "optimised model 1", "sha256": …, "content": {…}}
    the program, as ONNX

The first line is sealed (`girih.store.sealed`) and has the program's checksum. The file is data: the program is checked
as any ONNX file is (`onnx/file.py`), so it has operators of ONNX alone and opens no other file, and nothing is
unpickled. So that numbers which have no row in an embedding are refused as before, the graph in which they are looked
up is in it too, as text, and passes the gate of plan files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct
from torch.utils._pytree import tree_unflatten, treespec_dumps, treespec_loads

from girih.graph import Graph, format_graph, parse_graph
from girih.inference.runtimes.backends import RUNTIMES, installed
from girih.ops.gate import refusals
from girih.plans.indices import LookUp, check_numbers, look_ups
from girih.store import places
from girih.store.sealed import StoredError, seal, unseal

KIND, VERSION = "optimised model", 1
LONGEST = 64 << 20
"""Bytes of the first line."""
NESTS = None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"
"""What results may be nested in; None: a result itself."""
Text = Annotated[str, Meta(max_length=1 << 16)]
Size = Annotated[int, Meta(ge=0, le=1 << 40)]


class KeptError(ValueError):
    """A file that is no optimised model, or cannot be used here; the message says why, and what to do."""


class TensorFile(Struct, frozen=True, forbid_unknown_fields=True):
    shape: Annotated[tuple[Size, ...], Meta(max_length=64)]
    dtype: Text


class KeptFile(Struct, frozen=True, forbid_unknown_fields=True):
    """backend: the library. names: of the arguments, where they are given by name. arguments: what each is. order:
    which of them each input of the program is. results: the nesting (PyTorch's text) and, by number, what is no tensor.
    graph: as text, or nothing; inputs: the names in it of the program's inputs. program: the checksum."""

    backend: Text
    threads: Annotated[int, Meta(ge=1, le=1 << 16)]
    names: tuple[Text, ...]
    arguments: Annotated[tuple[TensorFile, ...], Meta(max_length=10_000)]
    order: tuple[Size, ...]
    results: Annotated[str, Meta(max_length=1 << 24)]
    constants: dict[int, bool | int | float | str | None]
    graph: tuple[str, ...]
    inputs: tuple[Text, ...]
    program: Text


class Kept:
    """A model that `save` wrote, to call as the model was; see `girih.load_optimized`."""

    def __init__(self, content: KeptFile, program: bytes) -> None:
        self.backend, self.threads = content.backend, content.threads
        self._content = content
        self._forms = [(torch.Size(item.shape), getattr(torch, item.dtype, None)) for item in content.arguments]
        self._checks: list[tuple[LookUp, int]] = []
        if content.graph:
            graph = parse_graph("\n".join(content.graph))
            for node, why in refusals(graph):
                raise KeptError(f"is refused: node {node.name!r}: {why}")
            self._checks = [(item, content.inputs.index(item.input.name)) for item in look_ups(graph)]
        _check_nesting(json.loads(content.results)[1])
        self._nesting = treespec_loads(content.results)
        count = len(self._forms)
        if any(place >= count for place in content.order) or len(content.names) not in (0, count):
            raise KeptError("is damaged: its program takes other inputs than it says")
        self._run = RUNTIMES[content.backend](program, content.threads, None)

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """
        Raises:
            KeptError: a call of another form than the one that it is for.
        """
        tensors = self._in_order(batch, named)
        for look_up, place in self._checks:
            check_numbers(look_up, tensors[place])
        with torch.no_grad():
            rest = iter(self._run(*tensors))
        constants = self._content.constants
        leaves = [constants[i] if i in constants else next(rest) for i in range(self._nesting.num_leaves)]
        return tree_unflatten(leaves, self._nesting)

    def _in_order(self, batch: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = self._content.names
        wanted = f"{', '.join(names)} by name" if names else f"{len(self._forms)} by position"
        if {*named} != {*names} or len(batch) != (0 if names else len(self._forms)):
            given = ", ".join(filter(None, (f"{len(batch)} by position" if batch else "", *named))) or "nothing"
            raise KeptError(f"it is for arguments {wanted}, and was called with {given}")
        arguments = [named[name] for name in names] if names else batch
        for number, (item, (shape, dtype)) in enumerate(zip(arguments, self._forms, strict=True)):
            if type(item) not in (torch.Tensor, torch.nn.Parameter) or (item.shape, item.dtype) != (shape, dtype):
                found = f"{str(item.dtype)[6:]}{[*item.shape]}" if isinstance(item, torch.Tensor) else repr(item)[:60]
                name = names[number] if names else number
                raise KeptError(
                    f"its argument {name} is {found}, and the model was optimised for {str(dtype)[6:]}{[*shape]}: "
                    "call it so, or optimise the model for this call"
                )
        return [arguments[place].detach() for place in self._content.order]


def write(path: Path, content: KeptFile, program: bytes) -> None:
    try:
        places.exchange(str(path), seal(KIND, VERSION, content) + program)
        places.sync(str(path))
    except OSError as error:
        raise KeptError(f"{path} cannot be written: {error.strerror or error}") from error


def described(
    backend: str,
    threads: int,
    named: Sequence[str],
    arguments: Sequence[Any],
    order: Sequence[int],
    results: tuple[Sequence[Any], Any],
    graph: Graph,
    inputs: Sequence[str],
    program: bytes,
) -> KeptFile:
    """What the first line says. results: leaves and their nesting."""
    forms = tuple(TensorFile(tuple(item.shape), str(item.dtype)[6:]) for item in arguments)
    constants = {i: leaf for i, leaf in enumerate(results[0]) if not isinstance(leaf, torch.Tensor)}
    text = tuple(format_graph(graph).splitlines()) if look_ups(graph) else ()
    return KeptFile(backend, threads, tuple(named), forms, tuple(order), treespec_dumps(results[1]), constants, text,
                    tuple(inputs), _digest(program))  # fmt: skip


def read(path: str | Path) -> Kept:
    """
    Raises:
        KeptError: there is no such file, it is another or damaged, or needs a library that is not installed.
    """
    try:
        with Path(path).open("rb") as file:
            line, program = file.readline(LONGEST), file.read()
    except OSError as error:
        raise KeptError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        content = unseal(KIND, VERSION, line, KeptFile)
        if _digest(program) != content.program:
            raise KeptError("is damaged: the checksum of its program does not fit")
        if content.backend not in RUNTIMES:
            raise KeptError(f"is to be run by {content.backend!r}: there are {', '.join(RUNTIMES)}")
        if not installed((content.backend,)):
            raise KeptError(
                f"is to be run by {content.backend}, which is not installed: pip install {content.backend}, or "
                "optimise the model again here"
            )
        _check_program(program)
        return Kept(content, program)
    except (StoredError, KeptError) as error:
        raise KeptError(f"{path} {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, NotImplementedError, RuntimeError) as error:
        line_of = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise KeptError(f"{path} is damaged: {line_of}"[:300]) from error


def _check_nesting(node: Mapping[str, Any]) -> None:
    """PyTorch imports what other types name.

    Raises:
        KeptError: the results are nested in other types than these.
    """
    if node["type"] not in NESTS:
        raise KeptError(f"is refused: its results are in a {str(node['type'])[:60]}, expected {', '.join(NESTS[1:])}")
    for child in node["children_spec"]:
        _check_nesting(child)


def _check_program(program: bytes) -> None:
    """
    Raises:
        KeptError: it is no ONNX model, has operators that are not ONNX's, or weights in other files.
    """
    try:
        from google.protobuf.message import DecodeError
        from onnx import ModelProto

        from girih.inference.onnx.errors import OnnxError
        from girih.inference.onnx.file import from_proto
    except ModuleNotFoundError as error:
        raise KeptError(f"needs {error.name} to be checked: pip install 'girih[onnx]'") from error
    model = ModelProto()
    try:
        model.ParseFromString(program)
        from_proto(model)
    except (OnnxError, DecodeError, ValueError, RuntimeError) as error:
        raise KeptError(f"is refused: {error}") from error


def _digest(program: bytes) -> str:
    return hashlib.sha256(program).hexdigest()
