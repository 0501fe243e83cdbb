"""The facade: what users call, made of the rooms below.

program → capture → Graph → partition → Strategy → lower → Program → run, with predictions and a certificate, as one
Plan that a person can save, read, compare, load and run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

from girih.graph import Graph
from girih.machine import Machine
from girih.machine import machine as machine_by_name
from girih.machine.machine import parse_bytes, with_memory
from girih.ops.gate import is_exact
from girih.plans import plan as noun
from girih.plans.plan import Observe, PlanError, check_seconds
from girih.search.table import order_of, search_of

if TYPE_CHECKING:
    from girih.capture.torch.training import Inference
    from girih.capture.torch.weights import Weights
    from girih.partition.search import Search
    from girih.plans.inputs import Program
    from girih.plans.predict import Prediction
    from girih.plans.rewritten import Rewriting
    from girih.run.engines.engine import Engine
    from girih.run.export.dtensor import DTensorExport
    from girih.run.export.fx import FxExport
    from girih.run.training.fit import Fit, View
    from girih.run.training.training import TrainingRun
    from girih.search.memory.holds import Baseline
    from girih.search.memory.orders.order import StepOrder

APART = "apart"
FOR_DTENSOR = ("", APART, "sharded"), ("data", "single")
"""Searches for plans that DTensor runs: "" for its own, "apart" for that where each reader fetches for itself. Those of
the second row hold more on each device, and are asked where DTensor fails in all of the first."""
UNLIMITED = "unlimited"
"""What `memory` says where a plan may need more than its devices have."""

# What only some calls need is imported by them, so that a plan file is read, and a plan is printed, without the rest.


class Plan(noun.Plan):
    """A Graph, a Machine, a Choice, and what is known of them; see `girih.plans.plan.Plan` for its fields."""

    @classmethod
    def of(cls, plan: noun.Plan) -> Plan:
        """The same plan, with what it already knows."""
        copy = object.__new__(cls)
        copy.__dict__.update(plan.__dict__)
        return copy

    def predict(self, *, machine: str | Machine | None = None, store: str | Path | None = None) -> Prediction:
        """What a step takes, by simulating the program on this machine or on another one with the same mesh.

        store: the file in which `girih calibrate` keeps what it measured; without it, by data sheets alone.

        Raises:
            PlanError: the other machine has another mesh, or the store is none.
        """
        from girih.plans.predict import predict

        return predict(self, machine=machine, store=store)

    def report(self, path: str | Path, *, store: str | Path | None = None) -> None:
        """Write the plan as one page (HTML) to look at, with its predicted timeline; see `predict`."""
        from girih.plans.file import check_folder
        from girih.report.page import write_page
        from girih.search.compare import simulated_alternatives

        check_folder(path)
        write_page(path, self, self.predict(store=store).timeline, others=simulated_alternatives(self, store=store))

    def _repr_html_(self) -> str:
        from girih.report.notebook import notebook_html

        return notebook_html(self)

    def __repr__(self) -> str:
        from girih.report import tables

        return f"<Plan: {tables.title(self)}>"

    def __str__(self) -> str:
        from girih.report import tables

        return tables.render(tables.summary(self))

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON (gzipped if the name ends in .gz): whole, or the file is as it was before.

        Raises:
            PlanError: it cannot be written, or calls a function that has no import name.
        """
        from girih.plans.file import save

        save(self, path)

    @overload
    def export(self, engine: Literal["fx"], *, device: str | None = None) -> FxExport: ...
    @overload
    def export(self, engine: Literal["dtensor"], *, device: str | None = None) -> DTensorExport: ...
    def export(self, engine: str, *, device: str | None = None) -> FxExport | DTensorExport:
        """The plan for an engine of PyTorch's, which runs it without girih.

            plan.export("fx").save("step.py")  # then: torchrun --nproc-per-node 2 step.py

        engine: `fx`, graphs of ATen operators and functional collectives, one for each rank, and one file that runs
        them. `dtensor`, placements of DTensor for parameters, the batch and the borders of modules, by which PyTorch
        divides the module itself (docs/export.md). device: of `fx`: `cpu` or `cuda`, for which it is; by default where
        the plan's machine has its devices.

        Raises:
            PlanError: the plan needs what that engine has not; it names what.
        """
        if engine == "fx":
            from girih.run.export.fx import export_fx

            return export_fx(self, device)
        if engine == "dtensor":
            from girih.run.export.dtensor import export_dtensor

            return export_dtensor(self)
        raise PlanError(f"no engine {engine!r} to export to: expected fx or dtensor")

    def start(
        self,
        *,
        backend: str | Engine = "processes",
        model: Any = None,
        data: Any = None,
        resume: str | Path | None = None,
        seed: int = 0,
        timeout: float = 120.0,
        measure: bool = False,
        arena: str = "auto",
        device: str | None = None,
    ) -> TrainingRun:
        """Start the workers; a context manager with `step`, `state_dict`, `save`.

        backend: `processes` (of this host, with shared memory between them), `threads` (inside this process),
        `torchrun` (each rank calls this), or an Engine (docs/add-an-engine.md).
        model: take the weights from this module instead of the one that was planned. Whichever it is, and the planned
        optimizer, their tensors are taken as they are now.
        data: what is a part of the program, such as the whole graph of a graph network (`girih.gnn.Data`), where the
        plan was read from a file, which does not hold it. It comes with model=, the network that reads it.
        resume: a directory that `save` wrote, under this plan or another one of the same program. It is read as data:
        no code of it runs, and a file that is damaged, or of another checkpoint, is refused. Data of the program is not
        in it, only its checksums: training goes on with the same data alone.
        arena: on processors, everything of a step lies at its planned address in one region of memory, which each
        worker allocates when it starts: `auto`, where the plan has a limit and the region is within it; `on`, always,
        or the plan is refused; `strict`, always, and what a kernel asks for beside what was planned is refused (else it
        comes from elsewhere, and is counted); `off`, never.
        measure: note when each instruction of a step begins and ends, for `timeline()` of the run.
        device: `cpu`, `cuda` (a GPU for each worker, with NCCL between them), or one GPU, as `cuda:1`; by default
        `cuda` for a plan of `cuda:N`, else `cpu`.

        Raises:
            PlanError: before anything starts, if the plan cannot run here.
        """
        from girih.run.training.training import start_training

        check_seconds("timeout", timeout)
        return start_training(
            self, backend=backend, model=model, data=data, resume=resume, seed=seed, timeout=timeout, measure=measure,
            arena=arena, device=device,
        )  # fmt: skip


