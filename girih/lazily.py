"""Names of a package that come from modules which are loaded when such a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`. names: by module, those that it has, with spaces between."""
    homes = {name: home for home, own in names.items() for name in own.split()}

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        item = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, item)
        return item

    return found
