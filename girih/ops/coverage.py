"""How much of PyTorch is described.

Tofu §4.1 counts its operators so: of 139 in MXNet 134 are described, 77 of them element-wise, 2 opaque, 11 with output
reductions. Here an operator is counted by what its page says, before any shapes are known: element-wise if it is
written for scalars, opaque if it uses the opaque primitive in some case, reducing if it uses a reducer. For the calls
of a captured graph, whose shapes are known, `count` derives the same exactly, and whether a reduction can be divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import CodeType, FunctionType
from typing import Any

from girih.ops.catalogue import catalogue
from girih.ops.core_aten import CORE, VERSION
from girih.ops.derive.divisions import divisible, is_elementwise, is_opaque
from girih.ops.operator import Description

REDUCERS = frozenset({"Sum", "Max", "Min", "Prod", "LogSumExp"})


@dataclass(frozen=True)
class Coverage:
    """Names of operators, sorted, by what their descriptions are; the rest is `plain` (moves, windows, …)."""

    title: str
    elementwise: tuple[str, ...]
    opaque: tuple[str, ...]
    reducing: tuple[str, ...]
    plain: tuple[str, ...]
    undescribed: tuple[str, ...]

    @property
    def described(self) -> int:
        return self.total - len(self.undescribed)

    @property
    def total(self) -> int:
        everything = {*self.elementwise, *self.opaque, *self.reducing, *self.plain, *self.undescribed}
        return len(everything)

    def __str__(self) -> str:
        lines = [
            f"{self.title}: {self.described} of {self.total} described ({self.described / max(self.total, 1):.1%})",
            f"  {len(self.elementwise)} element-wise, {len(self.reducing)} with reductions, "
            f"{len(self.opaque)} opaque in some dimension, {len(self.plain)} others",
        ]
        if self.undescribed:
            lines.append(f"  not described: {', '.join(self.undescribed)}")
        return "\n".join(lines)


def coverage(title: str, names: Iterable[str]) -> Coverage:
    """Coverage of a set of operators, by their pages. An operator may be both opaque and reducing."""
    known, chosen = catalogue(), set(names)
    described = chosen & known.keys()
    used = {name: mentions(known[name].describe) for name in described}
    kinds = {
        "elementwise": {name for name in described if known[name].elementwise},
        "opaque": {name for name in described if "Opaque" in used[name]},
        "reducing": {name for name in described if used[name] & REDUCERS},
        "undescribed": chosen - described,
    }
    return _counted(title, chosen, kinds)


def count(title: str, calls: Iterable[tuple[str, Description | None]]) -> Coverage:
    """Coverage of the operators of captured calls (operator, its description or None), derived from the shapes.

    An operator counts as undescribed if one of its calls is; as reducing if a reduction of some call is divisible.
    """
    kinds: dict[str, set[str]] = {"elementwise": set(), "opaque": set(), "reducing": set(), "undescribed": set()}
    seen: set[str] = set()
    for name, description in calls:
        seen.add(name)
        if description is None:
            kinds["undescribed"].add(name)
            continue
        root = description.root
        if is_elementwise(description):
            kinds["elementwise"].add(name)
        if is_opaque(description):
            kinds["opaque"].add(name)
        if root is not None and any(divisible(description)[variable] for variable in root.variables):
            kinds["reducing"].add(name)
    kinds["elementwise"] -= kinds["opaque"] | kinds["reducing"]
    for kind in ("elementwise", "opaque", "reducing"):
        kinds[kind] -= kinds["undescribed"]
    return _counted(title, seen, kinds)


def _counted(title: str, names: set[str], kinds: Mapping[str, set[str]]) -> Coverage:
    plain = names.difference(*kinds.values())
    return Coverage(title, plain=tuple(sorted(plain)), **{kind: tuple(sorted(some)) for kind, some in kinds.items()})


def core_operators() -> dict[str, str]:
    """PyTorch's core ATen operators by name, as the installed version tags them; torch is loaded for unknown versions.

    The value is "" for an operator that makes a tensor, else why index notation has nothing to say about it.
    """
    installed = version("torch").split(".")
    return dict(CORE) if ".".join(installed[:2]) == VERSION else tagged_operators()


def tagged_operators() -> dict[str, str]:
    """The core operators that the installed PyTorch names (for one version `core_operators` knows them)."""
    import torch

    names: dict[str, str] = {}
    for qualified in torch._C._dispatch_get_all_op_names():  # `dir(torch.ops.aten)` has only what was used before
        space, _, rest = qualified.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name, None) if space == "aten" else None
        operator = getattr(packet, overload or "default", None)
        if operator is None or torch.Tag.core not in operator.tags:
            continue
        scalars = not any("Tensor" in str(result.type) for result in operator._schema.returns)
        writes = name.endswith("_") or any(argument.is_out for argument in operator._schema.arguments)
        names[f"aten.{rest}"] = "writes into an argument" if writes else "makes no tensor" if scalars else ""
    return names


def standard() -> tuple[Coverage, Coverage]:
    """Coverage of the core ATen operators that make tensors, and of girih's own."""
    core = [name for name, reason in core_operators().items() if not reason]
    own = [name for name in catalogue() if name.startswith("girih.")]
    return coverage("core ATen operators", core), coverage("girih's operators", own)


def mentions(function: Callable[..., Any]) -> frozenset[str]:
    """The index notation's words that a description uses, also through the helpers of its page."""
    names: set[str] = set()
    pending: list[Any] = [function]
    seen: set[int] = set()
    while pending:
        item = pending.pop()
        item = item.func if isinstance(item, partial) else item
        if not isinstance(item, FunctionType) or id(item) in seen:
            continue
        seen.add(id(item))
        cells: Mapping[str, Any] = dict(
            zip(item.__code__.co_freevars, (cell.cell_contents for cell in item.__closure__ or ()), strict=True)
        )
        for name in _names(item.__code__):
            value = cells.get(name, item.__globals__.get(name))
            if getattr(value, "__module__", None) == "girih.ops.language":
                names |= {name, getattr(value, "__name__", name)}  # `reducer`, in a helper, is one too
            elif getattr(value, "__module__", "").startswith("girih.ops.catalogue"):
                pending += list(vars(value).values()) if isinstance(value, type) else [value]
    return frozenset(names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