def plan(
    step: Any,
    batch: Any,
    *,
    machine: str | Machine = "local:2",
    memory: str | int | None = None,
    search: str | Search | None = None,
    objective: str = "time",
    compare: Sequence[str | Search] | None = None,
    store: str | Path | None = None,
    observe: Observe | None = None,
    hold: str | Baseline = "auto",
    order: str | StepOrder = "auto",
    rewrite: bool | Rewriting = False,
    progress: bool | None = None,
    for_engine: str | None = None,
    exact: bool = False,
) -> Plan:
    """Lay a training step (or an Inference) out over a machine.

    batch: example tensors, real, meta or fake, in the nesting that the step takes. memory: the limit for each device;
    by default what a device of the machine has, and `"unlimited"` for a plan that may need more than that. search: a
    search of `girih.search`, such as `Exact(seconds=10)`, or the text that names it, `"exact:seconds=10"`; its seconds
    are those after which it returns the best so far, with its gap. By default `portfolio` for `time`, whose work is
    counted, and `exact` for the others. objective: `time` (the simulated step, in which computing and transfers overlap
    and operators may be placed; `exact` then goes on with the sampled search), `seconds` (the roofline of the pieces
    plus transfers) or `bytes` (Tofu's: communicate least, all work divided, every tensor held once). compare: searches
    whose costs are put beside; those that are named have as many seconds; by default one device, data parallelism, its
    sharded form, and Megatron-LM's division where the program has such layers. store: measured costs (`girih
    calibrate`), for `time` and for the simulated step. hold: what to do where the limit is too
    small for every division: `swap` moves tensors to the large memory behind the device and back in time, `recompute`
    drops them and computes them again, `auto` does whatever of both is fastest, `none` refuses; a name of
    `girih.search.table`, such as `vdnn` or `chain:stages=32`, does as published (`girih holds`). order: of
    the steps in that case, one of `girih.search.table.ORDERS`, such as `least`; `auto`: the best of
    several. rewrite: by proved rules, before it is divided, where that is cheaper on one device of the machine by its
    data sheet; the plan keeps the rules (`girih rewrite explain`). progress: tell on the error stream what is being
    done; by default where that is a terminal. observe: is told it instead. for_engine: `dtensor`, to search only what
    `export("dtensor")` can say: parts of one length, over whole axes of the mesh; by `seconds` where the objective is
    `time`. exact: of `girih.TrainingStep`, for one device.

    Raises:
        CaptureError: for what cannot be captured, naming the line of the program.
        PlanError: for a search or objective that does not exist, or a memory limit that cannot be met.
    """
    if for_engine is not None:
        search, objective = _searched_for(for_engine, search, objective)
    memory = getattr(step, "memory", None) if memory is None else memory
    if exact:
        step = _exactly(step)
    if getattr(step, "exact", False):
        check_exact(machine_by_name(machine), rewrite)
    # What is wrong is told before anything is captured.
    check_choices(machine, memory, search, objective, compare, hold, order, store)
    options = {"search": search, "objective": objective, "compare": compare, "store": store, "hold": hold}
    batch, where, options = _prepared(step, batch, machine, options)
    made, _ = _planned(step, batch, where, memory, rewrite, progress, observe=observe, order=order, **options)
    if for_engine is not None:

        def on(search: str, machine: Machine) -> Plan:
            own: Any = options["search"]  # of `_searched_for`
            chosen = replace(own, space=APART) if search == APART else search or own
            ways = {**options, "search": chosen, "observe": observe, "order": order}
            return _planned(step, batch, machine, memory, rewrite, progress, **ways)[0]

        return _run_by_dtensor(made, on)
    if not hasattr(batch, "planned"):
        return made
    again = {"memory": memory, "rewrite": rewrite, "progress": progress, "order": order, **options, "search": search}
    return batch.planned(made, step, where, again)  # type: ignore[no-any-return]


