"""`@gl.parallel_for(space)`: an ordinary function of a key and a value becomes a loop that runs in parallel.

When it is called, its body is analysed for the arrays that it is given (once for arrays of these shapes), a strategy is
chosen, the entries are laid out, and the compiled body runs block by block. All of it is kept for the next call.
"""

from __future__ import annotations

import inspect
import sys
import time
import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from threading import RLock
from typing import Any

import numpy as np

from girih.host import cores_here
from girih.loop.arrays import Accumulator, Array, Buffer
from girih.loop.capture import body as roles_of
from girih.loop.capture.analyse import analyse
from girih.loop.capture.arithmetic import sums_of
from girih.loop.capture.body import Body, Inherited, Role, key_and_value
from girih.loop.capture.dependences import dependence_vectors, text, vectors_of
from girih.loop.capture.errors import LoopError, LoopWarning
from girih.loop.capture.inherited import arrays_in, container, is_container
from girih.loop.capture.source import Source, identity, names_in, read_source
from girih.loop.code.entries import Layout, boxes, laid_out
from girih.loop.code.kernel import kernel
from girih.loop.distributed import places
from girih.loop.execution import Execution, Prepared
from girih.loop.explain import Explanation, busy, divided, explanation
from girih.loop.run.threads import Span
from girih.loop.schedules.schedule import ROUNDS, Schedule, schedule
from girih.loop.schedules.strategy import KINDS, LoopStrategy, choose
from girih.loop.spaces import Space
from girih.report.live import LiveView
from girih.run.engines import in_use
from girih.run.engines.crew import Crew
from girih.run.errors import WorkerError

LOSSES = 2
"""How many lost workers one execution survives; with the next loss the loop gives up."""
_turn = RLock()
"""One thread of a program at a time runs a loop: it uses all workers, and the loop's buffers."""
MOST_KEPT = 8
"""Analysed bodies, and layouts of the entries, that a loop keeps."""


@dataclass(frozen=True)
class LoopOptions:
    """What `parallel_for` takes besides the space."""

    ordered: bool | None = None
    workers: int | None = None
    kind: str | None = None
    dims: tuple[int, ...] | None = None
    pipelined: int | None = None
    rounds: int = ROUNDS
    seed: int = 0
    fastmath: bool = False


class _Workers:
    """How many threads loops use where nothing else is said."""

    def __init__(self) -> None:
        self.count = 0
        self.view = LiveView(None)


_workers = _Workers()


def workers(count: int | None = None, *, progress: bool | None = None) -> int:
    """How many workers loops have from now on; without a number, how many they have. At first: one for each core.

    progress: from now on show the workers, or do not, in loops that last over a second; at first on terminals only.
    """
    if progress is not None:
        _workers.view.close()
        _workers.view = LiveView(progress)
    if count is not None:
        if count < 1:
            raise ValueError(f"workers={count}: expected a positive number")
        _workers.count = count
    return _workers.count or cores_here()


