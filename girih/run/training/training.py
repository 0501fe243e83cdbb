"""A plan that runs: batches in the user's nesting go in, losses and whole tensors come out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from girih.capture.scaled_step import SCALE
from girih.capture.torch.own_update import NUMBERS
from girih.capture.torch.settings import listed
from girih.capture.torch.training import ambient_autocast
from girih.capture.torch.weights import Weights
from girih.cost.setting import threads_of
from girih.graph import of_batch
from girih.machine import MachineError
from girih.ops.gate import is_exact
from girih.plans.check import check
from girih.plans.host import on_this_host
from girih.plans.indices import check_numbers, look_ups
from girih.plans.inputs import constants_of, flatten_batch, learning_rates, rates_of, source_of
from girih.plans.plan import Plan, PlanError
from girih.program import MoveStep, TransferStep
from girih.run.engines.crew import AgreeingCrew, resident_bytes
from girih.run.engines.engine import TRAINING, Engine, engine_here, engine_of
from girih.run.engines.launcher import launched_rank, local_rank
from girih.run.engines.ray_connect import RayUnavailableError
from girih.run.errors import IDLE, where
from girih.run.worker.devices import check_device

if TYPE_CHECKING:
    from girih.simulate.timeline import Timeline


ARENAS = ("auto", "on", "strict", "off")
"""Whether everything of a step lies in one region of memory: where the plan has a limit and the region is within it;
always; so that all else is refused; never."""


def check_batch(plan: Plan, batch: Any) -> dict[str, Any]:
    """The batch's tensors by input name.

    Raises:
        PlanError: if tensors are missing, or of another shape or dtype than the plan was made for.
    """
    flat = flatten_batch(batch)
    wanted = {item.path: item.name for item in plan.graph.inputs if item.role == "batch"}
    if missing := [path for path in wanted if path not in flat]:
        if not missing[0]:
            raise PlanError(
                f"the batch has tensors at {sorted(flat)}, and the plan was made with one tensor: give that"
            )
        held = "is one tensor" if "" in flat else f"has no tensor at {missing}: it has {sorted(flat)}"
        raise PlanError(f"the batch {held}, the plan reads {sorted(wanted)}")
    now = {path: f"a tensor, {list(item.shape)}" for path, item in flat.items()} | constants_of(batch)
    if extra := sorted(now.keys() - wanted.keys() - plan.origin.constants.keys()):
        raise PlanError(
            f"the batch has {now[extra[0]]} at {extra[0]!r}, where the plan was made with nothing: give batches with "
            f"the keys {sorted((*wanted, *plan.origin.constants))}, or plan again"
        )
    for path, then in plan.origin.constants.items():
        if now.get(path, then) != then:
            raise PlanError(
                f"the batch has {now[path]} at {path!r}, and the plan was made with {then}: what is no tensor is a "
                "constant of a plan. Plan again, or give a tensor, also when planning"
            )
    named = {}
    for path, name in wanted.items():
        value, tensor = plan.graph.values[name], flat[path]
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tuple(tensor.shape) != value.shape or dtype != value.dtype:
            raise PlanError(
                f"{of_batch(path)} is {dtype}{list(tensor.shape)}; the plan was made for "
                f"{value.dtype}{list(value.shape)}: make batches of this shape and type (a DataLoader's "
                "drop_last=True leaves out a short last one), or plan again"
            )
        if str(tensor.device) == "meta" or type(tensor).__name__ == "FakeTensor":
            raise PlanError(f"{of_batch(path)} is on the meta device and has no values: give a real one")
        if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
            raise PlanError(f"{of_batch(path)} is {tensor.layout}: give it with to_dense()")
        if not tensor.is_contiguous() and is_exact(plan.graph):
            raise PlanError(f"{of_batch(path)} is not contiguous, as it was when the step was planned with exact=True")
        named[name] = tensor
    return named


def planned_batch(plan: Plan, batch: tuple[Any, ...]) -> dict[str, Any]:
    """The batch of a call, `run(x, y)` or `run({"x": x})`, as tensors by input name; see `check_batch`."""
    bare = [item.path for item in plan.graph.inputs if item.role == "batch"] == [""]
    return check_batch(plan, nested_batch(batch, bare))


def nested_batch(batch: tuple[Any, ...], bare: bool) -> Any:
    """What a step takes, of the arguments of a call. bare: it takes a tensor and not a nesting of some.

    Raises:
        PlanError: an argument is data that girih.plan makes a part of the program (`girih.plans.inputs.with_data`).
    """
    if any(hasattr(item, "with_step") for item in batch):
        raise PlanError(
            "data is a part of the program that was planned with it: make steps without a batch, and plan again for "
            "other data"
        )
    return batch[0] if len(batch) == 1 and (bare or not isinstance(batch[0], torch.Tensor)) else batch


ROLES = "parameter", "buffer", "data", "state"


def check_state(plan: Plan, state: Mapping[str, Any], roles: Sequence[str] = ROLES) -> dict[str, Any]:
    """The tensors that the plan keeps from step to step, by path. roles: of the inputs that are looked at.

    Raises:
        PlanError: if one is missing or of another shape: a plan made for another model.
    """
    tensors = {}
    for item in plan.graph.state_inputs:
        if item.role not in roles:
            continue
        value = plan.graph.values[item.name]
        tensor = state.get(item.path)
        if tensor is None:
            if item.role == "state":
                continue
            if item.role == "data":
                raise PlanError(_no_data(plan))
            raise PlanError(f"the model has no {item.role} {item.path!r}: the plan was made for another model")
        if tuple(tensor.shape) != value.shape:
            raise PlanError(
                f"the model's {item.path!r} has shape {list(tensor.shape)}, the plan {list(value.shape)}: "
                f"the plan was made for another model"
            )
        dtype = str(tensor.dtype).removeprefix("torch.")
        if item.role != "state" and dtype != value.dtype:
            raise PlanError(
                f"the model's {item.path!r} is {dtype}, in the plan {value.dtype}: give the model as it was planned, "
                "or plan again"
            )
        if tensor.device.type != "meta" and type(tensor).__name__ != "FakeTensor":
            tensors[item.path] = tensor
    return tensors


def _no_data(plan: Plan) -> str:
    paths = sorted(_paths(plan, ("data",)))
    return (
        f"the plan was made with data that is a part of its program ({', '.join(paths[:4])}), which its file does not "
        "hold: start it with plan.start(model=network, data=data), as girih.gnn.load gives it; at the shell give "
        "girih run --program FILE.py:FUNCTION"
    )


def _paths(plan: Plan, roles: Sequence[str]) -> set[str]:
    return {item.path for item in plan.graph.state_inputs if item.role in roles}


def _with_data(plan: Plan, model: Any, data: Any) -> tuple[Plan, Any]:
    """The plan with this data, and the model that has both.

    Raises:
        PlanError: it is no such data, there is no model to read it, or the plan was made without.
    """
    if not hasattr(data, "with_model"):
        raise PlanError(f"data= takes the whole graph of a graph network (girih.gnn.load), got {type(data).__name__}")
    if not plan.graph.data_inputs:
        raise PlanError("data= is for plans whose program has data as a part of it: this one takes batches")
    if model is None:
        raise PlanError("data= needs model=, the network that reads it, also where a checkpoint has the weights")
    whole = data.with_model(model, bool(plan.graph.updates), plan.graph)
    return plan.but(data=whole), whole


def _weights(plan: Plan, model: Any) -> dict[str, Any]:
    """The tensors of a model by the plan's paths. Where the program was planned with something around the model, as a
    graph network is with its data, names of the model are keys of the state that was planned."""
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    parameters = _paths(plan, ("parameter",))
    keys = plan.origin.keys or {}
    if parameters <= own.keys() or not parameters <= {keys.get(name, name) for name in own}:
        return own
    around = next((path.removesuffix(key) for key, path in keys.items() if path.endswith(f".{key}")), "")
    return {keys.get(name, f"{around}{name}"): tensor for name, tensor in own.items()}


def start_training(
    plan: Plan,
    *,
    backend: str | Engine,
    model: Any,
    resume: str | Path | None,
    seed: int,
    timeout: float,
    data: Any = None,
    measure: bool = False,
    arena: str = "auto",
    device: str | None = None,
) -> TrainingRun:
    """Check everything, then start the workers; see `Plan.start`."""
    from girih.run.training.checkpoint import CheckpointError
    from girih.run.training.session import start
    from girih.run.worker.moves import refusal

    device = device or ("cuda" if plan.machine.on_gpus else "cpu")
    if arena not in ARENAS:
        raise PlanError(f"no arena {arena!r}: expected one of {', '.join(ARENAS)}")
    check(plan)
    try:
        engine = engine_of(backend, TRAINING)
        if not engine.trains:
            raise PlanError(f"backend {engine.name} runs arrays, no plans: expected an engine that trains")
        engine = engine_here(engine, plan.machine.devices, alone=not plan.graph.updates)
    except PlanError:
        raise
    except ValueError as error:
        raise PlanError(str(error)) from error
    rank = launched_rank() if engine.launched else None
    try:
        here = plan.machine.devices if rank is None else local_rank(rank).size
        check_device(device, here, shares=engine.one_process)
    except MachineError as error:
        raise PlanError(str(error)) from error
    if plan.file:
        from girih.plans.trial import try_plan

        try_plan(plan, 1 if engine.launched else plan.machine.devices, device)
    if wrong := refusal(plan.program, range(plan.machine.devices) if rank is None else (rank.rank,), device):
        raise PlanError(wrong)
    if model is not None and not hasattr(model, "named_parameters"):
        raise PlanError(f"model= takes a torch.nn.Module, got {type(model).__name__}")
    if data is not None:
        plan, model = _with_data(plan, model, data)
    if resume is not None and model is not None and data is None:
        raise PlanError("give resume= or model=, not both: a checkpoint holds the weights")
    own_data = plan.origin.data
    if plan.graph.data_inputs and own_data is None:
        raise PlanError(_no_data(plan))
    held = {} if own_data is None else {
        path: tensor for path, tensor in own_data.data_tensors().items() if path in _paths(plan, ("data",))
    }  # fmt: skip
    if resume is not None:
        tensors = check_state(plan, held, ("data",))
    else:
        state = dict(plan.origin.state() if plan.origin.state is not None else {})
        if model is not None:
            of_optimizer = _paths(plan, ("state",))
            state = {path: item for path, item in state.items() if path in of_optimizer} | _weights(plan, model) | held
        tensors = check_state(plan, state) if state else {}
    plan = on_this_host(plan, threads_of(plan.machine.devices, engine.one_process or engine.launched), device)
    if device != "cpu" and arena in ("on", "strict"):
        raise PlanError(f"arena={arena!r}: a GPU's memory is its allocator's, which keeps no arena; leave arena= out")
    wanted = device == "cpu" and (arena in ("on", "strict") or (arena == "auto" and plan.memory is not None))
    without = plan.no_arena if wanted else ""
    if without and arena != "auto":
        raise PlanError(f"there can be no arena: {without}; start with arena='off', or 'auto', which goes without")
    try:
        run = start(
            plan.program,
            plan.origin.initial,
            backend=engine,
            state={path: tensor.detach() for path, tensor in tensors.items()},
            resume=None if resume is None else str(resume),
            seed=seed,
            timeout=timeout,
            device=device,
            timeline=measure,
            addresses=plan.arenas if wanted and not without else None,
            strict=arena == "strict",
            without=without,
            checksums={} if own_data is None else own_data.checksums,
        )
    except (ValueError, CheckpointError, RayUnavailableError) as error:
        raise PlanError(str(error)) from error
    return TrainingRun(plan, run)


@dataclass(frozen=True)
class Comparison:
    """A step beside the same step of the undivided program on one device.

    loss, undivided: the two losses. worst: the tensor that differs most for its dtype's tolerance. absolute, relative:
    its largest difference, and that by its largest element.
    """

    loss: float
    undivided: float
    worst: str
    absolute: float
    relative: float
    ok: bool


class TrainingRun:
    """Running workers; a context manager."""

    def __init__(self, plan: Plan, run: Any) -> None:
        self.run = run
        self._autocast = ambient_autocast()
        self._turn_to(plan)
        self._weights = self._weights_now()

    def _turn_to(self, plan: Plan) -> None:
        self.plan = plan
        self._verifier: Any = None
        self._look_ups = look_ups(plan.origin.undivided or plan.graph)

    def turn(self, key: str, plan: Plan) -> bool:
        """Go on with another plan of the same program, for batches of another size or with other numbers, on the same
        workers; False, and nothing has happened, where they would have to move state, or have a limit.

        key: names the plan; to go back to one that workers know takes no time.
        """
        if self.plan.memory is not None or plan.memory is not None:
            return False
        check(plan)
        if not self.run.turn(key, plan.program):
            return False
        self._turn_to(plan)
        return True

    @property
    def steps(self) -> int:
        """Steps done, those before a resumed checkpoint included."""
        return int(self.run.steps)

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def timeline(self) -> Timeline:
        """The last step as it was measured, instruction by instruction; `Plan.start(measure=True)`.

        Raises:
            PlanError: the run does not measure.
        """
        from girih.run.training.measured import measured_timeline

        intervals = self.run.timeline()
        if not any(intervals):
            raise PlanError("nothing was measured: start the plan with measure=True, and make a step")
        levels = [level.name for level in self.plan.machine.levels for _ in level.axes]
        return measured_timeline(self.plan.program, intervals, ("compute", *levels), self.run.one_clock)

    def step(self, *batch: Any, lr: float | Sequence[float] | None = None) -> Any:
        """One step: the loss as a float for a training step, the outputs for an inference.

        batch: as it was planned, `step(x, y)` for a pair or `step({"input_ids": …})`. lr: this step's learning rate, or
        one for each of the optimizer's groups, such as a scheduler's `get_last_lr()`; by default the optimizer's as it
        is now, and of a plan that was read from a file, as it was when the plan was made.

        Raises:
            PlanError: if the batch does not fit the plan, or the program has other constants than it had then.
            IndexError: an index of the batch is in no row of an embedding.
            WorkerError: if a worker failed; it names the rank and the instruction.
        """
        self._check_autocast()
        self._check_constants()
        self._check_weights()
        return self.planned_step(batch, lr)

    def planned_step(self, batch: tuple[Any, ...], lr: float | Sequence[float] | None = None) -> Any:
        """`step`, for who has compared where it stands with where the plan was made."""
        outputs = self.outputs(*self.inputs(batch, lr))
        if "loss" in outputs:
            return outputs["loss"]
        return tuple(outputs[item.name] for item in self.plan.graph.outputs if item.role == "result")

    def _check_autocast(self) -> None:
        if (now := ambient_autocast()) != self._autocast:
            raise PlanError(
                f"a step under torch.autocast ({now or 'off'}), which was {self._autocast or 'off'} when the run "
                "began: a plan computes in the types that it was made with. Give autocast= to TrainingStep, and leave "
                "the step outside"
            )

    def _check_constants(self) -> None:
        source = source_of(self.plan)
        if source is not None and not source.given_up and (changed := source.changed()):
            raise PlanError(
                f"{listed(changed)} since the step was planned, with which it is a constant: undo it, or give the "
                "model the weights of now, `model.load_state_dict(run.state_dict())`, and plan again; girih.fit takes "
                "other numbers as they are"
            )

    def _weights_now(self) -> Weights | None:
        source = source_of(self.plan)
        return None if source is None or source.given_up else Weights(source.step.model)

    def _check_weights(self) -> None:
        """Warn where the model was given other weights than those that the run has; of several ranks each by itself,
        which has not all of the run's: there whatever is written into the model is told of."""
        if self._weights is None or not (name := self._weights.changed()):
            return
        self._weights = self._weights_now()
        if isinstance(self.run.crew, AgreeingCrew) or self._has_others():
            warnings.warn(
                f"{name} of the model was changed since the run started, which goes on with weights of its own: to go "
                "on with the model's, close the run and start the plan again; girih.fit takes up what is changed "
                "between two steps",
                stacklevel=3,
            )

    def _has_others(self) -> bool:
        """Has the model other weights than the run?"""
        own, theirs = self.state_dict(), self._weights.tensors if self._weights is not None else {}
        return any(key in own and not torch.equal(own[key].cpu(), item.detach().cpu()) for key, item in theirs.items())

    def outputs(self, named: dict[str, Any], scalars: Mapping[str, float]) -> dict[str, Any]:
        """All that a step makes and does not keep, by name, of tensors and numbers by name; see `inputs`.

        An exact step draws from PyTorch's own generator of random numbers, as it is now, and moves it on.
        """
        graph = self.plan.graph
        drawn = next(
            (item.name for item in graph.inputs if item.role == "seed" and graph.values[item.name].shape), None
        )
        if drawn is not None:
            named = {**named, drawn: torch.get_rng_state()}
        try:
            outputs: dict[str, Any] = self.run.step(named, scalars)
        except ValueError as error:
            raise PlanError(str(error)) from error
        if drawn is not None:
            torch.set_rng_state(outputs.pop([item.name for item in graph.outputs if item.role == "result"][-1]))
        return outputs

    def inputs(
        self, batch: tuple[Any, ...], lr: float | Sequence[float] | None, scale: float | None = None
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """A batch and learning rates, checked, by the names of the graph's inputs; see `step`. scale: of a GradScaler,
        where the step has one."""
        inputs = [item for item in self.plan.graph.inputs if item.role == "scalar"]
        if any(item.path.startswith(NUMBERS) for item in inputs):
            raise PlanError(
                "the optimizer's own code computes numbers at each step, which a plan does not have: train by girih.fit"
            )
        try:
            rates = rates_of(self._rates() or {item.path: 0.0 for item in inputs}, lr)
        except ValueError as error:
            raise PlanError(str(error)) from error
        if any(item.path == SCALE for item in inputs):
            if scale is None:
                raise PlanError(
                    "the step has a GradScaler, which is told after each step what it found; a plan that is started by "
                    "itself has none: train by girih.fit"
                )
            rates[SCALE] = scale
        scalars = {item.name: rates[item.path] for item in inputs}
        return self.tensors(batch), scalars

    def _rates(self) -> dict[str, float]:
        """The learning rates of the optimizer that was planned, as a scheduler has set them."""
        planned, source = dict(self.plan.origin.scalars), source_of(self.plan)
        optimizer = None if source is None else getattr(source.step, "optimizer", None)
        if not planned or source is None or optimizer is None:
            return planned
        now = learning_rates(source.step)
        optimizer._opt_called = True  # what PyTorch's schedulers ask for before their own step
        return now if now.keys() == planned.keys() else planned

    def tensors(self, batch: tuple[Any, ...]) -> dict[str, Any]:
        """A batch, checked, by the names of the graph's inputs; see `step`."""
        if self.plan.origin.data is not None:
            self.plan.origin.data.check_unchanged()
        named = planned_batch(self.plan, batch)
        for look_up in self._look_ups:
            check_numbers(look_up, named[look_up.input.name])
        return named

    def workers(self) -> list[tuple[int, int, float, str, bool]]:
        """For each worker: its rank, the bytes of its memory, the share of its step that is done, what it computes,
        copies or waits for, with the line of the program, and whether it exchanges or copies there, so that it may
        wait. Another thread may ask during a step."""
        program, found = self.run.crew.program, []
        for status in self.run.crew.status():
            place, idle = where(program, status.step), status.step == IDLE
            doing = place.operator if place.action == "compute" else place.action
            done = 1.0 if idle else status.step / place.steps
            at = "between steps" if idle else f"{doing} {place.source}".strip()
            waits = not idle and isinstance(program.steps[status.step], TransferStep | MoveStep)
            found.append((status.rank, status.resident or resident_bytes(), done, at, waits))
        return found

    def verified_step(self, *batch: Any, lr: float | Sequence[float] | None = None) -> Comparison:
        """A step, done on the workers and by the undivided program on this one device; see `step`.

        Every updated tensor is compared; both start from the workers' state before the step. Costs the memory and
        time of the whole program in this process.
        """
        from girih.run.training.verify import Verifier

        if self._verifier is None:
            self._verifier = Verifier(self.run, self.plan.origin.undivided)
        self._check_autocast()
        named, scalars = self.inputs(batch, lr)
        self._verifier.refresh()
        outputs = self.outputs(named, scalars)
        verification = self._verifier.check(named, scalars, outputs)
        worst = verification.worst
        undivided = float("nan") if verification.loss is None else verification.loss
        return Comparison(
            float(outputs.get("loss", float("nan"))),
            undivided,
            worst.name if worst is not None else "",
            worst.absolute if worst is not None else 0.0,
            worst.relative if worst is not None else 0.0,
            verification.ok,
        )

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers as whole tensors by the keys of the module's own `state_dict`, loadable into it."""
        paths = [item.path for item in self.plan.graph.inputs if item.role in ("parameter", "buffer")]
        keys = {path: path for path in paths} if self.plan.origin.keys is None else self.plan.origin.keys
        state = self.run.state()
        return {key: state[path] for key, path in keys.items()}

    def save(self, directory: str | Path) -> None:
        """Write a sharded checkpoint; `plan.start(resume=directory)` goes on from it, also under another plan.

        It is data with checksums, in a directory (`docs/design/008-checkpoints.md`); `girih checkpoint export` converts
        it to torch.distributed.checkpoint. Until it is whole and on the disk, a checkpoint that was there stays.

        Raises:
            PlanError: something else is at `directory`, another run saves there, or the disk is full; the run can go
                on.
            WorkerError: a worker died.
        """
        from girih.run.training.checkpoint import CheckpointError

        try:
            self.run.save(str(directory))
        except CheckpointError as error:
            raise PlanError(str(error)) from error

    def statistics(self) -> Any:
        """What the workers measured: bytes received, seconds in kernels and transfers."""
        return self.run.statistics()

    def close(self) -> None:
        """Stop all workers; none is left behind."""
        self.run.close()