def _exactly(step: Any) -> Any:
    """A training step whose plan has the bits of PyTorch's.

    Raises:
        PlanError: it is no training step.
    """
    if not hasattr(step, "micro_batches"):
        raise PlanError(f"exact=True is of a girih.TrainingStep, got {type(step).__name__}")
    return replace(step, exact=True)


def check_exact(where: Machine, rewrite: object = False, search: object = None) -> None:
    """
    Raises:
        PlanError: what is asked for beside exact=True changes last digits.
    """
    if where.devices > 1 or where.on_gpus:
        raise PlanError(
            f"exact=True is for one processor, machine='local:1', and not for {where}: sums over parts, and a GPU's, "
            "add up in another order, so that last digits are others than PyTorch's; leave exact=True out there"
        )
    if rewrite or getattr(search, "name", "") == "joint":
        what = "rewrite=" if rewrite else "search='joint'"
        raise PlanError(f"{what} computes a step by other operators, and exact=True by PyTorch's own: leave one out")


def _check_defaults() -> None:
    """
    Raises:
        PlanError: PyTorch has other settings in this process than in one that begins.
    """
    from girih.capture.torch.settings import BY_DEFAULT, differences, kernel_settings, listed

    now = kernel_settings()
    if changed := differences(BY_DEFAULT, {key: now[key] for key in BY_DEFAULT}):
        raise PlanError(
            f"{listed(changed)} in this process, and workers in processes of their own have what PyTorch begins with: "
            "for exact=True leave backend= out, so that the worker is a thread, or undo the setting"
        )


def _searched_for(engine: str, search: str | Search | None, objective: str) -> tuple[Search, str]:
    """The search, and its objective, for plans that an engine of PyTorch's can run.

    Raises:
        PlanError: there is no such engine, or a search is given beside it.
    """
    from girih.partition.searches.exact import Exact
    from girih.partition.searches.for_dtensor import ForDTensor

    if engine != "dtensor":
        raise PlanError(f"no engine {engine!r} to plan for: expected dtensor")
    own = search_of("exact" if search is None else search)
    if not isinstance(own, Exact):
        raise PlanError(f"for_engine={engine!r} has a search of its own, exact: leave search={own.name} out")
    if own.attention == "cheapest":  # DTensor has PyTorch's operators only
        own = replace(own, attention="whole")
    return ForDTensor(**vars(own)), "seconds" if objective == "time" else objective


