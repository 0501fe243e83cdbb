"""A run: the workers of a program, driven step by step.

with start(program, recipes, backend="processes", state=model_state) as run:
    for x, y in batches:
        print(run.step({"x": x, "y": y}, {"rate": 0.1})["loss"])
    run.save("checkpoint")
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from girih.capture.torch.initial import Initial
from girih.graph import Input
from girih.program import Program
from girih.program.places.addresses import Addresses
from girih.run.engines.crew import AgreeingCrew, Crew, MendingCrew
from girih.run.engines.engine import TRAINING, Connection, Engine, ThisHost, engine_here, engine_of
from girih.run.training import checkpoint
from girih.run.training.saving import Saving, manifest_of
from girih.run.worker.initial import Recipe, check_known, cut_state, key_of, step_seed
from girih.run.worker.parts import Tensor, assemble, assembled, box_of, cut
from girih.run.worker.service import Options, Statistics
from girih.run.worker.worker import MeasuredInterval

# What is observed, and its value: after each step `step` (its number), `loss` and `seconds` as the driver sees them;
# about once a second of a save that takes longer `saving`, the bytes written so far, and at its end all of them.
Observer = Callable[[str, float], None]

Whole = Callable[[Program, str, Sequence[tuple[int, Tensor]]], Tensor]


class Run:
    """Workers with their state. A context manager: leaving it ends the workers.

    steps: how many have been done, those before a resumed checkpoint included. one_process: the workers are threads of
    this one.
    """

    def __init__(
        self,
        program: Program,
        crew: Crew,
        *,
        seed: int,
        steps: int,
        observe: Observer | None,
        one_process: bool = False,
        checksums: Mapping[str, int] | None = None,
        connection: Connection | None = None,
    ) -> None:
        self._connection = connection or ThisHost(0.0)
        self.checksums = checksums or {}
        self.crew = crew
        self.seed = seed
        self.steps = steps
        self.observe = observe
        self.one_process = one_process
        self._known = {"": program}
        self._turn_to(program)

    def _turn_to(self, program: Program) -> None:
        self.program = self.crew.program = program
        self._given = [item for item in program.graph.inputs if item.role in ("batch", "scalar", "seed")]
        self._results = [output for output in program.graph.outputs if output.replaces is None]

    @property
    def workers(self) -> int:
        return self.crew.size

    def turn(self, key: str, program: Program) -> bool:
        """Go on with another program on the same workers, who keep the state as it is; False, and nothing has happened,
        where some of it would have to lie elsewhere. Without arenas only.

        key: names the program; workers keep one for each key, and go back to it at once.
        """
        if not _same_state(self.program, program):
            return False
        key = next((name for name, known in self._known.items() if known is program), key)
        known = self._known.get(key) is program
        self.crew.command("turn", [{"key": key, "program": None if known else program} for _ in range(self.workers)])
        self._known[key] = program
        self._turn_to(program)
        return True

    def step(self, batch: Mapping[str, Tensor], scalars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One application of the graph; the new state stays with the workers.

        batch, scalars: whole tensors or numbers by the input's name or path. The seed need not be given.
        Returns every result whole, by its name; the loss as a float, also under `loss`.

        Raises:
            ValueError: an input is missing, unknown, or of another shape or dtype; nothing has happened then.
            WorkerError: a worker failed, died or hung; the run is over.
        """
        began = time.perf_counter()
        inputs = self.whole_inputs(batch, scalars or {})
        self._same("batch", partial(_sums, inputs), "give every rank the same whole batch, and the same learning rate")
        replies = self.crew.command("step", self._divide(inputs))
        del inputs
        self.steps += 1
        outputs: dict[str, Any] = {}
        for output in self._results:
            parts = [(rank, reply[output.name]) for rank, reply in enumerate(replies) if output.name in reply]
            whole = assemble(self.program, output.name, parts)
            outputs[output.name] = whole
            if output.role == "loss":
                outputs[output.name] = outputs["loss"] = float(whole)
        if self.observe is not None:
            self._tell(self.observe, outputs, time.perf_counter() - began)
        return outputs

    def _same(self, what: str, word: Callable[[], str], cure: str) -> None:
        """Where each worker has a driver of its own: have all drivers given the same?

        Raises:
            ValueError: they have not, and each worker would take its part of another whole.
        """
        if not isinstance(self.crew, AgreeingCrew):
            return
        words = self.crew.agree(f"{what} {word()}")
        other = next((rank for rank, own in enumerate(words) if own != words[0]), None)
        if other is not None:
            raise ValueError(f"rank {other} has another {what} than rank 0, of which each takes its part: {cure}")

    def _tell(self, observe: Observer, outputs: Mapping[str, Any], seconds: float) -> None:
        observe("step", float(self.steps))
        if "loss" in outputs:
            observe("loss", outputs["loss"])
        observe("seconds", seconds)

    def state(self) -> dict[str, Tensor]:
        """Parameters, buffers and optimizer state by path, whole, on the CPU."""
        return self.whole_state(self.program.graph.state_inputs, assemble)

    def pieces(self) -> Mapping[str, Tensor]:
        """The state as `state` has it, to be read and not kept: workers are asked for a few tensors at a time, when
        they are read, and what lies whole in this process's memory is not copied."""
        return Pieces(self)

    def whole_state(self, items: Sequence[Input], whole: Whole) -> dict[str, Tensor]:
        """State by path, of these inputs. whole: makes a tensor of its parts."""
        names = tuple(item.name for item in items)
        replies = self.crew.command("get_state", [{"names": names} for _ in range(self.workers)])
        return {
            key_of(item): whole(
                self.program,
                item.name,
                [(rank, reply[item.name]) for rank, reply in enumerate(replies) if item.name in reply],
            )
            for item in items
        }

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Replace (some of) the state by whole tensors, by path."""
        self._set_state(state, {}, None, [])

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint (`girih.run.training.saving`), each worker its own parts.

        Until it is whole and on the disk the one that was there stays; then the new one takes its place in one step,
        whenever this process or a worker is killed. After a CheckpointError the run can go on.

        Raises:
            CheckpointError: something else is at `directory`, another run saves there, or the disk is full.
            WorkerError: a worker died.
        """
        leads = getattr(self.crew, "rank", 0) == 0
        saving = Saving(directory)
        try:
            folder = self._agree(saving.begin if leads else None)
            written = self._write(folder)
            manifest = manifest_of(self.program, written, self.steps, self.seed, self.checksums)
            self._agree((lambda: saving.publish(manifest)) if leads else None)
        finally:
            saving.end()

    def _agree(self, do: Callable[[], Any] | None) -> Any:
        """What the driver that leads does, or why it failed, told to the drivers of all ranks."""
        word = checkpoint.Answer()
        if do is not None:
            try:
                word = checkpoint.Answer(value=do())
            except checkpoint.CheckpointError as error:
                word = checkpoint.Answer(str(error))
        return checkpoint.agreed(self.crew.command("agree", [{"word": word} for _ in range(self.workers)]))[0]

    def _write(self, folder: str) -> list[Any]:
        """Have all workers write, slice by slice; what each has written."""
        begin = folder
        while True:
            replies = self.crew.command("save", [{"folder": begin} for _ in range(self.workers)])
            if any(reply.error for reply in replies):
                self._agree(None)  # the others let go of what they have begun
            answers = checkpoint.agreed(replies)
            ended = all(isinstance(answer, tuple) for answer in answers)
            if self.observe is not None and not (ended and begin):
                self.observe("saving", float(sum(_bytes(answer) for answer in answers)))
            if ended:
                return [written for (written,) in answers]
            begin = ""

    def statistics(self) -> list[Statistics]:
        """What each worker has measured since it started: bytes, seconds."""
        return list(self.crew.command("statistics", [{} for _ in range(self.workers)]))

    @property
    def one_clock(self) -> bool:
        """Do all workers read the clock of one host? Ranks, and Ray's actors, may be on several."""
        return not isinstance(self.crew, AgreeingCrew | MendingCrew)

    def timeline(self) -> list[list[MeasuredInterval]]:
        """The last step's instructions as each worker measured them; `start(…, timeline=True)`."""
        return list(self.crew.command("timeline", [{} for _ in range(self.workers)]))

    def peak_bytes(self, batch: Mapping[str, Tensor], scalars: Mapping[str, Any] | None = None) -> list[int]:
        """Measured peak of memory of one step on each worker; the step leaves no trace in the state.

        Raises:
            ValueError: workers share one process, so that its allocations are not one worker's.
        """
        if self.one_process and self.workers > 1:
            raise ValueError("memory is measured by process: use backend='processes', or one worker")
        return list(self.crew.command("peak", self._divide(self.whole_inputs(batch, scalars or {}))))

    def close(self) -> None:
        self.crew.close()
        self._connection.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def whole_inputs(
        self, batch: Mapping[str, Tensor], scalars: Mapping[str, Any], step: int | None = None
    ) -> dict[str, Tensor]:
        """All inputs that are not state, whole, by name, seeds included; of the next step or a given one, from 0."""
        unread = {**batch, **scalars}
        inputs = {}
        for item in self._given:
            value = unread.pop(item.name, None)
            if value is None and item.path:
                value = unread.pop(item.path, None)
            if value is None and item.role == "seed":
                value = step_seed(self.seed, self.steps if step is None else step)
            if value is None:
                raise ValueError(f"{item.role} input {item.name!r} is missing; the program takes {self._names()}")
            inputs[item.name] = self._checked(item, value)
        if unread:
            raise ValueError(f"no input {sorted(unread)}; the program takes {self._names()}")
        return inputs

    def _names(self) -> list[str]:
        return [item.name for item in self._given]

    def _checked(self, item: Input, number: Any) -> Tensor:
        value = self.program.graph.values[item.name]
        dtype = getattr(torch, value.dtype)
        if not isinstance(number, torch.Tensor):
            number = torch.tensor(number, dtype=dtype)
        elif number.dim() == 0 and not value.shape:
            number = number.to(dtype)
        if (tuple(number.shape), number.dtype) != (value.shape, dtype):
            raise ValueError(
                f"{item.role} input {item.name!r} must be {value.dtype}{list(value.shape)}, got "
                f"{str(number.dtype).removeprefix('torch.')}{list(number.shape)}"
            )
        return number.detach()

    def _divide(self, inputs: Mapping[str, Tensor]) -> list[dict[str, Any]]:
        return [
            {"inputs": {name: cut(tensor, box_of(self.program, name, rank)) for name, tensor in inputs.items()}}
            for rank in range(self.workers)
        ]

    def _set_state(
        self,
        state: Mapping[str, Tensor],
        recipes: Mapping[str, Recipe],
        resume: str | None,
        resumed: list[str],
        digest: str | None = None,
    ) -> None:
        self._same(
            "program", lambda: str(_outline(self.program)), "plan once, save the plan, and load it on every rank"
        )
        cure = "make the model by the same seed on every rank (torch.manual_seed), or load the same weights"
        self._same("state", lambda: f"{self.seed} {self.steps} {_sums(state)}", cure)
        own = {key_of(item) for item in self.program.graph.state_inputs}
        own_recipes = {path: recipes[path] for path in own & set(recipes) - set(state) - set(resumed)}
        common = {"recipes": own_recipes, "seed": self.seed, "resume": resume, "resumed": resumed}
        fields = [{"parts": {}, **common} for _ in range(self.workers)]
        digests = checkpoint.agreed(self.crew.command("set_state", fields))
        if len({*digests, *([] if digest is None else [digest])}) > 1:
            raise checkpoint.CheckpointError(f"{resume} was replaced while it was read: resume again")
        common = {"recipes": {}, "seed": self.seed, "resume": None, "resumed": []}
        for paths in by_bytes({path: tensor.nbytes for path, tensor in state.items()}):
            piece = {path: state[path] for path in paths}
            fields = [{"parts": cut_state(self.program, rank, piece), **common} for rank in range(self.workers)]
            checkpoint.agreed(self.crew.command("set_state", fields))