class ParallelLoop:
    """A loop over a space; call it with its arrays and whatever else its body takes.

    The first parameters of the body are the key and, where entries have values, the value; the caller gives the rest.
    """

    def __init__(
        self, function: Callable[..., Any], space: Space, options: LoopOptions, nearby: Mapping[str, Any]
    ) -> None:
        self.function = function
        self.space = space
        self.options = options
        self.source: Source = read_source(function, nearby)
        key_and_value(self.source, space.known)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.executions = 0
        self.spans: tuple[Span, ...] = ()
        self.seconds: list[float] = []
        self.losses: list[str] = []
        """Each lost worker's rank and what became of it; the execution was then begun anew."""
        self._prepared: dict[Hashable, Prepared] = {}
        self._last: Prepared | None = None
        self._told = False

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run all iterations.

        Raises:
            LoopError: the body cannot be followed, compiled, or run in the way that was asked for; nothing was run.
            IndexError: a subscript lay outside its array; iterations that had begun are done.
        """
        with _turn:
            self.run(self.bound(arguments, named), None)

    def serial(self, *arguments: Any, **named: Any) -> None:
        """Run all iterations one after another, in the order of the entries (by key, of an ordered loop)."""
        with _turn:
            self.run(self.bound(arguments, named), 1)

    def explain(self, *arguments: Any, **named: Any) -> Explanation:
        """What the loop does: its references and dependence vectors, how it is divided and why, what moves, how long
        it took. With arguments, for these; else for those of the last call.

        Raises:
            LoopError: it has not been called yet, and there are no arguments.
        """
        prepared = self._last
        if arguments or named or (prepared is None and not self._needed()):
            prepared = self.prepared(self.bound(arguments, named), self._count())
        if prepared is None:
            raise LoopError(
                f"{self.__name__} has not been called yet: give explain() the arguments that it is called with"
            )
        layout = prepared.layout
        work = None if layout is None else layout.work
        return explanation(self.space.known, len(self.space), prepared.body, prepared.strategy, prepared.plan, work,
                           self.spans, tuple(self.seconds), prepared.here, self.losses)  # fmt: skip

    # ------------------------------------------------------------------------------------------- arguments

    def _needed(self) -> tuple[str, ...]:
        key, value = key_and_value(self.source, self.space.known)
        return tuple(
            name for name in self.source.parameters if name not in (key, value) and name not in self.source.defaults
        )

    def _count(self) -> int:
        cluster = in_use.current()
        return self.options.workers or (workers() if cluster is None else cluster.workers)

    def _unserved(self, prepared: Prepared, given: Mapping[str, Any]) -> str:
        """Why messages between workers cannot serve the loop; "": they can."""
        cluster = in_use.current()
        if cluster is None or cluster.engine.one_process:
            return ""
        if any(given[name].further is not None for name in prepared.body.buffered):
            return "a buffer has further numbers for each element, which lie in this process"
        try:
            places(prepared.body, prepared.strategy)
        except LoopError as error:
            return str(error)
        return ""

    def _crew(self) -> Crew | None:
        """The processes of the cluster in use; None: the loop runs on threads of this process."""
        cluster = in_use.current()
        if self.options.workers is not None or cluster is None or cluster.engine.one_process or cluster.workers == 1:
            return None
        return cluster.crew()

    def bound(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every name that the body takes from outside."""
        key, value = key_and_value(self.source, self.space.known)
        names = [name for name in self.source.parameters if name not in (key, value)]
        if len(arguments) > len(names):
            raise TypeError(
                f"{self.__name__} takes {len(names)} arguments ({', '.join(names)}), {len(arguments)} were given"
            )
        found: dict[str, Any] = dict(zip(names, arguments, strict=False))
        for name, item in named.items():
            if name not in names or name in found:
                raise TypeError(
                    f"{self.__name__} takes {', '.join(names)}: {name} was given {'twice' if name in found else ''}"
                )
            found[name] = item
        for name in names:
            if name not in found:
                if name not in self.source.defaults:
                    raise TypeError(f"{self.__name__} needs {name}")
                found[name] = self.source.defaults[name]
        for name in self.source.free:
            found[name] = self.source.outside(name)
        self._check_memory(found)
        return found

    def _check_memory(self, given: Mapping[str, Any]) -> None:
        """No two names for one memory: the analysis tells arrays apart by name."""
        arrays = {
            name: (item.values,) if isinstance(item, Array) else tuple(arrays_in(item)) for name, item in given.items()
        }
        for name, other in combinations(filter(arrays.get, arrays), 2):
            for one, another in product(arrays[name], arrays[other]):
                if np.may_share_memory(one, another):
                    raise LoopError(f"{self.__name__}: {name} and {other} share memory; give the array one name")

    # ----------------------------------------------------------------------------------------- preparation

    def prepared(self, given: Mapping[str, Any], count: int, serial: bool = False) -> Prepared:
        """The loop for arrays like these, made when it is first needed."""
        roles = {name: role_of(item) for name, item in given.items()}
        names = names_in(self.function.__code__)
        what = ((name, _identity(role, names), _told(given, name)) for name, role in roles.items())
        key = (count, serial, tuple(what))
        found = self._prepared.pop(key, None) or self._prepare(roles, count, serial)
        self._prepared[key] = found
        if len(self._prepared) > MOST_KEPT:
            self._prepared.pop(next(iter(self._prepared)))
        return found

    def _prepare(self, roles: Mapping[str, Role], count: int, serial: bool) -> Prepared:
        body = analyse(self.source, self.space.known, roles)
        options = self.options
        ordered = bool(dependence_vectors(body, False)) if options.ordered is None else options.ordered
        if serial or count == 1:
            strategy = choose(body, ordered, 1)
        else:
            strategy = choose(body, ordered, count, options.kind, options.dims)
        plan = schedule(strategy, options.pipelined, options.rounds)
        simple = all(form is None or sum(map(abs, form)) == 1 == max(form) for form in (strategy.space, strategy.time))
        if self.space.entries is None and simple:
            cut = boxes(self.space.starts, self.space.stops, plan, strategy.space, strategy.time)
            return Prepared(body, strategy, plan, kernel(body, True, options.fastmath), None, cut)
        listed = body
        if self.space.entries is None:
            known = Space(self.space.stops, entries=self.space.listed()).known
            listed = analyse(self.source, known, roles)
        layout = self._layout(body, strategy, plan, ordered, serial)
        return Prepared(listed, strategy, plan, kernel(listed, False, options.fastmath), layout, None)

    def _tell(self, prepared: Prepared) -> None:
        """Warn, once, of a loop that is serial or ordered without having been asked for it."""
        body, strategy, options = prepared.body, prepared.strategy, self.options
        workers, known = strategy.workers, self._told or prepared.judged
        prepared.judged = True
        if known or workers == 1 or not strategy.vectors:
            return
        serial = strategy.kind == "serial" and options.kind != "serial"
        now = busy(strategy, options)
        loose = choose(body, False, workers) if strategy.ordered else strategy
        gain = busy(loose, options)
        place = f"{body.source.file}:{body.source.tree.lineno}: {self.__name__}"
        vectors = ", ".join(map(text, strategy.vectors))
        said = f"iterations depend on each other (distances {vectors})"
        if gain > 1.05 * now and (serial or options.ordered is None):
            words = (
                f"{place} keeps the order of the serial loop, by keys, since {said}: it is {divided(strategy)}, which "
                f"keeps {now:.1f} of {workers} workers busy. Say ordered=True to keep it so, or ordered=False if any "
                f"order will do: then it is {divided(loose)}, with {gain:.1f} of {workers} busy"
            )
        elif serial:
            shared = [name for name in body.written if vectors_of(body, name, strategy.ordered)]
            words = (
                f"{place} runs on one worker of {workers}, since {said} in {', '.join(shared)}. Where writes may come "
                f"late, write to gl.buffer({shared[0]}) by `+=`; a sum needs no order if nothing else reads it; else "
                f"say kind='serial'"
            )
        else:
            return
        self._told = True
        warnings.warn(words, LoopWarning, stacklevel=4)

    def _layout(self, body: Body, strategy: LoopStrategy, plan: Schedule, ordered: bool, serial: bool) -> Layout:
        entries = self.space.listed()
        for other in self._prepared.values():
            same = (other.strategy, other.plan, other.body.draws) == (strategy, plan, body.draws)
            if other.layout is not None and same:
                return other.layout
        rows, columns, width = (None, None, 0) if serial or ordered else turns(body)
        numbers = self.space.numbers() if body.draws else None
        return laid_out(entries, plan, strategy.space, strategy.time, ordered, rows, columns, width, numbers)

    # ------------------------------------------------------------------------------------------- execution

    def run(self, given: dict[str, Any], count: int | None) -> None:
        """count: of workers; None: as many as there are."""
        prepared = self.prepared(given, count or self._count(), serial=count is not None)
        if count is None:
            self._last = prepared
            self._tell(prepared)
        prepared.here = self._unserved(prepared, given)
        crew = self._crew() if count is None and not prepared.here else None
        execution = Execution(prepared, given, self.space, prepared.strategy.ordered, self.seed())
        if crew is None:
            execution.compile()
        began = time.perf_counter()
        spans = execution.here(_workers.view) if crew is None else self._on(execution, crew)
        self.executions += 1
        if count is None:
            self.spans = spans
            self.seconds.append(time.perf_counter() - began)

    def _on(self, execution: Execution, crew: Crew) -> tuple[Span, ...]:
        """Workers that are lost are started anew, and the execution with them: the arrays are as before."""
        for attempt in range(LOSSES + 1):
            try:
                return execution.on(crew)
            except WorkerError as error:
                execution.prepared.elsewhere = None
                if not error.lost and error.raised:
                    raise execution.raised(error) from error
                cluster = in_use.current()
                if not error.lost or attempt == LOSSES or cluster is None or cluster.engine.launched:
                    raise
                self.losses.append(f"worker {error.rank} {error.reason} {error.place}")
                crew = cluster.crew()
        raise AssertionError

    def seed(self) -> np.uint64:
        entropy = np.random.SeedSequence([self.options.seed, self.executions])
        return np.uint64(entropy.generate_state(1, np.uint64)[0])

    def __repr__(self) -> str:
        return f"<girih parallel loop {self.__name__} over {self.space!r}>"