def _run_by_dtensor(made: Plan, again: Callable[[str, Machine], Plan]) -> Plan:
    """The plan, or another one that DTensor can run, whichever costs least: by the objective, and for `bytes` by what
    ranks receive under DTensor.

    again: plans by a search on a machine. Others have one axis for each level of the machine, since DTensor fails more
    often where several axes cut one tensor.

    Raises:
        PlanError: it runs none.
    """
    levels = tuple(replace(level, axes=(level.parts,) if level.axes else ()) for level in made.machine.levels)
    flat = replace(made.machine, levels=levels)
    told: list[str] = []
    for row in FOR_DTENSOR:
        best: tuple[float, Plan] | None = None
        for search in row:
            if search == APART and made.objective != "bytes":
                continue
            plans = [] if search else [made]
            if search or flat.mesh != made.machine.mesh:
                plans.append(again(search, flat))
            for plan in plans:
                try:
                    exported = plan.export("dtensor")
                except PlanError as error:
                    told.append(f"{plan.search} on {plan.machine.mesh}: {error}")
                    continue
                cost = float(exported.received or 0) if plan.objective == "bytes" else plan.certificate.cost
                if best is None or cost < best[0]:
                    best = cost, plan
        if best is not None:
            return best[1].but(notes=(*best[1].notes, *told))
    raise PlanError("DTensor runs no plan of this program: " + "; ".join(told))


