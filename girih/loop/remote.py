"""Arrays that a server process holds, for loops that read what cannot be divided; and the bulk reads for them."""

from __future__ import annotations

import linecache
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from girih.loop.arrays import Array
from girih.loop.capture import body as roles_of
from girih.loop.capture.analyse import analyse
from girih.loop.capture.body import Body, Role
from girih.loop.capture.prefetch import ROWS, prefetching
from girih.loop.capture.source import identity, read_source
from girih.loop.code.kernel import Kernel, arguments_of, kernel
from girih.loop.run.buffers import WorkerBuffer
from girih.loop.run.served import ServedArray

_files = count()


class Served(Array):
    """An array of a server process, which loops read in bulk and write through buffers; a context manager that ends it.

    cached: rows that a block of a loop reads are looked for once, and known the next time with the same arguments.
    """

    of_loops: ClassVar[bool] = True

    def __init__(self, values: np.ndarray, cached: bool) -> None:
        self.server = ServedArray(values)
        self.cached = cached
        super().__init__(np.zeros_like(values))
        """`values` are the rows that were fetched; others are 0, and not read."""

    def numpy(self) -> np.ndarray:
        return self.server.numpy()

    def __getitem__(self, at: Any) -> Any:
        return self.server[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        raise TypeError("a served array is written through buffers in loops")

    def close(self) -> None:
        self.server.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def served(values: ArrayLike, dtype: DTypeLike | None = None, *, cached: bool = True) -> Served:
    """An array that lives in a process of its own; loops fetch the rows of many iterations in one request."""
    return Served(np.array(values, dtype=dtype, order="C"), cached)


@dataclass
class Prefetch:
    """Lists the rows of served arrays that a range of iterations reads. left_out: reads that it cannot list."""

    code: Kernel
    names: tuple[str, ...]
    left_out: tuple[str, ...]
    text: str
    known: dict[Hashable, dict[str, np.ndarray]] = field(default_factory=dict)

    def rows(
        self, what: tuple[int, ...], columns: list[Any], given: Mapping[str, Any], keep: bool
    ) -> dict[str, np.ndarray]:
        """By array, sorted; keep: for the same range and the same other arguments the next time."""
        others = (given[name] for kind, name in self.code.arguments if kind == "inherited") if keep else ()
        key = (what, *map(identity, others))
        if keep and key in self.known:
            return self.known[key]
        buffers = {name: WorkerBuffer.of((given[name].shape[0],), bool) for name in self.names}
        own = {f"{ROWS}{name}": buffer for name, buffer in buffers.items()}
        arguments = arguments_of(self.code.arguments, self.code.single, buffers=own, others=given)
        self.code.run(*what, *columns, *arguments)
        found = {name: np.flatnonzero(own.flags) for name, own in buffers.items()}
        if keep:
            self.known[key] = found
        return found


def prefetch_of(body: Body, names: tuple[str, ...], boxes: bool) -> Prefetch | None:
    """The compiled lister for these arrays; None: no read of theirs can be listed."""
    made = prefetching(body, names)
    if made is None:
        return None
    text, noted, left = made
    file = f"<prefetch {next(_files)} of {body.source.file}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = dict(body.source.function.__globals__)
    space |= {name: body.source.outside(name) for name in body.source.free}
    exec(compile(text, file, "exec"), space)
    function = space[f"{body.source.tree.name}_rows"]
    source = read_source(function)
    roles: dict[str, Role] = {
        name: role for name, role in body.roles.items() if name in (*source.parameters, *source.free)
    }
    for name in noted:
        role = body.roles[name]
        assert isinstance(role, roles_of.ArrayRole)
        roles[f"{ROWS}{name}"] = roles_of.BufferRole(role.shape[:1], "int8", notes=True)
    for name in source.free:
        roles.setdefault(name, roles_of.Inherited(source.outside(name)))
    return Prefetch(kernel(analyse(source, body.space, roles), boxes), noted, left, text)
