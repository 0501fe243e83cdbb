"""JSON with a checksum of its own: what a damaged or foreign file holds is never taken for ours.

    {"girih": "checkpoint 2", "sha256": "<of the content's bytes>", "content": {…}}

The file as a whole is JSON, for any tool to read. The checksum covers the content's bytes as they are written, and
everything before them is fixed, so that no bit of the file can change unseen. It guards against damage; who may write
the file may also seal it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

_HEAD = re.compile(rb'\{"girih": "([a-z ]{1,40}) (\d{1,9})", "sha256": "([0-9a-f]{64})", "content": ')
_TAIL = b"}\n"
LARGEST_BYTES = 256 << 20
LARGEST_NUMBER = 1 << 62


class SealError(ValueError):
    """What is wrong with a sealed text; the sentence goes behind the file's name."""


def seal(kind: str, version: int, content: Mapping[str, Any]) -> bytes:
    body = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    return b'{"girih": "%s %d", "sha256": "%s", "content": %s%s' % (
        kind.encode(), version, hashlib.sha256(body).hexdigest().encode(), body, _TAIL,
    )  # fmt: skip


def unseal(kind: str, version: int, data: bytes) -> tuple[dict[str, Any], str]:
    """The content, and its checksum.

    Raises:
        SealError: it is not of this kind and version, or was changed.
    """
    head = _HEAD.match(data)
    if head is None or head[1] != kind.encode():
        raise SealError("is empty" if not data else f"is no {kind} of girih, or its beginning is damaged")
    if int(head[2]) != version:
        raise SealError(f"has format {int(head[2])}, this version of girih reads {version}")
    body = data[head.end() : -len(_TAIL)]
    checksum = hashlib.sha256(body).hexdigest()
    if not data.endswith(_TAIL) or checksum != head[3].decode():
        raise SealError("is damaged: its checksum does not fit")
    try:
        content = json.loads(body, parse_constant=_no_constant)
    except RecursionError as error:
        raise SealError("is nested too deeply") from error
    except ValueError as error:
        raise SealError("is no JSON") from error
    return fields(content), checksum


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


# ------------------------------------------------------------------------------------------- what it may hold


def fields(item: Any, *names: str) -> dict[str, Any]:
    """An object with these fields.

    Raises:
        SealError: it is something else.
    """
    if not isinstance(item, dict):
        raise SealError(f"has {type(item).__name__} where an object belongs")
    if missing := [name for name in names if name not in item]:
        raise SealError(f"has an object without {missing}")
    return item


def items(item: Any) -> list[Any]:
    if not isinstance(item, list):
        raise SealError(f"has {type(item).__name__} where a list belongs")
    return item


def text(item: Any, pattern: str) -> str:
    """A string that matches as a whole."""
    if not isinstance(item, str) or re.fullmatch(pattern, item) is None:
        raise SealError(f"has {str(item)[:60]!r} where {pattern} belongs")
    return item


def natural(item: Any, most: int = LARGEST_NUMBER) -> int:
    """A whole number from 0 to `most`."""
    if type(item) is not int or not 0 <= item <= most:
        raise SealError(f"has {str(item)[:60]} where a whole number from 0 to {most} belongs")
    return item


def naturals(item: Any, count: int | None = None) -> tuple[int, ...]:
    numbers = tuple(natural(number) for number in items(item))
    if count is not None and len(numbers) != count:
        raise SealError(f"has {len(numbers)} numbers where {count} belong")
    return numbers
