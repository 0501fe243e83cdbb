"""The front-end library of the page: BokehJS, as the Python package bokeh ships it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

FILES = ("bokeh.min.js", "bokeh-api.min.js")


class MissingLibraryError(ImportError):
    """The page cannot be made without bokeh; the message says how to install it."""


def scripts() -> list[str]:
    """The scripts that a page inlines.

    Raises:
        MissingLibraryError: if bokeh is not installed.
    """
    package = find_spec("bokeh")
    if package is None or not package.submodule_search_locations:
        raise MissingLibraryError("the page draws with Bokeh, which is not installed: pip install 'girih[report]'")
    folder = Path(package.submodule_search_locations[0]) / "server" / "static" / "js"
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        names = ", ".join(missing)
        raise MissingLibraryError(f"bokeh in {folder} has no {names}: pip install --upgrade 'girih[report]'")
    return [(folder / name).read_text(encoding="utf-8") for name in FILES]
