"""A training step that is called from a loop of the user's own; see `girih.api.fit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import gcd
from time import perf_counter
from typing import Any, Protocol

import torch
from torch.nn.functional import pad as padded
from torch.utils._pytree import tree_unflatten

from girih.capture.batches import leaves_of, with_leaves
from girih.capture.errors import CaptureError
from girih.capture.scaled_step import follow
from girih.capture.torch.own_update import Host, OwnUpdate
from girih.capture.torch.settings import Settings, differences, kernel_settings, listed
from girih.capture.torch.state import give_state, state_of
from girih.capture.torch.training import LOSS, TrainingStep, parameter_names
from girih.plans.inputs import Program, flatten_batch, program_of
from girih.plans.plan import Plan, PlanError
from girih.run.engines.crew import resident_bytes
from girih.run.engines.engine import Engine
from girih.run.errors import WorkerError
from girih.run.training.aside import Aside
from girih.run.training.training import TrainingRun, check_batch, nested_batch, start_training
from girih.run.training.watch import BeforeReading, Marks, Outdated, marks, tensors_of, with_numbers, written
from girih.run.worker.moves import SPILL
from girih.run.worker.pages import trim

Sizes = tuple[tuple[str, tuple[int, ...]], ...]
"""The shape of each tensor of a batch, by its path."""

Make = Callable[[TrainingStep, Any], tuple[Plan, Program]]
"""Plans a step for batches like one."""


class View(Protocol):
    """What is told of each step; see `girih.report.progress.TrainingView` and `girih.report.page.live.TrainingPage`."""

    def watch(self, look: Callable[[], list[tuple[int, int, float, str, bool]]]) -> None: ...
    def __call__(self, plan: Plan, step: int, loss: float, seconds: float, resident: int) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Padding:
    """How sequences of several lengths become sequences of a few.

    values: by path of a tensor of the batch, what it is filled up with, behind, along dimension 1. lengths: to the
    smallest of these that is long enough; a longer sequence stays as it is.
    """

    values: Mapping[str, float]
    lengths: Sequence[int]

    def __post_init__(self) -> None:
        if not self.values or not self.lengths:
            raise PlanError(
                "pad= and buckets= go together, as pad={'input_ids': 0, 'labels': -100}, buckets=(64, 128): what each "
                "tensor is filled up with, and the lengths along dimension 1 that there may be"
            )

    def __call__(self, batch: Any) -> Any:
        """A batch like this one, with sequences that are filled up.

        Raises:
            PlanError: `values` names a tensor that the batch has not, or one without dimension 1.
        """
        known = [path for path, _ in leaves_of(batch)]
        if missing := sorted(self.values.keys() - set(known)):
            raise PlanError(f"pad= names {', '.join(map(repr, missing))}, and the batch has {known}")
        paths = iter(known)
        return with_leaves(batch, lambda leaf: self._filled(next(paths), leaf))

    def _filled(self, path: str, leaf: Any) -> Any:
        if path not in self.values:
            return leaf
        if not isinstance(leaf, torch.Tensor) or leaf.dim() < 2:
            raise PlanError(f"pad= names {path!r}, which has no dimension 1: name tensors of [batch, length, …]")
        length = leaf.shape[1]
        wanted = min((goal for goal in self.lengths if goal >= length), default=length)
        return padded(leaf, (*(0, 0) * (leaf.dim() - 2), 0, wanted - length), value=self.values[path])


@dataclass(frozen=True)
class Member:
    """One of the plans of a step, for batches of one size. settings: what it has as constants."""

    plan: Plan
    program: Program
    settings: Settings


class Fit:
    """A training step that is called; see `girih.fit`. plan: how it is laid out, for batches of the last size.

    Between two steps, weights are the workers'. The user's model and optimizer have those of the step after which they
    were last given back; from then to the next step, what is written into them is taken up.
    """

    def __init__(
        self,
        make: Make,
        step: TrainingStep,
        batch: Any,
        backend: str | Engine,
        *,
        sizes: int = 8,
        padding: Padding | None = None,
        view: View | None = None,
        device: str | None = None,
    ) -> None:
        self._make = make
        self.step = step
        self.backend = backend
        self.device = device
        self.run: TrainingRun | None = None
        self._padding = padding
        self._view = view
        batch = batch if padding is None else padding(batch)
        self._bare = isinstance(batch, torch.Tensor)
        self._most = sizes
        self._at = sizes_of(batch)
        self._family: dict[Sizes, Member] = {}
        self._others: dict[Sizes, list[Member]] = {}
        """Plans for updates by other operators, which the optimizer's own code has called before."""
        self._family[self._at] = self._member(batch)
        self._groups = step.groups()
        self._kernels = kernel_settings() if step.exact else {}
        self._host: Host = {}
        self._given = 0  # steps after which weights and state were last given back
        self._left_out = 0  # of the steps since then, by a GradScaler
        self._marks: Marks = {}  # of the user's tensors, then
        self._told: Marks = {}  # marks with which a write was refused
        self._handles: list[Any] = []
        self._reader: BeforeReading | None = None
        self._outdated = Outdated(self._read)
        self._busy = False  # what reads the model is this object itself
        self._process = os.getpid()
        self._aside = Aside(os.environ.get(SPILL))

    @property
    def plan(self) -> Plan:
        return self._family[self._at].plan

    @property
    def plans(self) -> dict[Sizes, Plan]:
        """All plans, by the shapes of the batch's tensors that they are for."""
        return {sizes: member.plan for sizes, member in self._family.items()}

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """One step: the loss, as a float; of a step that gives other tensors too, all that it gives, with the loss so.

        Raises:
            PlanError: the batch has other tensors than the one that was planned, or there are too many sizes; or
                something was changed since the last step that the plan cannot take up. Nothing has happened then.
            WorkerError: a worker failed; the weights are those of the last `module` or `close`.
        """
        began = perf_counter()
        if batch and named:
            raise PlanError("give all of a batch by position, train(x, y), or all by name, train(**batch)")
        nested = named or nested_batch(batch, self._bare)
        if self._padding is not None:
            nested = self._padding(nested)
        run = self._up_to_date(nested)
        own, scaler = self._family[self._at].program.own, self._family[self._at].program.scaler
        if own is None:
            rates = [float(group["lr"]) for group in self.step.optimizer.param_groups]
            scale = None if scaler is None else scaler.get_scale()
            tensors, numbers = run.inputs((nested,), rates if len(rates) > 1 else rates[0], scale)
            self.step.optimizer._opt_called = True  # what PyTorch's schedulers ask for before their own step
        else:
            with self._for_itself():  # the optimizer's code runs, on stand-ins
                tensors, found = run.tensors((nested,)), self._numbers(own, nested)
            numbers = {item.name: found[item.path] for item in self.plan.graph.inputs if item.role == "scalar"}
        assert self.run is not None
        if self._view is not None:
            self._view.watch(self.run.workers)
        outputs = self.run.outputs(tensors, numbers)
        self._outdated.mark(self.step)
        if scaler is not None:
            *_, last = (item.name for item in self.plan.graph.outputs if item.role == "result")
            left_out = bool(outputs[last])
            self._left_out += left_out
            follow(scaler, left_out)
        if self._view is not None:
            loss = float(outputs["loss"])
            self._view(self.plan, self.run.steps, loss, perf_counter() - began, resident_bytes())
        return self._results(outputs)

    def _numbers(self, own: OwnUpdate, batch: Any) -> dict[str, float]:
        """What the optimizer's own code computes for this step, by their paths. Where it calls other operators than in
        the plan, another plan is made, or one from before is taken, and the workers go on with it."""
        optimizer, names = self.step.optimizer, parameter_names(self.step.model)
        try:
            return own.numbers(optimizer, names, self._host)
        except CaptureError as error:
            others = self._others.setdefault(self._at, [])
            for place, other in enumerate(others):
                with suppress(CaptureError):
                    assert other.program.own is not None
                    found = other.program.own.numbers(optimizer, names, self._host)
                    others[place] = self._family[self._at]
                    self._family[self._at] = other
                    self._hand_over(self._at)
                    return found
            if len(others) + 1 >= self._most:
                raise PlanError(
                    f"{error}, and so it was {len(others)} times before: expected an update that calls the same "
                    f"operators at each step, or at most {self._most} ways (sizes= of girih.fit)"
                ) from error
        if not self._fresh:
            self._give()
        with self._undisturbed():
            try:
                member = self._member(batch)
            except (CaptureError, ValueError) as error:
                raise PlanError(f"the optimizer's code is another than before: {error}") from error
        others.append(self._family[self._at])
        self._family[self._at] = member
        self._hand_over(self._at)
        assert member.program.own is not None
        return member.program.own.numbers(optimizer, names, self._host)

    def _results(self, outputs: dict[str, Any]) -> Any:
        """What a step makes, nested as it gives it."""
        program, loss = self._family[self._at].program, float(outputs["loss"])
        if program.results is None:
            return loss
        rest = iter([outputs[item.name] for item in program.graph.outputs if item.role == "result"])
        leaves = [
            next(rest) if number not in program.constants else
            loss if program.constants[number] is LOSS else program.constants[number]
            for number in range(program.results.num_leaves)
        ]  # fmt: skip
        return tree_unflatten(leaves, program.results)

    def state_dict(self) -> dict[str, Any]:
        """The weights and buffers as they are now, by the keys of the model's own."""
        return self.step.model.state_dict() if self.run is None or self._fresh else self.run.state_dict()

    @property
    def module(self) -> Any:
        """The model, into which the weights as they are now are written, and the optimizer's state into the optimizer:
        for an evaluation, a checkpoint, or a change between two steps.

        Raises:
            PlanError: the model was written to while it had the weights of an earlier step.
        """
        if self.run is not None and not self._fresh:
            self._check_writes()
            self._give()
        return self.step.model

    def close(self) -> None:
        """Give weights and optimizer state back, and stop the workers; the next call starts new ones.

        Raises:
            PlanError: the model was written to while it had the weights of an earlier step: that is lost.
        """
        if self._view is not None:
            self._view.close()
        if self.run is None:
            return
        lost, given = [], self._given
        try:
            lost = [] if self._fresh else self._written()
            if not self._fresh:
                self._give()
        finally:
            run, self.run = self.run, None
            self._outdated.unmark(self.step)
            self._remove()
            run.close()
            del run  # the workers' memory goes before there is the user's
            self._trim()
            self._aside.back()
        if lost:
            raise PlanError(
                f"{listed(lost)} changed while the model had the weights of step {given}: that is lost, the model now "
                "has the weights of the run. Change `train.module`"
            )

    def __enter__(self) -> Fit:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(*(() if kind is None else (WorkerError, PlanError))):  # what went wrong in the block is told
            self.close()

    # What has changed

    @property
    def _fresh(self) -> bool:
        """Have the model and the optimizer what the workers have, and what was written since?"""
        return self.run is not None and self.run.steps == self._given

    def _up_to_date(self, batch: Any) -> TrainingRun:
        """The run for a batch, with all that has changed since its last step."""
        self._ask_others()
        if self._kernels and (changed := differences(self._kernels, kernel_settings())):
            raise PlanError(
                f"{listed(changed)} since the step was planned, with which PyTorch's kernels make other bits: undo it, "
                "or begin anew with girih.fit(exact=True)"
            )
        if self.run is not None and not self._fresh:
            self._check_writes()
            if (state := self._outdated.taken(self.step)) is not None:
                self._read()
                self.step.optimizer.state = state
        if (sizes := sizes_of(batch)) != self._at:
            self._turn_to(sizes, batch)
        with torch._C.DisableTorchFunctionSubclass():  # `Outdated` tensors are not read
            changed = self._family[self._at].settings.changed()
        if changed:
            self._plan_again(batch, changed)
        if self.run is None:
            return self._start(0)
        if self._fresh:
            try:
                state = state_of(self.step, self.plan.graph, self._family[self._at].program.own)
            except ValueError as error:
                raise PlanError(str(error)) from error
            self._take_host()
            wanted = {item.path for item in self.plan.graph.state_inputs}
            self.run.run.set_state({path: tensor for path, tensor in state.items() if path in wanted})
            self._marks = marks(self.step)
        return self.run

    def _check_writes(self) -> None:
        if changed := self._written():
            self._told = marks(self.step)
            raise PlanError(
                f"{listed(changed)} changed while the model had the weights of step {self._given}, and the run is at "
                f"step {self.run.steps if self.run else 0}: read `train.module` first, which writes the weights of now "
                "into the model, then change them"
            )

    def _written(self) -> list[str]:
        """The tensors that were written since they were given back, but for what was refused already."""
        now = marks(self.step)
        if now == self._told:
            return []
        return written(self._marks, now)

    def _give(self) -> None:
        """Write weights and state into the user's own tensors."""
        assert self.run is not None
        state, own = self.run.run.pieces(), self._family[self._at].program.own
        self._outdated.unmark(self.step)
        steps = self.run.steps - self._given - self._left_out
        copied = torch.clone if self.plan.memory is None else self._aside.copied
        give_state(self.step, state, steps, self._groups, own, self._host, copied)
        self._given, self._left_out = self.run.steps, 0
        self._marks, self._told = marks(self.step), {}

    def _turn_to(self, sizes: Sizes, batch: Any) -> None:
        """Go on with the plan for batches of another size: other workers take the state over.

        Raises:
            PlanError: nothing but sizes may be others; there are too many of them; or there is no plan for these.
        """
        if sizes not in self._family:
            if not _differs_in_size(self.plan, batch):
                check_batch(self.plan, batch)  # which says what differs
            advice = (
                "leave a short last batch out (a DataLoader's drop_last=True), or make sequences of few lengths (pad= "
                "and buckets= of girih.fit)"
            )
            if len(self._family) >= self._most:
                known = ", ".join(map(_shown, self._family))
                raise PlanError(
                    f"the batch has tensors {_shown(sizes)}, and there are plans for {self._most} other sizes, as many "
                    f"as sizes= of girih.fit allows: {known}; {advice}"
                )
            with self._undisturbed():
                try:
                    self._family[sizes] = self._member(batch)
                except (CaptureError, ValueError) as error:
                    raise PlanError(f"a batch of {_shown(sizes)} cannot be planned: {error}; {advice}") from error
        self._hand_over(sizes)

    def _hand_over(self, sizes: Sizes) -> None:
        """The workers go on with the plan for these sizes; or others, that have it, with what these have."""
        count = len(self._others.get(sizes, ()))
        if self.run is not None and self.run.turn(f"{_shown(sizes)} {count}", self._family[sizes].plan):
            self._at = sizes
            return
        if self.run is not None and not self._fresh:
            self._give()
        self._at = sizes
        if self.run is not None:
            run, self.run = self.run, None
            self._remove()
            run.close()
            self._start(run.steps)

    def _member(self, batch: Any) -> Member:
        self._ask_others()
        step = self._step_for(batch)
        return Member(*self._make(step, batch), Settings(step))

    def _step_for(self, batch: Any) -> TrainingStep:
        """The step, in as many micro-batches as it has, or in fewer where a short batch cannot be cut so."""
        lengths = {shape[0] for _, shape in sizes_of(batch) if shape}
        later = self._family and len(lengths) == 1  # the first batch has the sizes that were thought of
        parts = gcd(self.step.micro_batches, *lengths) if later else self.step.micro_batches
        return self.step if parts == self.step.micro_batches else replace(self.step, micro_batches=parts)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """While open, the step is captured: its model is read, and not by the user."""
        self._remove()
        self._outdated.unmark(self.step)
        try:
            with self._for_itself():
                yield
        finally:
            self._install()
            if self.run is not None and not self._fresh:
                self._outdated.mark(self.step)

    def _plan_again(self, batch: Any, changed: list[str]) -> None:
        """The plan with what has changed, where that is nothing or some numbers: other workers go on with it.

        Raises:
            PlanError: it is more than numbers.
        """
        advice = "undo it, or `close()` and begin anew with girih.fit, which plans for the model as it is then"
        check_batch(self.plan, batch)
        with self._undisturbed():
            try:
                step = self._step_for(batch)
                own = program_of(replace(step), batch)
            except (CaptureError, ValueError) as error:
                raise PlanError(f"{listed(changed)}: the step cannot be planned so: {error}; {advice}") from error
        if not with_numbers(self.plan.graph, own.graph):
            raise PlanError(f"{listed(changed)} since the step was planned, and its plan does not fit that: {advice}")
        same = own.graph == self.plan.graph
        plan = self.plan.but(state=own.origin.state, **{} if same else {"graph": own.graph})
        self._family[self._at] = Member(plan, own, Settings(step))
        if not same:
            self._hand_over(self._at)

    def _start(self, steps: int) -> TrainingRun:
        if self.plan.memory is not None:
            self._aside.take(tensors_of(self.step))
        self._trim()
        try:
            self.run = start_training(
                self.plan, backend=self.backend, model=self.step.model, resume=None, seed=0, timeout=120.0,
                device=self.device,
            )  # fmt: skip
        except BaseException:
            self._aside.back()
            raise
        self._trim()
        self.run.run.steps = self._given = steps
        self._take_host()
        self._marks, self._told = marks(self.step), {}
        self._install()
        return self.run

    def _trim(self) -> None:
        """Under a limit, give the system back what planning and copying have left."""
        if self.plan.memory is not None:
            trim()

    def _take_host(self) -> None:
        """What the optimizer keeps in Python, such as a count of steps, as it is now."""
        own = self._family[self._at].program.own
        self._host = {} if own is None else own.host(self.step.optimizer, parameter_names(self.step.model))

    def _ask_others(self) -> None:
        """Other steps that train parts of this model, as those of a GAN, give their weights of now back; so at most one
        of them has weights that are newer than the model's."""
        found = {
            hook
            for module in self.step.model.modules()
            for hook in module._forward_pre_hooks.values()
            if isinstance(hook, BeforeReading) and hook is not self._reader
        }
        for hook in found:
            hook()

    def _install(self) -> None:
        if self.run is not None and not self._handles:
            self._reader = BeforeReading(self._read)
            self._handles = self._reader.install(self.step)

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _read(self) -> None:
        """PyTorch is about to read the model, one of its tensors, or the optimizer's state."""
        if not self._busy and self.run is not None and not self._fresh:
            if os.getpid() != self._process:
                raise PlanError(
                    "the model has older weights than the run, which a process that was forked cannot ask for them: "
                    "read `train.module` before that process is made"
                )
            self._check_writes()
            with self._for_itself():
                self._give()

    @contextmanager
    def _for_itself(self) -> Iterator[None]:
        """While open, what is read is not read by the user."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before


def sizes_of(batch: Any) -> Sizes:
    return tuple((path, tuple(tensor.shape)) for path, tensor in flatten_batch(batch).items())


def _differs_in_size(plan: Plan, batch: Any) -> bool:
    """Has the batch the tensors that the plan was made for, but for how long their dimensions are?"""
    found = {
        path: (str(item.dtype).removeprefix("torch."), len(item.shape)) for path, item in flatten_batch(batch).items()
    }
    if not all(isinstance(item, torch.Tensor) for item in flatten_batch(batch).values()):
        return False
    values = {item.path: plan.graph.values[item.name] for item in plan.graph.inputs if item.role == "batch"}
    return found == {path: (value.dtype, len(value.shape)) for path, value in values.items()}


def _shown(sizes: Sizes) -> str:
    return " ".join(f"{path} {list(shape)}".strip() for path, shape in sizes)
