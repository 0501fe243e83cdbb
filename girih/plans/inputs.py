"""What a plan keeps of the user's program beside its graph: learning rates, keys of the state, ranges of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from girih.graph import Graph, check
from girih.plans.plan import Origin, Plan, PlanError
from girih.plans.rewritten import Rewrite

if TYPE_CHECKING:
    from girih.capture.torch.own_update import OwnUpdate
    from girih.capture.torch.settings import Source

AnyPlan = TypeVar("AnyPlan", bound=Plan)


@dataclass(frozen=True)
class Program:
    """A captured program: its graph, what a plan keeps of it beside, and by which rules it was rewritten.

    micro_batches: how many there are in a step. results: the nesting of what it gives beside a loss, as torch's pytrees
    have it; constants: by their number among the results, those that are no tensors. source: the step and batch that it
    was captured of, which can be asked whether they have changed since. own: the optimizer's own code,
    where its update is traced. scaler: the GradScaler that is on in the step, if there is one. No plan keeps these six.
    """

    graph: Graph
    origin: Origin
    rewrites: tuple[Rewrite, ...] = ()
    micro_batches: int = 1
    notes: tuple[str, ...] = ()
    results: Any = field(default=None, compare=False, repr=False)
    constants: Mapping[int, Any] = field(default_factory=dict, compare=False, repr=False)
    source: Source | None = field(default=None, compare=False, repr=False)
    own: OwnUpdate | None = field(default=None, compare=False, repr=False)
    scaler: Any = field(default=None, compare=False, repr=False)

    def in_plan(self, plan: AnyPlan) -> AnyPlan:
        """The plan, which was made of the graph alone, with all the rest."""
        from girih.partition.searches.stages import micro_batches

        rewrites = (*self.rewrites, *plan.choice.rewrites)  # a joint search has rewritten it further
        origin = self.origin
        if micro_batches(plan.graph) != micro_batches(self.graph):  # a search has cut it
            origin = replace(origin, undivided=self.graph)
        return plan.but(origin=origin, rewrites=rewrites, notes=(*self.notes, *plan.notes))

    def in_parts(self, count: int) -> Program:
        """The program with its batch in so many micro-batches.

        Raises:
            CaptureError: the batch cannot be cut so.
        """
        if count == 1:
            return self
        from girih.capture.micro_batches import in_micro_batches

        graph, meetings = in_micro_batches(self.graph, count)
        notes = self.notes
        if meetings:
            first = meetings[0]
            cure = ". Batch norm does so at each layer, group norm or layer norm never" if first.sums else ""
            notes += (
                f"all micro-batches meet {len(meetings)} times in the forward pass, first at {first.operator} "
                f"({first.source or 'no source line'}), which needs {first.why}: the numbers are those of the "
                f"undivided batch, but no micro-batch goes on before all have come there{cure}",
            )
        origin = replace(self.origin, undivided=self.graph)
        return replace(self, graph=graph, origin=origin, micro_batches=count, notes=notes)


def program_of(step: Any, batch: Any, model: str = "") -> Program:
    """Capture a training step, or an Inference, on a batch, or on data; see `with_data`.

    Raises:
        CaptureError: for what cannot be captured, naming the line of the program.
    """
    from girih.capture import capture
    from girih.capture.torch.settings import Source

    step, batch = with_data(step, batch)
    captured = capture(step, batch)
    graph = captured.graph
    check(graph)
    source = Source(step, batch, graph, captured.own)
    source.state()  # what is wrong with it is told now
    origin = Origin(
        model,
        {path: (item.kind, item.a, item.b) for path, item in captured.initial.items()},
        learning_rates(step) if captured.own is None else {},
        ranges_of(flatten_batch(batch)),
        state_keys(step.model),
        constants_of(batch),
        state=partial(_state_now, source),
        data=step.model if hasattr(step.model, "data_tensors") else None,
    )
    program = Program(
        graph,
        origin,
        results=captured.result_spec,
        constants=captured.constants,
        source=source,
        own=captured.own,
        scaler=captured.scaler,
    )
    return program.in_parts(getattr(step, "micro_batches", 1))


def with_data(step: Any, batch: Any) -> tuple[Any, Any]:
    """A step and its batch. What has `with_step`, such as the whole graph of a graph network, is the same in each step:
    it becomes a part of the program (`girih.plans.plan.ProgramData`), with an empty batch."""
    return batch.with_step(step) if hasattr(batch, "with_step") else (step, batch)


def source_of(plan: Plan) -> Source | None:
    """The step and batch that a plan was made of in this program; None of one that was read from a file."""
    state = plan.origin.state
    return state.args[0] if isinstance(state, partial) else None


def _state_now(source: Source) -> Mapping[str, Any]:
    """The user's tensors as they are now.

    Raises:
        PlanError: what is a constant of the plan was changed since the step was planned.
    """
    try:
        return source.state()
    except ValueError as error:
        raise PlanError(str(error)) from error


def flatten_batch(batch: Any) -> dict[str, Any]:
    """The tensors of a nested batch by path: `0`, `1/input_ids`."""
    from girih.capture.batches import leaves_of

    return {path: leaf for path, leaf in leaves_of(batch) if hasattr(leaf, "shape")}


def learning_rates(step: Any) -> dict[str, float]:
    """Learning rates by their input's path, as the optimizer has them now."""
    optimizer = getattr(step, "optimizer", None)
    groups = [] if optimizer is None else optimizer.param_groups
    if len(groups) == 1:
        return {"lr": float(groups[0]["lr"])}
    return {f"lr/{number}": float(group["lr"]) for number, group in enumerate(groups)}


def rates_of(scalars: Mapping[str, float], rates: Any) -> dict[str, float]:
    """Learning rates by path. rates: one for all groups, one for each of them, or None for those of the plan.

    Raises:
        ValueError: another number of rates than there are groups.
    """
    if rates is None:
        return dict(scalars)
    if not isinstance(rates, Sequence) or isinstance(rates, str):
        return dict.fromkeys(scalars, float(rates))
    if len(rates) != len(scalars):
        raise ValueError(
            f"lr= has {len(rates)} learning rates for {len(scalars)} of the optimizer's groups: give one for each, as "
            "a scheduler's get_last_lr() does, or one number for all"
        )
    return {path: float(rate) for path, rate in zip(scalars, rates, strict=True)}


def state_keys(model: Any) -> dict[str, str]:
    """By key of the model's `state_dict`, the path under which a plan knows the tensor.

    A tensor that several modules share has a key in each and one path; a buffer that is not persistent has no key.
    """
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    paths = {id(tensor): path for path, tensor in own.items()}
    kept = model.state_dict(keep_vars=True)
    return {key: paths[id(tensor)] for key, tensor in kept.items() if id(tensor) in paths}


def constants_of(batch: Any) -> dict[str, str]:
    """By path, how Python writes the numbers, words and None in a batch: a plan has them as constants."""
    from girih.capture.batches import PLAIN, leaves_of

    return {path: repr(leaf) for path, leaf in leaves_of(batch) if type(leaf) in PLAIN}


def ranges_of(batch: Mapping[str, Any]) -> dict[str, int]:
    """By path, one more than the largest number in each real integer tensor: for making data like it."""
    ranges = {}
    for path, tensor in batch.items():
        if not tensor.is_floating_point() and tensor.device.type == "cpu" and type(tensor).__name__ == "Tensor":
            ranges[path] = int(tensor.max()) + 1 if tensor.numel() else 1
    return ranges
