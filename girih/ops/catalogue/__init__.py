"""Every operator that is described: on a page of this folder, or on one that an installed distribution offers.

A distribution offers pages by entry points of the group `girih.operators`, each a module. So the same operators are
described in every process of an environment, whatever it has imported.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import walk_packages
from types import ModuleType

from girih.ops.operator import Operator

GROUP = "girih.operators"
"""The group of entry points by which distributions offer pages."""


@cache
def pages() -> tuple[ModuleType, ...]:
    """The modules of this folder."""
    names = sorted(item.name for item in walk_packages(__path__, f"{__name__}.") if not item.ispkg)
    return tuple(map(import_module, names))


@cache
def own() -> dict[str, Operator]:
    """The operators of this folder's pages by name; a name described twice is an error in the pages."""
    described: dict[str, Operator] = {}
    for page in pages():
        _collect(page, described)
    return described


@cache
def catalogue() -> dict[str, Operator]:
    """All operators by name.

    Raises:
        ValueError: a distribution describes an operator that is described already, or one of another's name space.
    """
    described = dict(own())
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        _collect(entry.load(), described)
    return described


def _collect(page: ModuleType, described: dict[str, Operator]) -> None:
    for item in vars(page).values():
        for operator in item if isinstance(item, tuple) else ():
            if not isinstance(operator, Operator):
                continue
            if described.get(operator.name, operator) is not operator:
                raise ValueError(f"{operator.name} is described twice; the second time in {page.__name__}")
            described[operator.name] = operator
