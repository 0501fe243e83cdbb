"""Operators at the gate: the list against PyTorch's schemas; every operator that takes a text; names that are none."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from safe_operators import FORMULAS, every_operator, why_not

from girih.graph import Graph, GraphError, Node, Value
from girih.kernels.evaluate import resolve
from girih.kernels.own import KERNELS
from girih.ops.catalogue import catalogue
from girih.ops.functions import FunctionError, function_of, import_name, text_of
from girih.ops.gate import is_safe, refusals
from girih.ops.safe_operators import SAFE_ATEN

# Described, so that they are safe, though the rule has something against them, and why they are none the less.
JUSTIFIED = {
    "_native_batch_norm_legit": "described; it writes to the running statistics that the graph gives it alone",
}

HOSTILE_NAMES = (
    "aten.__class__", "aten._ops", "aten._dir", "aten.mm._schema", "aten.mm.__call__", "aten.mm.default.__globals__",
    "aten.op.loader", "aten.mm.", "aten.", ".mm", "mm", "", "aten.mm.a.b", "aten..mm", "aten.mm default", "aten.mm\n",
    "aten.from_file", "aten.from_file.out", "aten.set_.source_Storage", "aten.add_.Tensor", "aten.mm.out",
    "aten._print",
    "aten._assert_async.msg", "aten.record_stream", "aten.resize_", "profiler._record_function_enter_new",
    "c10d.barrier", "_c10d_functional.all_reduce", "quantized.linear", "torchvision.read_file",
    "inductor._alloc_from_pool", "prims.device_put", "prims.rng_prims", "ops.aten", "os.system", "builtins.eval",
    "girih.__class__", "girih.nothing", "aten._reshape_alias", "aten._test_string_default", "higher_order.print",
    "aten.pin_memory", "load_library.x", "aten.mm'); import os; ('",
)  # fmt: skip


def graph_of(operator: str, /, **arguments: object) -> Graph:
    value = Value("y", (2,), "float32")
    node = Node("y", operator, tuple(arguments.items()), ("y",))  # type: ignore[arg-type]
    return Graph({"y": value}, (node,), (), ())


def test_every_listed_operator_is_harmless_by_its_schema() -> None:
    known = dict(every_operator())
    assert len(SAFE_ATEN & known.keys()) > 1000
    wrong = {name: why for name in sorted(SAFE_ATEN & known.keys()) if (why := why_not(known[name]))}
    assert not wrong


def test_every_operator_with_a_text_chooses_a_formula_or_is_refused() -> None:
    """Of all of PyTorch's: 128 in version 2.13."""
    tried = 0
    for name, operator in every_operator():
        texts = [item.name for item in operator._schema.arguments if "str" in str(item.type)]
        if not texts:
            continue
        tried += 1
        refused = [why for _, why in refusals(graph_of(f"aten.{name}", **dict.fromkeys(texts, "/tmp/x")))]
        if not is_safe(f"aten.{name}"):
            assert refused, name
            assert "pure function" in refused[0]
        else:
            assert set(texts) <= FORMULAS, f"{name} takes {texts}"
            assert not why_not(operator) or name in JUSTIFIED or f"aten.{name}" in catalogue(), name
    assert tried > 100


def test_no_operator_that_takes_a_file_or_writes_is_safe() -> None:
    for name, operator in every_operator():
        arguments = operator._schema.arguments
        files = any(
            word in item.name for item in arguments if "str" in str(item.type) for word in ("file", "path", "url")
        )
        kinds = {"Storage", "Stream", "QScheme"} & {str(item.type) for item in arguments}
        writes = any(item.is_out or (item.alias_info and item.alias_info.is_write) for item in arguments)
        if files or kinds or writes:
            assert not is_safe(f"aten.{name}") or name in JUSTIFIED, name


def test_described_operators_are_girihs_own_or_harmless() -> None:
    known = dict(every_operator())
    for name in catalogue():
        space, _, rest = name.partition(".")
        assert space in ("girih", "aten") or name == "prims.convert_element_type"
        if space == "aten" and rest in known and rest not in JUSTIFIED:
            why = why_not(known[rest])
            assert not why or why == "it is PyTorch's own" or "one library" in why, (name, why)
    assert set(KERNELS) <= set(catalogue())


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_that_are_no_safe_operators(name: str) -> None:
    assert list(refusals(graph_of(name)))
    assert not is_safe(name)


@pytest.mark.parametrize(
    "name", ["aten.__class__", "aten._ops", "aten.mm._schema", "aten.mm.__call__", "aten.from_file", "aten.add_.Tensor",
             "aten.mm.out", "os.system", "girih.__class__", "aten.mm.a.b", ""]
)  # fmt: skip
def test_even_a_trusted_graph_calls_operators_alone(name: str) -> None:
    with pytest.raises(GraphError):
        resolve(name)


@pytest.mark.parametrize("argument", ["device", "generator", "pin_memory", "layout", "out"])
def test_where_a_tensor_lies_is_not_for_a_file_to_say(argument: str) -> None:
    found = list(refusals(graph_of("aten.full", size=(2,), fill_value=1, **{argument: "cuda:0"})))
    assert argument in found[0][1]


def test_functions_go_by_import_names() -> None:
    pickled = text_of(test_functions_go_by_import_names)
    assert "pickled are not read" in next(refusals(graph_of("girih.map", function=pickled), trust=True))[1]
    assert "pickled are not read" in next(refusals(graph_of("girih.map", function=("os:system",)), trust=True))[1]
    assert "trust=True" in next(refusals(graph_of("girih.map", function="os:system")))[1]
    assert not list(refusals(graph_of("girih.map", function="os:system"), trust=True))
    assert import_name(pickled) == f"{__name__}:test_functions_go_by_import_names"
    assert function_of(f"{__name__}:graph_of") is graph_of
    with pytest.raises(FunctionError, match="there is no function os:nothing"):
        function_of("os:nothing")
    with pytest.raises(FunctionError, match="no function"):
        function_of("os:sep")


def test_functions_without_a_name_are_refused() -> None:
    def inner(x: object) -> object:
        return x

    for function in (inner, lambda x: x):
        with pytest.raises(FunctionError, match="move it to the top of a module"):
            import_name(text_of(function))


def test_every_kernel_that_calls_a_function_names_it_alike() -> None:
    """The gate finds functions by the name of their argument."""
    import inspect

    from girih.kernels import tiles as tile_kernels

    source = inspect.getsource(tile_kernels)
    assert source.count("function_of(function)") == source.count("function_of(")


def test_the_gate_needs_no_torch() -> None:
    code = "import sys, girih.ops.gate as g; assert g.is_safe('aten.mm'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_users_own_operator_resolves_in_process() -> None:
    @torch.library.custom_op("girihtests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert list(refusals(graph_of("girihtests.twice")))
    assert not list(refusals(graph_of("girihtests.twice"), trust=True))
    assert resolve("girihtests.twice")(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("called", ["aten.from_file", "aten.add_.Tensor", "os.system", "girih.recorded", "__import__"])
def test_a_recorded_call_is_of_a_harmless_operator(called: str) -> None:
    (why,) = (why for _, why in refusals(graph_of("girih.recorded", tensors=(), operator=called, arguments=())))
    assert called in why