PIECE = 32 << 20
"""Bytes of state that are under way between the user's tensors and the workers; or one tensor."""


class Pieces(Mapping[str, Tensor]):
    """The state of a run by path, of which the last `PIECE` bytes that were read are at hand; or one tensor."""

    def __init__(self, run: Run) -> None:
        self._run = run
        values = run.program.graph.values
        self._items = {key_of(item): item for item in run.program.graph.state_inputs}
        sizes = {path: values[item.name].bytes for path, item in self._items.items()}
        self._sizes = {piece: sum(map(sizes.__getitem__, piece)) for piece in by_bytes(sizes)}
        self._piece_of = {path: piece for piece in self._sizes for path in piece}
        self._known: dict[tuple[str, ...], dict[str, Tensor]] = {}

    def __getitem__(self, path: str) -> Tensor:
        piece = self._piece_of[path]
        known = self._known.pop(piece, None)
        if known is None:
            while self._known and sum(map(self._sizes.__getitem__, (*self._known, piece))) > PIECE:
                del self._known[next(iter(self._known))]
            known = self._run.whole_state([self._items[other] for other in piece], assembled)
        self._known[piece] = known
        return known[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def by_bytes(sizes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Names in pieces of at most a quarter of `PIECE` bytes, or of one name."""
    pieces: list[tuple[str, ...]] = []
    own: list[str] = []
    total = 0
    for name, size in sizes.items():
        if own and total + size > PIECE // 4:
            pieces.append(tuple(own))
            own, total = [], 0
        own.append(name)
        total += size
    return [*pieces, tuple(own)] if own else pieces


def _sums(tensors: Mapping[str, Tensor]) -> str:
    """Checksums of the elements of tensors, by name."""

    def own(tensor: Tensor) -> int:
        return zlib.crc32(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())

    return str({name: own(tensor) for name, tensor in sorted(tensors.items())})


def _same_state(program: Program, other: Program) -> bool:
    """Does all state of two programs lie in the same places of the same devices?"""
    names = [{item.path: item.name for item in own.graph.state_inputs} for own in (program, other)]
    return (
        names[0] == names[1]
        and not (program.host or other.host)
        and program.mesh == other.mesh
        and all(
            box_of(program, name, rank) == box_of(other, name, rank)
            for name in names[0].values()
            for rank in range(program.mesh.devices)
        )
    )


def _outline(program: Program) -> int:
    """A checksum of what is computed, how it is divided, and in which order."""
    steps = [(type(step).__name__, step.node) for step in program.steps]
    layouts = sorted(program.strategy.layouts.items())
    return zlib.crc32(f"{program.graph}{program.strategy.divisions}{layouts}{steps}".encode())


def _bytes(answer: Any) -> int:
    """Written so far by a worker, of which `Writing.go_on` told."""
    if not isinstance(answer, tuple):
        return int(answer)
    return answer[0].bytes if answer[0] is not None else 0


def start(
    program: Program,
    initial: Mapping[str, Recipe | tuple[Any, float, float]] | None = None,
    *,
    backend: str | Engine = "processes",
    state: Mapping[str, Tensor] | None = None,
    resume: str | Path | None = None,
    seed: int = 0,
    timeout: float = 60.0,
    observe: Observer | None = None,
    device: str = "cpu",
    timeline: bool = False,
    addresses: Sequence[Addresses] | None = None,
    strict: bool = False,
    without: str = "",
    checksums: Mapping[str, int] | None = None,
) -> Run:
    """Start the workers of a program and give them their first state.

    initial: recipes by path (`Initial`, or kind, a, b), for state that neither `state` (whole tensors by path) nor
        `resume` (a checkpoint of any division of the same program) gives. What is given twice: state, then resume,
        then initial.
    backend: an engine that trains, or its name: `processes` of this host, `threads` of this process, actors of `ray`
        (with `save` into a folder that all hosts have), or `torchrun`:
        every rank calls this and all methods of the Run, with whole batches, and is itself one worker; results are
        whole on every rank, and `observe` is called on rank 0. Where a launcher has set ranks, `processes` means
        `torchrun`.
    seed: of recipes and of random operators; a resumed run keeps the checkpoint's. timeout: seconds that one step may
        take. device: `cpu`, `cuda` (a GPU for each worker), or one GPU (`girih.run.worker.devices`). timeline: measure
        every instruction.
    addresses: by rank, where everything of a worker lies in its arena, one region of memory that it allocates at the
        start (`girih.run.arena`); on a processor alone. strict: what a kernel asks for and has no place there is
        refused; else it lies outside and is counted (`Statistics.arena`). without: why there are no addresses, where
        workers are to stay near a limit of memory.
    checksums: of data of the program by name, which `state` has: checkpoints say them, and training goes on with the
        same alone.

    Raises:
        ValueError: state is missing or has another shape; CheckpointError: `resume` does not fit.
        WorkerError: a worker could not start.
    """
    engine = engine_here(engine_of(backend, TRAINING), program.mesh.devices, alone=not program.graph.updates)
    recipes = {path: Initial(*item) if isinstance(item, tuple) else item for path, item in (initial or {}).items()}
    tensors = state or {}
    steps, directory, digest, resumed = 0, None, None, list[str]()
    if resume is not None:
        manifest = checkpoint.read_manifest(resume)
        seed, steps, directory, digest = manifest.seed, manifest.step, str(Path(resume).absolute()), manifest.digest
        if program.graph.updates:
            checkpoint.check_data(manifest, resume, checksums or {})
        held = checkpoint.check_entries(manifest, resume, program, {*recipes, *tensors})
        resumed = [path for path in held if path not in tensors]
    check_known(program.graph, tensors, dict.fromkeys(resumed), recipes)
    cut_state(program, 0, tensors)  # views: proves the shapes before anything is started
    planned = None if addresses is None else tuple(addresses)
    options = Options(
        timeout=timeout, device=device, timeline=timeline, addresses=planned, strict=strict, without=without
    )
    connection = engine.connect()
    try:
        crew = engine.crew(program, options)
    except BaseException:
        connection.close()
        raise
    own = observe if crew.rank == 0 else None
    run = Run(
        program, crew, seed=seed, steps=steps, observe=own, one_process=engine.one_process, checksums=checksums,
        connection=connection,
    )  # fmt: skip
    try:
        run._set_state(tensors, recipes, directory, resumed, digest)
    except BaseException:
        run.close()
        raise
    return run