def role_of(item: Any) -> Role:
    """The role in which the analysis sees a value: array, buffer, accumulator, or inherited."""
    if isinstance(item, Array):
        return roles_of.ArrayRole(item.shape, str(item.dtype))
    if isinstance(item, Buffer):
        return roles_of.BufferRole(item.shape, sums_of(str(item.target.dtype)))
    if isinstance(item, Accumulator):
        return roles_of.AccumulatorRole(item.operation, str(np.asarray(item.initial).dtype))
    return Inherited(item)


def _identity(role: Role, names: Collection[str]) -> Hashable:
    """What the analysis and the code depend on: of arrays their shape, of integers their value, of floats neither, of
    containers the kinds of what is in them.

    names: that the loop's body has.
    """
    if not isinstance(role, Inherited):
        return role
    value = role.value
    if is_container(value):
        return type(value).__name__, repr(container(value))
    if isinstance(value, np.ndarray):
        return ("ndarray", value.ndim, str(value.dtype))
    if isinstance(value, bool | float | np.floating):
        return type(value).__name__
    return identity(value, names)


def _told(given: Mapping[str, Any], name: str) -> Hashable:
    """What else workers are told once: of a buffer its function and the name of its target, of accumulators what each
    worker begins with."""
    item = given[name]
    if isinstance(item, Buffer):
        target = next((other for other, array in given.items() if array is item.target), "")
        return identity(item.apply), item.further is not None, target
    return item.neutral if isinstance(item, Accumulator) else None


