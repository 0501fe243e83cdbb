"""capture: an ordinary PyTorch training step, or inference, becomes one pure Graph.

The program is run once on fake tensors while a `Recorder` notes each ATen call; parameters, buffers,
optimizer state, batch and learning rate enter as inputs, and what replaces them leaves as outputs. Calls that
write into tensors become calls that do not; the result is rewritten into girih's vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from girih.capture.batches import NotGiven, hides_fakes, leaves_of, with_leaves
from girih.capture.canonicalize.canonical import EnteringTensor, Exit, canonicalise
from girih.capture.clocks import AHEAD, check_later, check_seeds, read_in, warn_of_files
from girih.capture.counting import paths_of
from girih.capture.errors import CaptureError, MoreBuffersError
from girih.capture.scaled_step import SCALE, Scaling, scaled_steps
from girih.capture.torch.attributes import (
    Attributes,
    attributes_of,
    check_further_steps,
    check_later_steps,
    check_next_step,
)
from girih.capture.torch.environment import surroundings
from girih.capture.torch.initial import Initial, initial_of, is_real
from girih.capture.torch.memory import check_shared, check_writes
from girih.capture.torch.optimizers import Group
from girih.capture.torch.own_update import OwnUpdate, traced_update
from girih.capture.torch.record import WITHOUT_SPARSE, Recorder, functionalise, is_functional, module_scopes
from girih.capture.torch.refusals import refusal
from girih.capture.torch.rewritten import composites_of, decomposition_of
from girih.capture.torch.state import shared_path
from girih.capture.torch.training import (
    LOSS,
    Inference,
    TrainingStep,
    check_batch,
    check_step,
    loss_of,
    parameter_names,
)
from girih.capture.whole_step import WholeStep, whole_steps
from girih.graph import Graph, Input, format_graph

Tensor = Any
Step = TrainingStep | Inference


@dataclass(frozen=True)
class Captured:
    """A captured program.

    initial: by path (`Input.path`), how to make each parameter, buffer and optimizer state.
    batch_names: by path, the input's name of each tensor of the batch; batch_paths: of all that is in it.
    result_spec: the nesting of the results, which leave the graph in this order; None for a step that gives its loss.
    constants: by their number among all results, those that are no tensors (None, a number, and `LOSS`).
    own: the optimizer's own code, which gives some numbers at each step; None where its update is a rule of ours.
    scaler: the GradScaler that is on in the step, or None; whether it finds a gradient that is not finite is then the
        last of the results, behind those of `result_spec`.
    """

    graph: Graph
    initial: dict[str, Initial]
    batch_names: dict[str, str]
    batch_paths: tuple[str, ...] = field(compare=False)
    result_spec: Any = field(default=None, compare=False)
    constants: Mapping[int, Any] = field(default_factory=dict, compare=False)
    own: OwnUpdate | None = field(default=None, compare=False)
    scaler: Any = field(default=None, compare=False)

    def flatten(self, batch: Any) -> dict[str, Tensor]:
        """A batch as inputs by name.

        Raises:
            ValueError: its nesting is not that of the captured batch.
        """
        named = dict(leaves_of(batch))
        if tuple(named) != self.batch_paths:
            raise ValueError(f"the batch has {[*named]}, but was captured with {[*self.batch_paths]}")
        return {name: named[path] for path, name in self.batch_names.items()}

    def nest(self, tensors: Sequence[Tensor]) -> Any:
        """Results, nested as an inference returns them."""
        rest = iter(tensors)
        count = len(tensors) + len(self.constants)
        leaves = [self.constants[i] if i in self.constants else next(rest) for i in range(count)]
        return tree_unflatten(leaves, self.result_spec)


def capture(step: Step, batch: Any) -> Captured:
    """Capture one step for batches like `batch` (whose tensors may be real, meta or fake), which it takes as a whole
    (`girih.capture.micro_batches` cuts it).

    Nothing is computed and no memory is taken; the model and the optimizer are left as they were.

    Raises:
        CaptureError: the program reads a tensor's value, or does what the Graph cannot say; with file and
            line, and what to do. Or it keeps something in its modules for which the next step does another thing.
    """
    check_step(step)
    try:
        captured = _captured(step, batch)
    except MoreBuffersError:
        captured = _captured(step, batch)
    if captured.graph.updates and hasattr(step.model, "with_once"):  # a girih.gnn's Resident
        return replace(captured, graph=step.model.with_once(captured.graph))
    return captured


def _captured(step: Step, batch: Any) -> Captured:
    roots = {name: getattr(step, name, None) for name in ("model", "loss", "step", "call")}
    with attributes_of(roots) as attributes:
        with read_in(attributes) as readings:
            first = _Capture(step, batch)
            captured = first.run()
        check_shared(step.model, first.recorder, captured.graph)

        def differs() -> bool:
            nonlocal first
            first = _Capture(step, batch)
            return _told(first.run()) != _told(captured)

        warn_of_files(readings)
        paths = paths_of(len(first.recorder.records))
        if readings.told:
            if any(record.note.draw is not None for record in first.recorder.records):
                check_seeds(readings)
            attributes.put_back()
            with read_in(attributes, AHEAD):
                for _ in range(paths if readings.follow else 1):
                    check_later(readings, differs)
        if changed := attributes.changed():
            recorder, entries = first.recorder, [entry.slot for entry in first.entries]
            second = Attributes(roots)
            for number, _ in enumerate(attributes.next_steps()):
                check_next_step(changed, recorder, entries, differs)
                if number == 0:
                    again, numbers, grown = second.changed(), second.numbers(), second.grown()
                    if not all(second.is_followed(old, new) for _, old, new in again):
                        check_further_steps(changed, differs, paths)
            if again:
                with closing(second.later_steps(numbers, grown, paths)) as later:
                    check_later_steps(changed, later, differs)
    return captured


def _told(captured: Captured) -> tuple[str, dict[int, str]]:
    """What is compared: the graph, and the numbers and strings that are returned beside tensors."""
    plain = {key: repr(item) for key, item in captured.constants.items() if isinstance(item, (bool, int, float, str))}
    return format_graph(captured.graph), plain


def _valid(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)


class _Capture:
    """One run of `capture`: what has entered and what leaves."""

    def __init__(self, step: Step, batch: Any) -> None:
        self.step = step
        self.batch = batch
        self.fake_mode = FakeTensorMode()
        self.exact = getattr(step, "exact", False)
        self.recorder = Recorder(self.fake_mode, composites_of if self.exact else decomposition_of)
        self.entries: list[EnteringTensor] = []
        self.exits: list[Exit] = []
        self.constants: dict[int, Any] = {}
        self.initial: dict[str, Initial] = {}
        self.names: dict[tuple[str, str], str] = {}
        """Names of what has entered, by role and path."""
        self.taken: set[str] = set()
        self.fakes: dict[str, Tensor] = {}
        self.state: dict[str, Tensor] = {}
        """What the optimizer's rule has read, by path."""
        self.groups = step.groups() if isinstance(step, TrainingStep) else []
        self.parameter_names = parameter_names(step.model)
        self.own: OwnUpdate | None = None
        self.whole = WholeStep()
        self.scaling = Scaling(self._scale)

    def run(self) -> Captured:
        model = self.step.model
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.layout != torch.strided:
                raise CaptureError(
                    f"the model's {name!r} is a sparse matrix ({tensor.layout}), which a plan does not hold: "
                    f"{WITHOUT_SPARSE}"
                )
        for name, parameter in model.named_parameters():
            self.fakes[name] = self._state("parameter", "p", name, parameter)
        buffers, roles = {}, dict.fromkeys(getattr(model, "data_buffers", ()), "data")  # of a girih.gnn's Resident
        for name, buffer in model.named_buffers():
            buffers[name] = self._state(roles.get(name, "buffer"), "b", name, buffer)
        entering = len(self.entries)
        batch, batch_names, batch_paths = self._batch()
        batch_entries = self.entries[entering:]
        del self.entries[entering:]
        with self._recording():
            kept = {name: fake for name, fake in self.fakes.items() if name not in self._trained()}
            live = {
                name: tensor.detach().clone().requires_grad_(tensor.requires_grad)
                for name, tensor in {**buffers, **kept}.items()
            }
            held = {**self.fakes, **live}
            memory = {name: tensor.untyped_storage()._cdata for name, tensor in held.items()}
            with _stand_ins(model, held):
                result_spec = self._program(model, batch)
                _check_memory(held, memory)
                for name in buffers:
                    self._replace(roles.get(name, "buffer"), name, model.get_buffer(name))
                for name in kept:
                    owner, _, key = name.rpartition(".")
                    self._replace("parameter", name, model.get_submodule(owner)._parameters[key])
        self.entries += batch_entries
        self.entries.sort(key=lambda entry: entry.input.role == "scalar")  # parameters … state, batch, lr
        graph, scaler = self._graph(), self.scaling.scaler
        return Captured(graph, self.initial, batch_names, batch_paths, result_spec, self.constants, self.own, scaler)

    def _trained(self) -> set[str]:
        """Parameters that get gradients here; others a program may write into, as into buffers (a moving average)."""
        if self.groups:
            return {name for _, names in self.groups for name in names}
        frozen = isinstance(self.step, TrainingStep)
        return {name for name, fake in self.fakes.items() if fake.requires_grad or not frozen}

    def _graph(self) -> Graph:
        check_writes(self.recorder)
        recorder, entries, exits = self.recorder, self.entries, self.exits
        if not is_functional(recorder.records):
            with self._clear_errors():
                recorder, inputs, outputs = functionalise(
                    recorder, [entry.slot for entry in entries], [item.slot for item in exits], self.exact
                )
            entries = [EnteringTensor(slot, entry.input) for slot, entry in zip(inputs, entries, strict=True)]
            exits = [Exit(slot, item.role, item.replaces) for slot, item in zip(outputs, exits, strict=True)]
        return canonicalise(recorder, entries, exits, self.exact)

    # What enters

    def _state(self, role: Any, prefix: str, path: str, tensor: Tensor) -> Tensor:
        owner, _, key = path.rpartition(".")
        if role != "data":  # which nobody can make up
            self.initial[path] = initial_of(self.step.model.get_submodule(owner), key, tensor)
        fake = self._fake(tensor)
        fake.requires_grad_(tensor.requires_grad and role == "parameter")
        if fake.requires_grad:
            _hook(fake, tensor, path)
        return self._enter(fake, role, f"{prefix}.{_valid(path)}", path)

    def _fake(self, like: Tensor) -> Tensor:
        device = "cpu"  # a graph is for any device; fakes of one kind keep operators apart from devices
        with _disable_current_modes(), self.fake_mode:
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)

    def _new(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        with _disable_current_modes(), self.fake_mode:
            return torch.empty(shape, dtype=dtype)

    def _enter(self, fake: Tensor, role: Any, name: str, path: str) -> Tensor:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        self.names[role, path] = name
        self.entries.append(EnteringTensor(self.recorder.slot(fake), Input(name, role, path)))
        return fake

    def _batch(self) -> tuple[Any, dict[str, str], tuple[str, ...]]:
        leaves = leaves_of(self.batch)
        entered, names = [], {}
        check_batch(leaves)
        for path, leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                fake = self._fake(leaf).requires_grad_(leaf.requires_grad)
                leaf = self._enter(fake, "batch", f"x.{_valid(path.replace('/', '.'))}".rstrip("."), path)
                names[path] = self.entries[-1].input.name
            entered.append(leaf)
        rest = iter(entered)
        return with_leaves(self.batch, lambda _: next(rest)), names, tuple(path for path, _ in leaves)

    # What leaves

    def _leave(self, tensor: Tensor, role: Any) -> None:
        self.exits.append(Exit(self.recorder.slot(tensor), role))

    def _replace(self, role: Any, path: str, new: Tensor) -> None:
        """The next step finds `new` where this one found what entered with this role and path."""
        self.exits.append(Exit(self.recorder.slot(new), "update", self.names[role, path]))

    # The program

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Everything that turns a run of the program into a record of its calls."""
        with (
            self._clear_errors(),
            surroundings(self.exact),
            self.fake_mode,
            module_scopes(self.step.model, self.recorder),
            self.recorder,
        ):
            try:
                yield
            finally:
                for tensor, gradient in self.recorder.gradients:
                    tensor.grad = gradient

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Whatever goes wrong becomes a CaptureError that says where."""
        try:
            yield
        except CaptureError:
            raise
        except Exception as error:
            raise refusal(error, self.recorder.failure_of(error)) from error

    def _forward(self, model: Any, batch: Any) -> Any:
        if self.step.autocast is None:
            return self.step.forward(model, batch)
        with torch.autocast("cpu", dtype=self.step.autocast):
            return self.step.forward(model, batch)

    def _program(self, model: Any, batch: Any) -> Any:
        if isinstance(self.step, Inference):
            with torch.no_grad():
                return self._results(self._forward(model, batch))
        with torch.enable_grad(), self._whole_steps():
            results = self._forward(model, batch)
        loss = loss_of(results)
        self._check_loss(loss)
        self.scaling.check_end()
        if self.whole.updated:
            return self._after_whole_step(results, loss)
        self._leave(loss.detach(), "loss")
        spec = None if loss is results else self._results(results, loss)
        trained = [name for _, names in self.groups for name in names]
        if self.step.optimizer is None:
            trained = [name for name, fake in self.fakes.items() if fake.requires_grad]
        self.recorder.phase = "backward"
        grads = self._gradients(loss, trained)
        self.recorder.phase = "update"
        with torch.no_grad():
            if self.exact:
                self._clip_by_pytorch(grads)
            elif self.step.clip_grad_norm is not None and grads:
                grads = _clipped(grads, self.step.clip_grad_norm)
            if not self.exact and (greatest := self.step.clip_grad_value) is not None:
                grads = {name: torch.clamp(grad, -greatest, greatest) for name, grad in grads.items()}
            self._updates(grads)
        if self.step.optimizer is None:
            for grad in grads.values():
                self._leave(grad, "result")
        return spec

    @contextmanager
    def _whole_steps(self) -> Iterator[None]:
        """While open, the user's step may call backward and the optimizer, which then work on stand-ins."""
        optimizer = self.step.optimizer  # type: ignore[union-attr]
        if optimizer is None or self.step.step is None:  # type: ignore[union-attr]
            yield
            return
        by_id = {key: self.fakes[name] for key, name in self.parameter_names.items()}
        self.parameter_names |= {id(fake): name for name, fake in self.fakes.items()}
        with (
            whole_steps(optimizer, by_id, self.recorder, self.whole, self._update_in_step),
            scaled_steps(optimizer, self.scaling, self.recorder),
        ):
            yield

    def _scale(self) -> Tensor:
        return self._enter(self._new((), torch.float32), "scalar", SCALE.replace("/", "."), SCALE)

    def _update_in_step(self) -> None:
        if self.step.clip_grad_norm is not None or self.step.clip_grad_value is not None:  # type: ignore[union-attr]
            raise CaptureError("the step calls the optimizer itself: clip gradients there, and leave clip_grad_… out")
        self.scaling.check_update(self.step.rule is None)  # type: ignore[union-attr]
        names = [name for _, names in self.groups for name in names]
        grads = {name: self.fakes[name].grad for name in names if self.fakes[name].grad is not None}
        with torch.no_grad():
            self._updates(
                {name: grad if grad.layout == torch.strided else grad.to_dense() for name, grad in grads.items()}
            )

    def _after_whole_step(self, results: Any, loss: Tensor) -> Any:
        self.whole.check_gradients(self.fakes)
        for name in self.whole.written:
            self._replace("parameter", name, self.fakes[name])
        self._leave(loss.detach(), "loss")
        spec = None if loss is results else self._results(results, loss)
        if self.scaling.found is not None:
            self._leave(self.scaling.found, "result")
        return spec

    def _updated(self, name: str, new: Tensor) -> None:
        """The next step finds `new` for a parameter, and so does the rest of this one, where it updates by itself."""
        if self.whole.calls:
            self.fakes[name].copy_(self.scaling.kept(self.fakes[name], new))
            self.whole.written.append(name)
        else:
            self._replace("parameter", name, new)

    def _results(self, results: Any, loss: Tensor | None = None) -> Any:
        """Have all tensors leave but the loss, which has left; their nesting."""
        leaves, spec = tree_flatten(results)
        for number, leaf in enumerate(leaves):
            if leaf is loss and loss is not None:
                self.constants[number] = LOSS
            elif isinstance(leaf, torch.Tensor):
                self._leave(leaf.detach(), "result")
            else:
                self.constants[number] = NotGiven(leaf) if hides_fakes(leaf) else leaf
        if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
            for leaf in self.constants.values():
                if isinstance(leaf, NotGiven):
                    leaf.refuse()
        return spec

    def _gradients(self, loss: Tensor, names: list[str]) -> dict[str, Tensor]:
        """By name, of the parameters that the loss depends on.

        By `backward`, as people do: torch.autograd.grad misses what torch.utils.checkpoint(use_reentrant=True) gives.
        """
        loss.backward()
        gradients = {name: self.fakes[name].grad for name in names if self.fakes[name].grad is not None}
        return {name: grad if grad.layout == torch.strided else grad.to_dense() for name, grad in gradients.items()}

    def _clip_by_pytorch(self, grads: dict[str, Tensor]) -> None:
        """PyTorch's functions clip gradients in place, in the order of the model's parameters."""
        step: Any = self.step
        trained = [fake for name, fake in self.fakes.items() if name in grads]
        if any(fake.grad.layout != torch.strided for fake in trained):
            raise CaptureError("a gradient is sparse, as of nn.Embedding(sparse=True): leave that out, or exact=True")
        if step.clip_grad_norm is not None and trained:
            torch.nn.utils.clip_grad_norm_(trained, step.clip_grad_norm)
        if step.clip_grad_value is not None and trained:
            torch.nn.utils.clip_grad_value_(trained, step.clip_grad_value)

    def _check_loss(self, loss: Any) -> None:
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.dtype.is_floating_point:
            got = f"{tuple(loss.shape)} {loss.dtype}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise CaptureError(f"the loss must be a tensor of one floating-point number, got {got}")
        if not loss.requires_grad and not self.whole.updated:
            raise CaptureError(
                "the loss depends on no parameter that requires gradients: return it as it was computed, not detached "
                "or under no_grad, and leave backward and the optimizer's step to the plan"
            )

    def _updates(self, grads: dict[str, Tensor]) -> None:
        if self.groups and self.step.rule is None:  # type: ignore[union-attr]
            self._own_update(
                {name: grads[name].detach() for _, names in self.groups for name in names if name in grads}
            )
            return
        for number, (options, names) in enumerate(self.groups):
            self._update(number, options, [name for name in names if name in grads], grads)

    def _own_update(self, grads: dict[str, Tensor]) -> None:
        def enter(role: str, path: str, shape: tuple[int, ...], dtype: Any) -> Tensor:
            name = path.replace("/", ".") if role == "scalar" else f"s.{_valid(path.replace('/', '.'))}"
            return self._enter(self._new(shape, dtype), role, name, path)

        optimizer: Any = self.step.optimizer  # type: ignore[union-attr]
        self.own, state = traced_update(optimizer, self.fakes, grads, self.parameter_names, enter, exact=self.exact)
        for item in self.own.kept:
            self.initial[item.path] = Initial("constant", item.fill)
            self._replace("state", item.path, state[item.path])
        for name in grads:
            self._updated(name, self.fakes[name])

    def _update(self, number: int, options: dict[str, Any], names: list[str], grads: dict[str, Tensor]) -> None:
        if not names:
            return
        groups = len(self.groups)
        rule = self.step.rule  # type: ignore[union-attr]
        assert rule is not None
        exact = any(self.fakes[name].dtype in (torch.float64, torch.complex128) for name in names)
        scalar = self._new((), torch.float64 if exact else torch.float32)
        path = "lr" if groups == 1 else f"lr/{number}"
        rate = self._enter(scalar, "scalar", path.replace("/", "."), path)
        common = _Store(self, "", number)
        group = Group(options, rate, rule.begin(options, rate, common))
        for name in names:
            self.recorder.scopes.append(name.rpartition(".")[0])
            parameter, grad, store = self.fakes[name].detach(), grads[name].detach(), _Store(self, name, number)
            if parameter.is_complex():
                parts = rule.update(group, torch.view_as_real(parameter), torch.view_as_real(grad), _PartsStore(store))
                new = torch.view_as_complex(parts)
            else:
                new = rule.update(group, parameter, grad, store)
            self._updated(name, new.to(parameter.dtype))
            self.recorder.scopes.pop()


class _Store:
    """The state of one parameter, or what its group shares (parameter: an empty name)."""

    def __init__(self, capture: _Capture, parameter: str, group: int) -> None:
        self.capture = capture
        self.parameter = parameter
        self.group = group

    def _path(self, key: str) -> str:
        groups = len(self.capture.groups)
        return f"{self.parameter}/{key}" if self.parameter else shared_path(key, self.group, groups)

    def read(self, key: str, initial: float, like: Tensor | None) -> Tensor:
        path = self._path(key)
        fake = self.capture._new((), torch.float32) if like is None else self.capture._fake(like)
        self.capture.initial[path] = Initial("constant", float(initial))
        self.capture.state[path] = fake
        return self.capture._enter(fake, "state", f"s.{_valid(path.replace('/', '.'))}", path)

    def write(self, key: str, value: Tensor) -> None:
        path = self._path(key)
        self.capture._replace("state", path, self.capture.scaling.kept(self.capture.state[path], value))


@dataclass(frozen=True)
class _PartsStore:
    """The state of a complex parameter as torch.optim sees it, which takes the parts for numbers of their own."""

    whole: _Store

    def read(self, key: str, initial: float, like: Tensor) -> Tensor:
        if initial:
            raise CaptureError(f"the optimizer's state {key!r} of a complex parameter begins with 0, got {initial}")
        return torch.view_as_real(self.whole.read(key, initial, torch.view_as_complex(like)))

    def write(self, key: str, value: Tensor) -> None:
        self.whole.write(key, torch.view_as_complex(value))


def _hook(fake: Tensor, parameter: Tensor, path: str) -> None:
    """The parameter's hooks change the gradient of its stand-in."""
    if getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise CaptureError(
            f"{path!r} has hooks behind the accumulation of its gradient (register_post_accumulate_grad_hook), which a "
            "plan does not call: use register_hook to change a gradient, and leave the update to the plan"
        )
    for hook in (parameter._backward_hooks or {}).values():
        fake.register_hook(hook)


def _check_memory(held: dict[str, Tensor], memory: dict[str, int]) -> None:
    """Raises CaptureError for `parameter.data = …`, after which the record knows another tensor than the program."""
    for name, tensor in held.items():
        if tensor.untyped_storage()._cdata != memory[name]:
            raise CaptureError(
                f"the step sets `.data` of {name!r}, which a graph cannot see: write into it instead, by "
                ".copy_(…) or .lerp_(…) under torch.no_grad()"
            )


@contextmanager
def _stand_ins(model: Any, tensors: dict[str, Tensor]) -> Iterator[None]:
    """While open, every place of a parameter or buffer holds the tensor of its (first) name instead.

    (torch.func.functional_call does not restore a module that is registered under two names.)
    """
    by_id = {id(old): tensors[name] for name, old in (*model.named_parameters(), *model.named_buffers())}
    before = [
        (places, key, old)
        for module in model.modules()
        for places in (module._parameters, module._buffers)
        for key, old in places.items()
        if old is not None
    ]
    try:
        for places, key, old in before:
            places[key] = by_id.get(id(old), old)  # what a module does not tell of stays with its numbers
        yield
    finally:
        for places, key, old in before:
            places[key] = old
        for module in model.modules():
            if hasattr(module, "_update_flat_weights"):  # nn.LSTM and its like keep a list besides
                module._update_flat_weights()


def _clipped(grads: dict[str, Tensor], greatest: float) -> dict[str, Tensor]:
    """As torch.nn.utils.clip_grad_norm_ with the 2-norm over all gradients together."""
    squares = [torch.linalg.vector_norm(grad).square() for grad in grads.values()]
    total = torch.sqrt(torch.stack(squares).sum())
    scale = torch.clamp(greatest / (total + 1e-6), max=1.0)
    return {name: grad * scale.to(grad.dtype) for name, grad in grads.items()}


__all__ = ["Captured", "Initial", "capture", "is_real"]
