"""A user's function as text, so that it can be an attribute of a node: the same in a graph, a file and a worker.

Functions of a module go by their name; others, lambdas and what they refer to included, as they stand (cloudpickle, of
the extra `arrays`). Equal text is one function: expressions share it, and plans know it again.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any


class FunctionError(ValueError):
    """A function that cannot be sent to the workers."""


def name_of(function: Callable[..., Any]) -> str:
    """For messages."""
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


@lru_cache(maxsize=1024)
def function_of(text: str) -> Callable[..., Any]:
    """The inverse of `text_of`."""
    loaded: Callable[..., Any] = pickle.loads(base64.b85decode(text.partition("|")[2]))
    return loaded