def turns(body: Body) -> tuple[int | None, int | None, int]:
    """(the dimension whose rows take turns, the one that is cut in tiles, bytes of arrays for each of its indices)."""
    if body.space.dims < 2:
        return None, None, 0
    hint = choose(body, False, 2)
    forms = [form for form in (hint.space, hint.time) if form is not None and sum(map(abs, form)) == 1]
    if hint.kind != "2d" or len(forms) != 2:
        return None, None, 0
    rows, columns = (form.index(1) for form in forms)
    width = 0
    for name in dict.fromkeys(item.array for item in body.references):
        role = body.roles[name]
        assert isinstance(role, roles_of.ArrayRole)
        if all(any(part.dim == columns for part in item.subscripts) for item in body.of(name)):
            width += int(np.prod(role.shape[1:])) * np.dtype(role.dtype).itemsize
    return rows, columns, width


def parallel_for(
    space: Space,
    ordered: bool | None = None,
    *,
    workers: int | None = None,
    kind: str | None = None,
    dims: tuple[int, ...] | None = None,
    pipelined: int | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
    fastmath: bool = False,
) -> Callable[[Callable[..., Any]], ParallelLoop]:
    """Run a function for every entry of a space, in parallel where its iterations do not depend on each other.

    ordered: whether iterations that depend on each other keep the order of their keys (the lexicographic one, and not
    that in which `gl.sparse` was given the entries), or run in any order, one after another. Who says neither gets the
    order, and is told once if the other would be faster (LoopWarning). workers: by default `gl.workers()`. kind, dims:
    overrule the strategy (`1d`, `2d`, `unimodular`, `serial`) and its space and time dimensions; pipelined, rounds: the
    time and space parts for each worker, in two dimensions. seed: of `gl.random()`. fastmath: the body's arithmetic may
    be rearranged and contracted, which is faster and rounds in other places; without it, it is done as it is written.

    Raises:
        LoopError: the function's text cannot be read, or has what a loop body cannot have.
        ValueError: an option cannot be.
    """
    if not isinstance(space, Space):
        raise TypeError(f"parallel_for over {type(space).__name__}: expected gl.sparse(…), gl.dense(…) or gl.range(…)")
    for name, given, least in (("workers", workers, 1), ("pipelined", pipelined, 1), ("rounds", rounds, 1),
                               ("seed", seed, 0)):  # fmt: skip
        if given is not None and (not isinstance(given, int | np.integer) or given < least):
            raise ValueError(f"{name}={given!r}: expected a whole number from {least}")
    if kind not in (None, *KINDS):
        raise ValueError(f"kind={kind!r}: expected one of {', '.join(map(repr, KINDS))}")
    if dims is not None and not (isinstance(dims, tuple) and set(dims) <= {*range(len(space.shape))}):
        raise ValueError(f"dims={dims!r}: expected a tuple of dimensions of the space, each below {len(space.shape)}")
    options = LoopOptions(ordered, workers, kind, dims, pipelined, rounds, seed, fastmath)
    frame = sys._getframe(1)
    nearby = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)

    def decorate(function: Callable[..., Any]) -> ParallelLoop:
        if not inspect.isfunction(function):
            raise TypeError(f"{function!r} is no function: define the loop body with def")
        return ParallelLoop(function, space, options, nearby)

    return decorate
