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
from typing import Annotated, Any, TypeVar

import msgspec

_HEAD = re.compile(rb'\{"girih": "([a-z ]{1,40}) (\d{1,9})", "sha256": "([0-9a-f]{64})", "content": ')
_TAIL = b"}\n"
LARGEST_BYTES = 256 << 20
Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Form = TypeVar("Form")


class StoredError(ValueError):
    """What is wrong with something that was kept, as a sentence that goes behind the file's name. file: its name in the
    manifest, where there are several."""

    def __init__(self, why: str, file: str = "") -> None:
        super().__init__(why)
        self.file = file


def seal(kind: str, version: int, content: msgspec.Struct | Mapping[str, Any]) -> bytes:
    body = json.dumps(msgspec.to_builtins(content), separators=(",", ":"), allow_nan=False).encode()
    return b'{"girih": "%s %d", "sha256": "%s", "content": %s%s' % (
        kind.encode(), version, hashlib.sha256(body).hexdigest().encode(), body, _TAIL,
    )  # fmt: skip


def unseal(kind: str, version: int, data: bytes, form: type[Form]) -> Form:
    """The content, which has this form.

    Raises:
        StoredError: it is not of this kind, version and form, or was changed.
    """
    head = _HEAD.match(data)
    if head is None or head[1] != kind.encode():
        raise StoredError("is empty" if not data else f"is no {kind} of girih, or its beginning is damaged")
    if int(head[2]) != version:
        raise StoredError(f"has format {int(head[2])}, this version of girih reads {version}")
    body = data[head.end() : -len(_TAIL)]
    if not data.endswith(_TAIL) or hashlib.sha256(body).hexdigest() != head[3].decode():
        raise StoredError("is damaged: its checksum does not fit")
    try:
        return msgspec.json.decode(body, type=form)
    except RecursionError as error:
        raise StoredError("is nested too deeply") from error
    except ValueError as error:
        raise StoredError(f"says what it may not: {' '.join(str(error).split())}") from error
