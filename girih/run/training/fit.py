"""A training step that is called from a loop of the user's own; see `girih.api.fit`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from girih.capture.errors import CaptureError
from girih.capture.torch.settings import Settings, listed
from girih.capture.torch.state import give_state, state_of
from girih.capture.torch.training import TrainingStep
from girih.plans.inputs import program_of
from girih.plans.plan import Plan, PlanError
from girih.run.engines.engine import Engine
from girih.run.errors import WorkerError
from girih.run.training.training import TrainingRun, check_batch, start_training
from girih.run.training.watch import BeforeReading, Marks, marks, with_numbers, written


class Fit:
    """A training step that is called; see `girih.fit`. plan: how it is laid out.

    Between two steps, weights are the workers'. The user's model and optimizer have those of the step after which they
    were last given back; from then to the next step, what is written into them is taken up.
    """

    def __init__(self, planned: Plan, step: TrainingStep, backend: str | Engine) -> None:
        self.plan = planned
        self.step = step
        self.backend = backend
        self.run: TrainingRun | None = None
        self._groups = step.groups()
        self._settings = Settings(step)
        self._given = 0  # steps after which weights and state were last given back
        self._marks: Marks = {}  # of the user's tensors, then
        self._told: Marks = {}  # marks with which a write was refused
        self._handles: list[Any] = []
        self._busy = False  # what reads the model is this object itself

    def __call__(self, *batch: Any) -> float:
        """One step: the loss.

        Raises:
            PlanError: the batch has other shapes than the one that was planned; or something was changed since the last
                step that the plan cannot take up. Nothing has happened then.
            WorkerError: a worker failed; the weights are those of the last `module` or `close`.
        """
        run = self._up_to_date(batch)
        rates = [float(group["lr"]) for group in self.step.optimizer.param_groups]
        self.step.optimizer._opt_called = True  # what PyTorch's schedulers ask for before their own step
        return float(run.planned_step(batch, rates if len(rates) > 1 else rates[0]))

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
        if self.run is None:
            return
        lost, given = [], self._given
        try:
            lost = [] if self._fresh else self._written()
            if not self._fresh:
                self._give()
        finally:
            run, self.run = self.run, None
            self._remove()
            run.close()
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

    def _up_to_date(self, batch: tuple[Any, ...]) -> TrainingRun:
        """The run, with all that has changed since its last step."""
        if self.run is not None and not self._fresh:
            self._check_writes()
        if changed := self._settings.changed():
            self._plan_again(batch, changed)
        if self.run is None:
            return self._start(0)
        if self._fresh:
            try:
                state = state_of(self.step, self.plan.graph)
            except ValueError as error:
                raise PlanError(str(error)) from error
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
        give_state(self.step, self.run.run.state(), self.run.steps - self._given, self._groups)
        self._given = self.run.steps
        self._marks, self._told = marks(self.step), {}

    def _plan_again(self, batch: tuple[Any, ...], changed: list[str]) -> None:
        """The plan with what has changed, where that is nothing or some numbers: other workers go on with it.

        Raises:
            PlanError: it is more than numbers.
        """
        advice = "undo it, or `close()` and begin anew with girih.fit, which plans for the model as it is then"
        nested = batch[0] if len(batch) == 1 else batch
        check_batch(self.plan, nested)
        self._remove()
        self._busy = True
        try:
            own = program_of(replace(self.step), nested)
        except (CaptureError, ValueError) as error:
            raise PlanError(f"{listed(changed)}: the step cannot be planned so: {error}; {advice}") from error
        finally:
            self._busy = False
            self._install()
        if not with_numbers(self.plan.graph, own.graph):
            raise PlanError(f"{listed(changed)} since the step was planned, and its plan does not fit that: {advice}")
        if own.graph == self.plan.graph:
            self.plan = self.plan.but(state=own.origin.state)
        else:
            if self.run is not None and not self._fresh:
                self._give()
            self.plan = self.plan.but(graph=own.graph, state=own.origin.state)
            if self.run is not None:
                run, self.run = self.run, None
                self._remove()
                run.close()
                self._start(run.steps)
        self._settings = Settings(self.step)

    def _start(self, steps: int) -> TrainingRun:
        self.run = start_training(
            self.plan, backend=self.backend, model=self.step.model, resume=None, seed=0, timeout=120.0
        )
        self.run.run.steps = self._given = steps
        self._marks, self._told = marks(self.step), {}
        self._install()
        return self.run

    def _install(self) -> None:
        if self.run is not None and not self._handles:
            reader = BeforeReading(self._read, lambda: None if self._fresh or self.run is None else self._given)
            self._handles = reader.install(self.step)

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _read(self) -> None:
        """PyTorch is about to read the model, or the optimizer's state."""
        if not self._busy and self.run is not None and not self._fresh:
            self._check_writes()
            self._busy = True
            try:
                self._give()
            finally:
                self._busy = False
