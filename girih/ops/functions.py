"""A user's function as text, so that it can be an attribute of a node.

In a running program it is `NAME|PICKLE`: functions of a module go by their name; others, lambdas and what they refer to
included, as they stand (cloudpickle, of the extra `arrays`). The driver makes such text and sends it to its own workers
alone. Equal text is one function: expressions share it, and plans know it again.

In a file it is `MODULE:NAME`, which is imported: a pickle can run whatever its writer liked, so no file holds one.
"""

from __future__ import annotations

import base64
import importlib
import pickle
import re
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
"""What joins the results of tiles, by the name that nodes have for it."""
IMPORT_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class FunctionError(ValueError):
    """A function that cannot be sent to the workers, or not be named in a file."""


def name_of(function: Callable[..., Any]) -> str:
    """How messages name a function."""
    return str(getattr(function, "__qualname__", getattr(function, "__name__", type(function).__name__)))


def pickled(function: Callable[..., Any]) -> bytes:
    """Raises FunctionError where another process could not load it."""
    try:
        import cloudpickle
    except ModuleNotFoundError:
        if getattr(function, "__module__", "") == "__main__":
            raise FunctionError(
                f"{function} is of the main program, which other processes do not load: move it to a module, or "
                "pip install 'girih[arrays]'"
            ) from None
        dumps: Callable[[Any], bytes] = pickle.dumps
        advice = ": pip install 'girih[arrays]'"
    else:
        dumps, advice = cloudpickle.dumps, ""
    try:
        return bytes(dumps(function))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise FunctionError(f"{function} cannot be sent to another process ({error}){advice}") from error


def text_of(function: Callable[..., Any]) -> str:
    """`NAME|PICKLE`; what the function refers to is as it is now."""
    return f"{name_of(function)}|{base64.b85encode(pickled(function)).decode()}"


def is_pickled(text: str) -> bool:
    """Is this a running program's text? An import name has no bar."""
    return "|" in text


@lru_cache(maxsize=1024)
def function_of(text: str) -> Callable[..., Any]:
    """The function behind `text_of`, or behind an import name.

    Graphs from files hold import names alone, and those only if the user trusts the file: `girih.ops.gate`.

    Raises:
        FunctionError: an import name that names nothing.
    """
    if is_pickled(text):
        loaded: Callable[..., Any] = pickle.loads(base64.b85decode(text.partition("|")[2]))
        return loaded
    return imported(text)


def imported(text: str) -> Callable[..., Any]:
    """The function with this import name. Runs its module.

    Raises:
        FunctionError: there is no such function.
    """
    if IMPORT_NAME.fullmatch(text) is None:
        raise FunctionError(f"{text[:60]!r} is no import name: expected module:name")
    module, _, name = text.partition(":")
    try:
        function = attrgetter(name)(importlib.import_module(module))
    except Exception as error:  # a module may fail in any way
        raise FunctionError(f"there is no function {text} here: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise FunctionError(f"{text} is {type(function).__name__}, and no function")
    return function  # type: ignore[no-any-return]


def import_name(text: str) -> str:
    """The import name of a running program's function, for a file.

    Raises:
        FunctionError: it has none: a lambda, a closure, a function of the main program, or what is no function.
    """
    if not is_pickled(text):
        return text
    function = function_of(text)
    name = name_of(function)
    module = pickle.whichmodule(function, name)  # type: ignore[attr-defined]
    path = f"{module}:{name}"
    advice = "move it to the top of a module that can be imported"
    if module == "__main__":
        raise FunctionError(f"the function {name} is of the main program, which a file cannot name: {advice}")
    if IMPORT_NAME.fullmatch(path) is None:
        raise FunctionError(f"the function {name} has no name by which a file could import it: {advice}")
    try:
        same = imported(path)
    except FunctionError:
        same = None
    if same is not function:
        raise FunctionError(f"importing {path} does not give the function {name}: {advice}")
    return path