def _prepared(step: Any, batch: Any, machine: Any, options: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """The batch, the machine and options of `plan_graph`: where no search is asked for, data that is a part of the
    program (`girih.gnn.Data`) says how it is divided."""
    if not hasattr(batch, "prepared"):
        return batch, machine, options
    before = options.get("search")
    batch, machine, search = batch.prepared(step, machine, before)
    if search is before:
        return batch, machine, options
    return batch, machine, {**options, "search": search, "compare": options.get("compare") or ()}


def _check_options(function: Callable[..., Any], options: Collection[str]) -> None:
    """Raises TypeError, in the words of the function that was called: it passes on what planning takes, and no more."""
    known = {**inspect.signature(_planned).parameters, **inspect.signature(plan_graph).parameters}
    for name in options:
        if name not in known:
            near = get_close_matches(name, [*inspect.signature(function).parameters, *known])
            did = f": did you mean {near[0]}=?" if near else ""
            raise TypeError(f"girih.{function.__name__}() got an unexpected keyword argument {name!r}{did}")


def _planned(
    step: Any,
    batch: Any,
    machine: str | Machine,
    memory: Any,
    rewrite: bool | Rewriting = False,
    progress: bool | None = None,
    **options: Any,
) -> tuple[Plan, Program]:
    """The plan of a step, and the program that it was made of; options: of `plan_graph`."""
    from girih.plans.inputs import program_of

    if options.get("observe") is None and progress is not False:
        from girih.report.progress import Progress, shows

        if shows(progress):
            with Progress() as told:
                return _planned(step, batch, machine, memory, rewrite, False, **{**options, "observe": told})
    if (observe := options.get("observe")) is not None:
        observe("capture", 0.0)
    own = program_of(step, batch)
    if rewrite:
        own = rewritten_program(own, machine, rewrite)
    return own.in_plan(plan_graph(own.graph, machine=machine, memory=memory, **options)), own


def rewritten_program(own: Program, machine: str | Machine, rewrite: bool | Rewriting = True) -> Program:
    """A captured program whose graph is rewritten for a device of the machine; see `plan`."""
    from girih.plans.rewritten import Rewriting

    where = machine if isinstance(machine, Machine) else machine_by_name(machine)
    options = rewrite if isinstance(rewrite, Rewriting) else Rewriting()
    graph, rewrites = options.apply(own.graph, where)
    return replace(own, graph=graph, rewrites=rewrites)


def fit(
    model: Any,
    loss: Any = None,
    optimizer: Any = None,
    batch: Any = None,
    *,
    step: Any = None,
    machine: str | Machine | None = None,
    memory: int | str | None = None,
    backend: str | Engine | None = None,
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    autocast: Any = None,
    micro_batches: int = 1,
    sizes: int = 8,
    pad: Mapping[str, float] | None = None,
    buckets: Sequence[int] = (),
    device: str | None = None,
    exact: bool = False,
    **options: Any,
) -> Fit:
    """A training step to call, for those who write their own loop: `train(x, y)` is the loss, as a float.

        train = girih.fit(model, cross_entropy, optimizer, (x, y), memory="10GB")
        for x, y in data:
            train(x, y)
        train.close()  # the model has its new weights

    Without loss the model has its own, as those of `transformers` do: `train(**batch)` for `model(**batch).loss`. step:
    `step(model, batch)` in place of loss; it gives the loss, or `(loss, logits, …)`, or what has a `loss` in it, and so
    does `train`. clip_grad_norm, clip_grad_value, autocast, micro_batches, exact: of `girih.TrainingStep`.

    batch: what a step takes, for its shapes, in any nesting; a batch of another size, such as the last one of a loader,
    is planned when it comes, under the same limit, for up to so many `sizes`. pad, buckets: where sequences have many
    lengths, what each tensor is filled up with behind its dimension 1, by its path in the batch, and the lengths to
    which; your loss must not mind. machine: by default this host's processor, `local:1`, or with device="cuda" its
    GPU, `cuda:1`. memory: the limit for each device. backend, device: see `Plan.start`; by default `threads` for one
    device, else `processes`. options: of `girih.plan`, `progress=` among them: with True, steps are told, too, and
    with the name of a file, such as `"training.html"`, they are shown on a page that renews itself in a browser. The
    learning rates are the optimizer's as they are when the step is called, so that a scheduler works as it does.
    Workers start at the first call, with the model's weights and the optimizer's state of then, and keep them to
    themselves: `train.module` is the model with its weights of now, and `close`, or the end of a `with` block, gives
    everything back. What is changed between two steps is taken up, or refused (docs/memory.md has a table).

    Raises:
        CaptureError: for what cannot be captured, naming the line of the program.
        PlanError: for a search that does not exist, or a memory limit that cannot be met.
    """
    from girih.capture.torch.training import TrainingStep
    from girih.plans.inputs import with_data
    from girih.run.engines.engine import engine_here, engine_of
    from girih.run.engines.launcher import launched_rank
    from girih.run.training.fit import Fit, Padding

    if optimizer is None or batch is None:
        raise PlanError("girih.fit takes a model, its optimizer and a batch: girih.fit(model, loss, optimizer, batch)")
    own = TrainingStep(
        model,
        loss=loss,
        optimizer=optimizer,
        step=step,
        clip_grad_norm=clip_grad_norm,
        clip_grad_value=clip_grad_value,
        autocast=autocast,
        micro_batches=micro_batches,
        exact=exact,
    )
    padding = Padding(pad or {}, buckets) if pad or buckets else None
    machine = machine or ("cuda:1" if (device or "").startswith("cuda") else "local:1")
    try:  # whether it can train here is told before anything is captured
        if exact:
            check_exact(machine_by_name(machine), options.get("rewrite"))
        devices = machine_by_name(machine).devices
        where = backend or ("threads" if devices == 1 and launched_rank() is None else "processes")
        engine = engine_of(where)
        engine_here(engine, devices)
        if exact and not engine.one_process:
            _check_defaults()
    except ValueError as error:
        raise PlanError(str(error)) from error
    _check_options(fit, options)
    check_choices(machine, memory, **{name: options[name] for name in CHOICES if name in options})
    view: View | None = None
    if isinstance(options.get("progress"), (str, PathLike)):
        from girih.report.page.live import TrainingPage

        view = TrainingPage(options.pop("progress"))
    elif options.get("progress"):
        from girih.report.progress import TrainingView

        view = TrainingView()
    batch, machine, options = _prepared(own, batch, machine, options)
    own, batch = with_data(own, batch)
    return Fit(
        lambda step, batch: _planned(step, batch, machine, memory, **options),
        own,
        batch,
        where,
        sizes=sizes,
        padding=padding,
        view=view,
        device=device,
    )


def infer(
    model: Any,
    batch: Any,
    *,
    machine: str | Machine = "local:1",
    memory: int | str | None = None,
    backend: str | Engine | None = None,
    call: Any = None,
    autocast: Any = None,
    otherwise: str = "refuse",
    **options: Any,
) -> Infer:
    """A model's outputs to call for, within a memory limit: `answer(x)` is what `model(x)` would be, without gradients.

        with girih.infer(model.eval(), x, memory="192MB") as answer:
            y = answer(x)

    What does not fit lives in the large memory behind the device, weights too, and comes in time; so several models
    share one device, each within its part. batch: what a call takes, for its shapes. memory: the limit for each device.
    backend: see `Plan.start`; by default `threads` for one device, else `processes`. call, autocast: of
    `girih.Inference`. options: of `girih.plan`. Workers start at the first call, with the model's weights of then;
    weights that are changed later are sent to them at the next call. otherwise: what answers a batch of other shapes,
    dtypes or structure, and every batch after the program was changed (an attribute, a mode, a hook, a part of the
    model, a variable that its functions read, autocast around the call): nothing (`refuse`, a PlanError: the limit was
    planned for one program), another plan, for which workers start anew (`again`; eight plans are kept), or the model
    itself, which knows no limit (`model`).

    Raises:
        CaptureError: for what cannot be captured, naming the line of the program.
        PlanError: for a search that does not exist, or a memory limit that cannot be met.
    """
    from girih.capture.torch.training import Inference

    if otherwise not in (ways := ("refuse", "again", "model")):
        raise PlanError(f"no way {otherwise!r} to answer other batches: there are {', '.join(ways)}")
    if "optimize" in options:
        raise PlanError(
            "girih.infer has no optimize=: it keeps a limit of memory. girih.optimize(model, x) makes a model faster"
        )
    _check_options(infer, options)
    check_choices(machine, memory, **{name: options[name] for name in CHOICES if name in options})
    step = Inference(model, call, autocast)
    batch, machine, options = _prepared(step, batch, machine, options)
    return Infer(step, lambda batch: _planned(step, batch, machine, memory, **options), batch, backend, otherwise)


class Infer:
    """A model that is called; see `infer`. plan: how it is laid out. Threads may share it: one call runs at a time."""

    MOST_PLANS = 8

    def __init__(
        self,
        step: Inference,
        make: Callable[[Any], tuple[Plan, Program]],
        batch: Any,
        backend: str | Engine | None,
        otherwise: str,
    ) -> None:
        self._step, self._make, self._otherwise = step, make, otherwise
        self._plans, self._bare = [make(batch)], hasattr(batch, "shape")
        devices = self.plan.machine.devices
        self.backend = backend or ("threads" if devices == 1 else "processes")
        self.run: TrainingRun | None = None
        self._weights: Weights | None = None
        self._turn = Lock()

    @property
    def plan(self) -> Plan:
        return self._plans[0][0]

    @property
    def results(self) -> Any:
        """The nesting of the outputs."""
        return self._plans[0][1].results

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """The outputs, nested as the model returns them; where some are no tensors, a tuple of the others. All of a
        batch is given by position, or all by name.

        Raises:
            PlanError: the batch has other shapes than the one that was planned, or the program was changed since then,
                and `otherwise` is `refuse`.
            IndexError: an index of the batch is in no row of an embedding.
            ValueError: data that is a part of the program has changed (a `girih.gnn.DataError`).
            WorkerError: a worker failed.
        """
        from torch.utils._pytree import tree_unflatten

        if batch and named:
            raise PlanError("give all of a batch by position, answer(x, y), or all by name, answer(**batch)")
        batch = (named,) if named else batch
        with self._turn:
            if (data := self.plan.origin.data) is not None:
                data.check_unchanged()
            try:
                _check_as_planned(*self._plans[0], batch)
            except PlanError:
                if self._otherwise == "refuse":
                    raise
                if self._otherwise == "model":
                    return self._by_model(batch)
                self._plan_again(batch)
            outputs = self._running().planned_step(batch)
        return tree_unflatten(outputs, self.results) if self.results.num_leaves == len(outputs) else outputs

    def _running(self) -> TrainingRun:
        """The workers, with the model's weights of now."""
        from girih.capture.torch.weights import Weights
        from girih.run.training.training import check_state

        if self.run is None:
            self.run = self.plan.start(backend=self.backend)
        elif self._weights is not None and self._weights.changed() and self.plan.origin.state is not None:
            self.run.run.set_state(check_state(self.plan, self.plan.origin.state()))
        else:
            return self.run
        self._weights = Weights(self._step.model)
        return self.run

    def _nested(self, batch: tuple[Any, ...]) -> Any:
        """As the example was given."""
        single = len(batch) == 1 and (self._bare or isinstance(batch[0], (Mapping, tuple, list)))
        return batch[0] if single else batch

    def _by_model(self, batch: tuple[Any, ...]) -> Any:
        import torch

        own = self._step.autocast
        with torch.no_grad(), nullcontext() if own is None else torch.autocast("cpu", own):
            return self._step.forward(self._step.model, self._nested(batch))

    def _plan_again(self, batch: tuple[Any, ...]) -> None:
        """Another plan comes first; the workers of the one before end, since both may not fit."""
        for number, known in enumerate(self._plans):
            with suppress(PlanError):
                _check_as_planned(*known, batch)
                found = self._plans.pop(number)
                break
        else:
            found = self._make(self._nested(batch))
        self._plans = [found, *self._plans][: self.MOST_PLANS]
        run, self.run = self.run, None
        if run is not None:
            run.close()

    def close(self) -> None:
        """Stop the workers; the next call starts new ones, with the model's weights of then."""
        with self._turn:
            run, self.run = self.run, None
        if run is not None:
            run.close()

    def __enter__(self) -> Infer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_as_planned(planned: Plan, own: Program, batch: tuple[Any, ...]) -> None:
    """Refuse a batch or a program that is not what it was when the plan was made.

    Raises:
        PlanError: naming what differs.
    """
    from girih.capture.torch.settings import listed
    from girih.run.training.training import planned_batch

    planned_batch(planned, batch)
    if own.source is not None and (changed := own.source.changed()):
        raise PlanError(
            f"{listed(changed)} since the model was planned, with which it is a constant: undo it, call girih.infer "
            "again, or give it otherwise='again' or 'model'"
        )


def plan_graph(
    graph: Graph,
    *,
    machine: str | Machine = "local:2",
    memory: str | int | None = None,
    search: str | Search | None = None,
    objective: str = "time",
    compare: Sequence[str | Search] | None = (),
    store: str | Path | None = None,
    observe: Observe | None = None,
    hold: str | Baseline = "auto",
    order: str | StepOrder = "auto",
) -> Plan:
    """Lay a graph out over a machine; see `plan`."""
    from girih.search.choose import choose, hold_of

    where, limit, own, others = check_choices(machine, memory, search, objective, compare, hold, order, store)
    if is_exact(graph):
        check_exact(where, search=own)
    note = observe or (lambda what, share: None)
    way = hold_of(hold)
    return Plan.of(
        choose(
            graph,
            where,
            own,
            objective,
            limit=limit,
            unlimited=memory == UNLIMITED,
            compare=others,
            store=store,
            note=note,
            hold=way,
            order=order,
        )
    )


def load(path: str | Path, *, trust: bool = False) -> Plan:
    """Read a plan that `save` wrote. A plan file is data: nothing in it is run, neither now nor when it is started, but
    girih's own operators and those of PyTorch that are pure functions.

    trust: you answer for whoever wrote the file. It may then name functions, which are imported now and called when the
    plan runs, and operators of other libraries that are registered in this program.

    Raises:
        PlanError: if there is no such file, or it is no plan, of another version, damaged, larger than can be read, or
            names what needs your trust.
    """
    from girih.plans.file import load as read

    return Plan.of(read(path, trust=trust))


CHOICES = ("search", "objective", "compare", "hold", "order", "store")
"""What `check_choices` looks at beside the machine and its memory."""


def check_choices(
    machine: str | Machine,
    memory: str | int | None = None,
    search: str | Search | None = None,
    objective: str = "time",
    compare: Sequence[str | Search] | None = (),
    hold: str | Baseline = "auto",
    order: str | StepOrder = "auto",
    store: str | Path | None = None,
) -> tuple[Machine, int | None, Search, tuple[Search, ...] | None]:
    """The machine with the memory limit, the limit in bytes, the search, and those to compare with: of these, what is
    only named has as many seconds as the search.

    Raises:
        PlanError: one of them, or of the other arguments of `plan`, is not there or no such value.
    """
    from girih.partition.space.problem import OBJECTIVES
    from girih.plans.predict import opened
    from girih.search.choose import hold_of

    hold_of(hold)
    with opened(store):
        pass
    try:
        if order != "auto":
            order_of(order)
        if objective not in OBJECTIVES:
            raise PlanError(f"no objective {objective!r}: expected one of {', '.join(OBJECTIVES)}")
        own = search_of(("portfolio" if objective == "time" else "exact") if search is None else search)
        others = None if compare is None else tuple(search_of(other, own.seconds) for other in compare)
        where = machine_by_name(machine)
        if memory is None or memory == UNLIMITED:
            return where, None, own, others
        limit = parse_bytes(memory)
        return with_memory(where, limit), limit, own, others
    except PlanError:
        raise
    except ValueError as error:  # also MachineError and SearchError
        raise PlanError(str(error)) from error
