"""Which operators a plan file may call: a file is data, and reading or starting it must not run what others wrote.

A graph in a file may call girih's own and the described operators, and those of PyTorch that are listed as pure
functions (`girih.ops.safe_operators`): none of them opens a file, starts a process, reaches a network or belongs to
another library. Functions of a user stand in a file by their import names. Whoever trusts a file (`trust=True`) lets it
call other operators that are registered, and has its functions imported. No torch is needed to tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from girih.graph import Graph, Node
from girih.ops.catalogue import own
from girih.ops.functions import IMPORT_NAME
from girih.ops.safe_operators import SAFE_ATEN

RECORDED = "girih.recorded", "girih.recorded_several"
"""girih's operators that make a call of PyTorch's, which their attribute `operator` names."""
FUNCTION = "function"  # how girih's operators call a user's function among their arguments
_NAME = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
# What says where or how a tensor lies is the worker's affair; a generator or a stream is none that text could name.
_ELSEWHERE = frozenset({"device", "layout", "memory_format", "pin_memory", "generator", "stream", "names", "out"})


@cache
def is_safe(operator: str) -> bool:
    """Is this operator girih's own, described, or listed as a pure function?"""
    space, _, rest = operator.partition(".")
    return operator in own() or (space == "aten" and rest in SAFE_ATEN)


def is_name(operator: str) -> bool:
    """Can this be an operator's name, `space.name` or `space.name.overload`, and no attribute of Python's own?"""
    return _NAME.fullmatch(operator) is not None and not any(
        part.startswith("__") or part == "_ops" for part in operator.split(".")
    )


def called(node: Node) -> str:
    """The operator that a node calls: its own, or PyTorch's."""
    return str(node.attributes.get("operator")) if node.operator in RECORDED else node.operator


def is_exact(graph: Graph) -> bool:
    """Does a graph make PyTorch's own calls, so that its plan has the bits of PyTorch's own step?"""
    return any(node.operator in RECORDED for node in graph.nodes)


def refusals(graph: Graph, *, trust: bool = False) -> Iterator[tuple[Node, str]]:
    """The nodes that a graph from a file must not have, and why. trust: the user answers for the file."""
    for node in graph.nodes:
        if why := _refusal(node, trust):
            yield node, why


def _refusal(node: Node, trust: bool) -> str:
    operator = called(node)
    if node.operator in RECORDED and operator.startswith("girih."):
        return f"{node.operator} calls {operator}, and is for calls of PyTorch's operators"
    if not is_name(operator):
        return f"{operator!r} is no operator's name"
    if not trust and not is_safe(operator):
        return (
            f"it calls {operator}, which is neither girih's own nor listed as a pure function of PyTorch: if you "
            "trust whoever wrote it, and the operator is registered here, load it with trust=True (--trust)"
        )
    for name, value in node.arguments:
        if name in _ELSEWHERE:
            return f"it gives {node.operator} the argument {name!r}, which is not for a plan to say"
        if name == FUNCTION and node.operator.startswith("girih."):
            if not isinstance(value, str) or IMPORT_NAME.fullmatch(value) is None:
                return (
                    f"its function is {_short(value)}: expected an import name, module:name; functions that are "
                    "pickled are not read from files"
                )
            if not trust:
                return (
                    f"it calls the function {value}, which starting the plan would import and run: if you trust "
                    "whoever wrote it, load it with trust=True (--trust)"
                )
    return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]}…{text[-1]}"
