"""The update of any optimizer, traced as its own code makes it.

An optimizer's `step` is Python that computes single numbers (a count of steps, a correction of bias, a rate by the
shape of a parameter) and calls operators on tensors as large as parameters. Here the large tensors are fake ones, and
the numbers are real: the code runs as it is, on stand-ins, and a dispatch mode notes the operators that it calls and
the numbers that it calls them with. Numbers that differ from step to step, or with the hyper-parameters of the groups,
are inputs of the graph. At each step of a run the code runs once more on fake tensors, which gives the numbers of this
step; so schedules of any hyper-parameter hold, whatever the code makes of it. Where it calls other operators than when
it was planned, there is an error, and another plan may be made.

Cost of a step: about 50 microseconds for each operator of the update.
"""

from __future__ import annotations

import copy
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from girih.capture.errors import CaptureError
from girih.capture.source import find_source, source_of_error

Tensor = Any
Host = dict[str, dict[str, Any]]
"""What an optimizer keeps of each parameter and is no large tensor (a count of steps), by the parameter's name."""

NUMBERS = "optimizer/number/"
"""Before the paths of the numbers that enter."""

FILLS = {"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "ones": 1.0, "ones_like": 1.0, "new_ones": 1.0}
MOVES = ("_to_copy", "clone", "detach", "alias", "view", "unsqueeze", "expand", "contiguous", "lift_fresh", "squeeze")
PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Call:
    """What the code calls on large tensors: `what` is the function and how it is called but for the numbers."""

    what: tuple[Any, ...]
    numbers: tuple[float, ...]
    source: str = field(default="", compare=False)
    fills: bool = field(default=False, compare=False)
    """Does it make a tensor that is all one number?"""


@dataclass(frozen=True)
class KeptTensor:
    """A large tensor that the optimizer keeps of a parameter from step to step, and what it begins with."""

    parameter: str
    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    fill: float

    @property
    def path(self) -> str:
        return f"{self.parameter}/{self.key}"


@dataclass(frozen=True)
class OwnUpdate:
    """An update as it was traced.

    trained: names of the parameters that have gradients, with the forms of their gradients. kept: large tensors of the
    optimizer's state. begin: what else it keeps, before the first step. calls: what its code calls. inputs: by the path
    of an input of the graph, the places of its number, (call, number among those of the call).
    """

    trained: Mapping[str, Tensor]
    kept: tuple[KeptTensor, ...]
    begin: Host
    calls: tuple[Call, ...]
    inputs: Mapping[str, tuple[tuple[int, int], ...]]

    def host(self, optimizer: Any, names: Mapping[int, str]) -> Host:
        """What the optimizer keeps now that is no large tensor, or begins with."""
        found, large = _copied(self.begin), {(item.parameter, item.key) for item in self.kept}
        for parameter, own in optimizer.state.items():
            name = names.get(id(parameter), "")
            if name in found and own:
                found[name] = {key: _copy(item) for key, item in own.items() if (name, key) not in large}
        return found

    def numbers(self, optimizer: Any, names: Mapping[int, str], host: Host) -> dict[str, float]:
        """The numbers of the next step by the paths of the graph's inputs; `host` goes on by a step.

        Raises:
            CaptureError: the code calls other operators than when it was traced, and nothing has happened.
        """
        before, kept = _settings_of(optimizer), _copied(host)
        mode = FakeTensorMode()
        try:
            trace = _Trace(mode)
            after = _run(
                optimizer, names, _stand_ins(optimizer, names, self.trained, mode), self._states(mode, host), trace
            )
            found = self._compared(trace.calls)
        except BaseException:
            _restore(optimizer, before)
            host.clear()
            host.update(kept)
            raise
        host.update({name: {k: v for k, v in own.items() if not _is_large(v)} for name, own in after.items()})
        return found

    def _states(self, mode: FakeTensorMode, host: Host) -> Host:
        states = {name: dict(own) for name, own in host.items()}
        for item in self.kept:
            states.setdefault(item.parameter, {})[item.key] = _fake(mode, item.shape, item.dtype)
        return states

    def _compared(self, calls: Sequence[Call]) -> dict[str, float]:
        if difference := _difference(self.calls, calls):
            raise CaptureError(f"the optimizer's code {difference} than when the step was planned")
        found: dict[str, float] = {}
        known: set[tuple[int, int]] = set()
        for path, places in self.inputs.items():
            values = {calls[call].numbers[number] for call, number in places}
            known.update(places)
            if len(values) > 1:
                raise CaptureError(
                    f"{calls[places[0][0]].source or 'the optimizer'} computes {sorted(values)}, which were one number "
                    "when the step was planned"
                )
            found[path] = values.pop()
        for number, (then, now) in enumerate(zip(self.calls, calls, strict=True)):
            for place, (old, new) in enumerate(zip(then.numbers, now.numbers, strict=True)):
                if old != new and (number, place) not in known:
                    raise CaptureError(
                        f"{now.source or 'the optimizer'} computes with {new}, a number that was {old} and did not "
                        "depend on the step when it was planned"
                    )
        return found


def traced_update(
    optimizer: Any,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    names: Mapping[int, str],
    enter: Callable[[str, str, Any, Any], Tensor],
    exact: bool = False,
) -> tuple[OwnUpdate, dict[str, Tensor]]:
    """Trace an update, under a recorder of calls; parameters are written into.

    parameters: fake ones by name, those with gradients have theirs in `gradients`. names: of the user's own, by `id`.
    enter: `enter(role, path, shape, dtype)` makes an input of the graph. exact: the calls stay as the code makes them,
    with all digits of their numbers; else they become calls that take tensors in the place of numbers.
    Returns it, and the new state by path; the new parameters are in the places of the old.

    Raises:
        CaptureError: the code reads a number of a large tensor; it does other things in its second step; or its state
            begins with what cannot be said beforehand.
    """
    before = _settings_of(optimizer)
    forms = {name: gradient.detach() for name, gradient in gradients.items()}
    try:
        kept, begin, calls = _beginnings(optimizer, names, forms)
        _restore(optimizer, before)
        begin = _checked(OwnUpdate(forms, kept, begin, (), {}), optimizer, names, calls)
        first = OwnUpdate(forms, kept, begin, (), {})
        calls, varying = _varying(first, optimizer, names)
        _restore(optimizer, before)
        own = OwnUpdate(forms, kept, begin, tuple(calls), {path: places for path, (places, _) in varying.items()})
        wide = exact or any(parameters[name].dtype in (torch.float64, torch.complex128) for name in forms)
        scalar = torch.float64 if wide else torch.float32
        entered = {path: enter("scalar", path, (), scalar) for path in varying}
        replaced = {place: entered[path] for path, places in own.inputs.items() for place in places}
        states: Host = own.host(optimizer, names)
        for item in kept:
            states.setdefault(item.parameter, {})[item.key] = enter("state", item.path, item.shape, item.dtype)
        for name, tensor in parameters.items():
            tensor.grad = gradients.get(name)
        trace = _Trace(None, replaced, exact)
        after = _run(optimizer, names, parameters, states, trace)
        if difference := _difference(own.calls, trace.calls):
            raise CaptureError(f"the optimizer's code {difference} when it is recorded")
        return own, {item.path: after[item.parameter][item.key] for item in kept}
    finally:
        _restore(optimizer, before)


# ---------------------------------------------------------------------------------------------------- the passes


def _beginnings(
    optimizer: Any, names: Mapping[int, str], forms: Mapping[str, Tensor]
) -> tuple[tuple[KeptTensor, ...], Host, list[Call]]:
    """What the optimizer keeps of each parameter: as it is now, or as its code makes it in the first step; and what the
    code calls then."""
    mode = FakeTensorMode()
    trace = _Trace(mode)
    after = _run(optimizer, names, _stand_ins(optimizer, names, forms, mode), {}, trace)
    now = {names[id(parameter)]: own for parameter, own in optimizer.state.items() if id(parameter) in names}
    kept: list[KeptTensor] = []
    begin: Host = {name: {} for name in forms}
    for name in forms:
        held = {key: (item, None) for key, item in now.get(name, {}).items()}
        made = after.get(name)
        for key, (item, fill) in {**held, **(made.firsts if isinstance(made, _Firsts) else {})}.items():
            if any(_is_large(leaf) for leaf in tree_leaves(item) if leaf is not item):
                raise CaptureError(
                    f"{type(optimizer).__name__} keeps tensors of {name!r} in a {type(item).__name__} under {key!r}: "
                    "expected a key for each"
                )
            if not _is_large(item):
                begin[name][key] = item
                continue
            fill = _fill(optimizer, fill)
            if fill is None and key not in now.get(name, {}):
                raise CaptureError(
                    f"{type(optimizer).__name__} begins its state {key!r} of {name!r} with what it computes in the "
                    "first step, which is another step than those after it: make the first step by plain PyTorch, and "
                    "call girih.fit then"
                )
            kept.append(KeptTensor(name, key, tuple(item.shape), item.dtype, fill or 0.0))
    return tuple(kept), begin, trace.calls


def _checked(first: OwnUpdate, optimizer: Any, names: Mapping[int, str], calls: Sequence[Call]) -> Host:
    """What the optimizer keeps in Python before its first step, from which that does what it does without any state:
    what it put there at first (a count of 0), or nothing (where it counts from what it does not find).

    Raises:
        CaptureError: neither gives the same first step.
    """
    made = {names.get(id(parameter)) for parameter, own in optimizer.state.items() if own}
    if made >= first.trained.keys():
        return first.begin  # which nobody will ask for
    wanted = [(call.what[0], call.numbers) for call in calls if not call.fills]
    before = _settings_of(optimizer)
    nothing: Host = {name: {} for name in first.begin}
    for begin in (first.begin, nothing):
        with suppress(CaptureError):
            found = _calls(first, optimizer, names, _copied(begin))
            if isinstance(optimizer, torch.optim.SGD) or wanted == [
                (call.what[0], call.numbers) for call in found if not call.fills
            ]:
                _restore(optimizer, before)
                return begin
        _restore(optimizer, before)
    raise CaptureError(
        f"{type(optimizer).__name__} makes another first step than those after it: make that by plain PyTorch, and "
        "call girih.fit then"
    )


def _fill(optimizer: Any, fill: float | None) -> float | None:
    """The number with which a tensor of the state begins; of PyTorch's SGD, whose first step takes the gradient for the
    momentum, the one that gives the same."""
    if isinstance(optimizer, torch.optim.SGD) and not any(group.get("dampening") for group in optimizer.param_groups):
        return 0.0
    return fill


def _varying(
    first: OwnUpdate, optimizer: Any, names: Mapping[int, str]
) -> tuple[list[Call], dict[str, tuple[tuple[tuple[int, int], ...], float]]]:
    """What the code calls, and the numbers that differ in a later step or with other hyper-parameters, by a path for
    each that differs from the others."""
    host = first.host(optimizer, names)
    passes = [_calls(first, optimizer, names, host)]
    at = _settings_of(optimizer), _copied(host)
    for group_number, group in enumerate(optimizer.param_groups):
        for number, (key, value) in enumerate(group.items()):
            group[key] = _moved(key, value, 1e-4 * (1 + 0.137 * number + 0.0173 * group_number))
    passes.append(_calls(first, optimizer, names, _copied(host)))
    _restore(optimizer, at[0])
    passes += [_calls(first, optimizer, names, at[1]) for _ in range(2)]
    passes = [own for own in passes if not _difference(passes[0], own)]  # the others are of another plan
    places: dict[tuple[float, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, call in enumerate(passes[0]):
        for place in range(len(call.numbers)):
            values = tuple(own[number].numbers[place] for own in passes)
            if any(value != values[0] for value in values):
                places[values].append((number, place))
    paths = {f"{NUMBERS}{number}": (tuple(own), values[0]) for number, (values, own) in enumerate(places.items())}
    return passes[0], paths


def _calls(first: OwnUpdate, optimizer: Any, names: Mapping[int, str], host: Host) -> list[Call]:
    mode = FakeTensorMode()
    trace = _Trace(mode)
    after = _run(optimizer, names, _stand_ins(optimizer, names, first.trained, mode), first._states(mode, host), trace)
    host.update({name: {k: v for k, v in own.items() if not _is_large(v)} for name, own in after.items()})
    return trace.calls


def _moved(key: str, value: Any, by: float) -> Any:
    """A hyper-parameter that is a little smaller; 0 stays 0, since the code may ask for that, but for a rate."""
    if key == "params" or isinstance(value, bool):
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(item, float) for item in value):
        return type(value)(_moved("", item, by * (1 + 0.31 * place)) for place, item in enumerate(value))
    if isinstance(value, torch.Tensor) and value.numel() == 1 and value.is_floating_point():
        return value * (1 - by)
    if not isinstance(value, float):
        return value
    return by * 1e-2 if key == "lr" and value == 0.0 else value * (1 - by)


def _difference(then: Sequence[Call], now: Sequence[Call]) -> str:
    """A clause that says how calls differ, but for their numbers."""
    for one, two in zip(then, now, strict=False):
        if one.what != two.what:
            return f"calls {two.what[0]} at {two.source or 'its update'} and not {one.what[0]}, or on other tensors,"
    if len(then) != len(now):
        return f"calls {len(now)} operators, not {len(then)},"
    return ""


# --------------------------------------------------------------------------------------------------- one run


class _Firsts(dict[str, Any]):
    """What an optimizer keeps of a parameter, and what it put under each key at first: with large tensors the number
    that they were filled with then, or None."""

    def __init__(self, fills: Mapping[int, float], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fills = fills
        self.firsts: dict[str, tuple[Any, float | None]] = {}

    def __setitem__(self, key: str, item: Any) -> None:
        if key not in self.firsts and key not in self:
            self.firsts[key] = _copy(item), self.fills.get(id(item))
        super().__setitem__(key, item)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        for key, item in dict(*others, **named).items():
            self[key] = item


def _run(
    optimizer: Any, names: Mapping[int, str], stand_ins: Mapping[str, Tensor], states: Host, trace: _Trace
) -> dict[str, dict[str, Any]]:
    """Run the optimizer's code on stand-ins; what it keeps of each parameter then. All by the parameters' names."""
    state: Any = defaultdict(partial(_Firsts, trace.fills))
    for name, own in states.items():
        if own:
            state[stand_ins[name]] = _Firsts(trace.fills, own)
    groups, held = [group["params"] for group in optimizer.param_groups], optimizer.state
    for group in optimizer.param_groups:
        group["params"] = [stand_ins[names[id(parameter)]] for parameter in group["params"]]
    optimizer.state = state
    try:
        with nullcontext() if trace.mode is None else _disable_current_modes(), torch.no_grad(), trace:
            optimizer.step()
    except (DataDependentOutputException, RuntimeError, TypeError, ValueError, AttributeError, KeyError) as error:
        source, text = source_of_error(error)
        what = f"{source}: `{text}` of {type(optimizer).__name__}"
        if isinstance(error, DataDependentOutputException):
            raise CaptureError(
                f"{what} needs a number of a tensor ({error.func}), which a plan computes on its devices: an update "
                "that is all tensors, with torch.clamp or torch.where for what depends on them, can be planned"
            ) from error
        raise CaptureError(
            f"{what} cannot be traced: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        ) from error
    finally:
        optimizer.state = held
        for group, parameters in zip(optimizer.param_groups, groups, strict=True):
            group["params"] = parameters
    by_id = {id(tensor): name for name, tensor in stand_ins.items()}
    return {by_id[id(tensor)]: own for tensor, own in state.items() if id(tensor) in by_id}


def _stand_ins(optimizer: Any, names: Mapping[int, str], forms: Mapping[str, Tensor], mode: Any) -> dict[str, Tensor]:
    """Fake parameters by name, with fake gradients."""
    made = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            with _disable_current_modes(), mode:
                made[name] = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype)
                made[name].requires_grad_(parameter.requires_grad)
                if name in forms:
                    form = forms[name]
                    made[name].grad = torch.empty_strided(form.shape, form.stride(), dtype=form.dtype)
    return made


class _Trace(TorchDispatchMode):
    """Notes what code calls on large tensors, which are fake; calls on others are made as they are.

    mode: makes tensors of factories fake; None: whatever mode is below. replaced: by (call, number among its numbers),
    the tensor that stands for it. exact: calls with such tensors stay calls with numbers.
    """

    def __init__(
        self,
        mode: FakeTensorMode | None,
        replaced: Mapping[tuple[int, int], Tensor] | None = None,
        exact: bool = False,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.replaced = replaced
        self.exact = exact
        self.calls: list[Call] = []
        self.fills: dict[int, float] = {}
        """By the `id` of a tensor that is all one number, that number."""
        self._slots: dict[int, int] = {}
        self._keep: list[Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.namespace in ("prim", "profiler"):
            return function(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return self._large(function, args, kwargs)
        if function is torch.ops.aten.lift_fresh.default:
            return args[0]
        if not tensors:
            with _disable_current_modes(), FakeTensorMode():
                form = function(*args, **kwargs)
            if isinstance(form, torch.Tensor) and form.numel() > 1:
                return self._large(function, args, kwargs)
        with _disable_current_modes():
            return function(*args, **kwargs)

    def _large(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        at = len(self.calls)
        numbers: list[float] = []
        schema = {argument.name: str(argument.type) for argument in function._schema.arguments}
        named = dict(zip(schema, args, strict=False)) | kwargs
        noted, given = [], {}
        for name, item in named.items():
            note, given[name] = self._noted(item, schema.get(name, ""), at, numbers)
            noted.append((name, note))
        source = find_source(sys._getframe(2))
        changed = {name for name, item in named.items() if item is not given[name]}
        result = self._called(function, schema, named, given, changed)
        made = result if isinstance(result, (tuple, list)) else (result,)
        outputs = tuple(self._slot(item) for item in made if isinstance(item, torch.Tensor))
        self._note_fill(function, named, made[0] if made else None)
        fills = bool(made) and id(made[0]) in self.fills
        self.calls.append(Call((function, tuple(noted), outputs), tuple(numbers), source, fills))
        return result

    def _noted(self, item: Any, kind: str, at: int, numbers: list[float]) -> tuple[Any, Any]:
        """(An argument as it is noted, and what is given in its place.)"""
        if isinstance(item, FakeTensor):
            return ("tensor", self._slot(item)), item
        if isinstance(item, (list, tuple)):
            pairs = [self._noted(part, kind, at, numbers) for part in item]
            return tuple(note for note, _ in pairs), type(item)(part for _, part in pairs) if any(
                part is not given for part, (_, given) in zip(item, pairs, strict=True)
            ) else item
        single = isinstance(item, torch.Tensor) and item.numel() == 1
        if isinstance(item, torch.Tensor) and not single:
            raise CaptureError(
                f"{find_source(sys._getframe(3))}: the optimizer computes with a tensor {list(item.shape)} of its own "
                "beside those of the parameters: expected single numbers"
            )
        scalar = (
            isinstance(item, (int, float)) and not isinstance(item, bool) and ("number" in kind or kind == "Tensor")
        )
        if not single and not scalar:
            return item, item
        with _disable_current_modes():
            number = item.item() if single else item
        place = at, len(numbers)
        numbers.append(number)
        stands = None if self.replaced is None else self.replaced.get(place)
        if stands is not None and single and self.exact:  # it has all digits; the code's own has those of its type
            stands = stands.to(item.dtype).reshape(item.shape)
        if stands is None and single:
            stands = torch.full((), number, dtype=item.dtype) if self.mode is None else _fake(self.mode, (), item.dtype)
        return ("number", type(number)), item if stands is None else stands

    def _called(
        self,
        function: Any,
        schema: Mapping[str, str],
        named: Mapping[str, Any],
        given: dict[str, Any],
        changed: set[str],
    ) -> Any:
        """The call with tensors for some of its numbers."""
        if self.exact and (numbers := {name for name in changed if _is_plain_number(named[name])}):
            return _numbered(function, given, numbers)
        unfit = [name for name in changed if "number" in schema[name]]
        if self.mode is not None and _keeps_form(function) and isinstance(given.get("self"), FakeTensor):
            return given["self"]  # written in place: on tensors without data nothing happens, which takes no time so
        if not unfit:
            if self.mode is not None:  # a form does not depend on numbers, and PyTorch remembers those of equal calls
                kinds = {name for name, kind in schema.items() if "number" in kind or kind == "Tensor"}
                given |= {name: type(given[name])(1) for name in kinds & given.keys() if _is_plain_number(given[name])}
            makes = self.mode is not None and not any(isinstance(item, FakeTensor) for item in tree_leaves(given))
            with self.mode if makes and self.mode is not None else nullcontext():
                return _call(function, given)
        base = function._schema.name.partition("::")[2]
        way = WITH_TENSORS.get(base.rstrip("_"))
        if way is None:
            raise CaptureError(
                f"{find_source(sys._getframe(3))}: the optimizer calls {function} with a number for {unfit[0]!r} that "
                "differs from step to step: expected one of "
                f"{', '.join(sorted(WITH_TENSORS))}, or operators that take a tensor in its place"
            )
        result = way(given["self"], **{name: item for name, item in given.items() if name != "self"})
        return given["self"].copy_(result) if base.endswith("_") else result

    def _slot(self, tensor: Tensor) -> int:
        if id(tensor) not in self._slots:
            self._slots[id(tensor)] = len(self._keep)
            self._keep.append(tensor)  # an id is good only as long as its tensor lives
        return self._slots[id(tensor)]

    def _note_fill(self, function: Any, named: Mapping[str, Any], made: Any) -> None:
        base = function._schema.name.partition("::")[2]
        if base in FILLS:
            self.fills[id(made)] = FILLS[base]
        elif base in ("full", "full_like", "new_full"):
            self.fills[id(made)] = float(named["fill_value"])
        elif base in MOVES and id(named["self"]) in self.fills:
            self.fills[id(made)] = self.fills[id(named["self"])]
        elif function._schema.is_mutable:
            self.fills.pop(id(made), None)


def _call(function: Any, given: Mapping[str, Any]) -> Any:
    """A call by names, some of which are of arguments that are given by position only."""
    positional = [argument.name for argument in function._schema.arguments if not argument.kwarg_only]
    count = max((place for place, name in enumerate(positional) if name in given), default=-1) + 1
    defaults = {argument.name: argument.default_value for argument in function._schema.arguments}
    args = [given.get(name, defaults[name]) for name in positional[:count]]
    return function(*args, **{name: item for name, item in given.items() if name not in positional})


@cache
def _keeps_form(function: Any) -> bool:
    """Does it write into its first argument, whose shape stays, and give it back?"""
    base, returns = function._schema.name.partition("::")[2], function._schema.returns
    return (
        base.endswith("_")
        and len(returns) == 1
        and not base.startswith(("set_", "resize"))
        and torch.Tag.inplace_view not in function.tags
    )


def _is_plain_number(item: Any) -> bool:
    return isinstance(item, (int, float)) and not isinstance(item, bool)


def _numbered(function: Any, given: Mapping[str, Any], numbers: set[str]) -> Any:
    """The call as it is, in a record: these of its arguments are tensors, whose numbers it will take
    (`girih.capture.canonicalize.exact`).

    Raises:
        CaptureError: it writes in place, and PyTorch has no operator that computes the same elsewhere.
    """
    name, tensors = str(function).removesuffix(".default"), list[Tensor]()
    space, base, *overload = name.split(".")
    if base.endswith("_"):
        name = ".".join((space, base.rstrip("_"), *overload))
        if not hasattr(getattr(torch.ops.aten, base.rstrip("_"), None), overload[0] if overload else "default"):
            raise CaptureError(
                f"{find_source(sys._getframe(3))}: the optimizer calls {function} with a number that differs from step "
                "to step, which exact=True cannot replay: leave it out"
            )

    def noted(key: str, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            tensors.append(item)
            return f"{'#' if key in numbers else '%'}{len(tensors) - 1}"
        if isinstance(item, (list, tuple)):
            return [noted(key, part) for part in item]
        return str(item).removeprefix("torch.") if isinstance(item, torch.dtype) else item

    arguments = json.dumps([(key, noted(key, item)) for key, item in given.items()])
    result = torch.ops.girih.numbered(tensors, name, arguments)
    return given["self"].copy_(result) if base.endswith("_") else result


def _scaled(item: Any, by: Any) -> Any:
    return item if isinstance(by, int) and by == 1 else item * by


def _like(item: Any, x: Tensor) -> Any:
    return item.to(x.dtype) if isinstance(item, torch.Tensor) else torch.full((), item, dtype=x.dtype)


WITH_TENSORS: dict[str, Callable[..., Tensor]] = {
    "add": lambda x, other, alpha=1, **_: x + _scaled(other, alpha),
    "sub": lambda x, other, alpha=1, **_: x - _scaled(other, alpha),
    "rsub": lambda x, other, alpha=1, **_: other - _scaled(x, alpha),
    "mul": lambda x, other, **_: x * other,
    "div": lambda x, other, **_: x / other,
    "pow": lambda x, exponent, **_: torch.pow(x, exponent),
    "lerp": lambda x, end, weight, **_: torch.lerp(x, end, _like(weight, x)),
    "addcmul": lambda x, tensor1, tensor2, value=1, **_: torch.addcmul(x, _scaled(tensor1, value), tensor2),
    "addcdiv": lambda x, tensor1, tensor2, value=1, **_: torch.addcdiv(x, _scaled(tensor1, value), tensor2),
    "clamp": lambda x, min=None, max=None, **_: _clamped(x, min, max),
    "clamp_min": lambda x, min, **_: _clamped(x, min, None),
    "clamp_max": lambda x, max, **_: _clamped(x, None, max),
    "fill": lambda x, value, **_: torch.zeros_like(x) + value,
    "full_like": lambda x, fill_value, **_: torch.zeros_like(x) + fill_value,
    "addmm": lambda x, mat1, mat2, beta=1, alpha=1, **_: _scaled(x, beta) + _scaled(mat1 @ mat2, alpha),
    "baddbmm": lambda x, batch1, batch2, beta=1, alpha=1, **_: _scaled(x, beta) + _scaled(batch1 @ batch2, alpha),
}
"""Operators that take a number as a number, with tensors for it."""


def _clamped(x: Tensor, least: Any, most: Any) -> Tensor:
    x = x if least is None else torch.maximum(x, _like(least, x))
    return x if most is None else torch.minimum(x, _like(most, x))


# ------------------------------------------------------------------------------------------------ what is kept


def _is_large(item: Any) -> bool:
    """Is it kept on the devices? A count of steps, which the code computes by itself, is not."""
    return isinstance(item, torch.Tensor) and (isinstance(item, FakeTensor) or item.dim() > 0)


def _fake(mode: FakeTensorMode, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    with _disable_current_modes(), mode:
        return torch.empty(tuple(shape), dtype=dtype)


def _copy(item: Any) -> Any:
    if isinstance(item, FakeTensor):
        return item
    with _disable_current_modes():
        return item.detach().clone() if isinstance(item, torch.Tensor) else copy.deepcopy(item)


def _copied(host: Mapping[str, Mapping[str, Any]]) -> Host:
    return {
        name: {key: item if _is_large(item) else _copy(item) for key, item in own.items()} for name, own in host.items()
    }


def _settings_of(optimizer: Any) -> Any:
    """All of an optimizer that its code may write into beside its state."""
    groups = [{key: _copy(item) for key, item in group.items() if key != "params"} for group in optimizer.param_groups]
    own = {key: item for key, item in vars(optimizer).items() if type(item) in PLAIN}
    return groups, own


def _restore(optimizer: Any, settings: Any) -> None:
    groups, own = settings
    for group, then in zip(optimizer.param_groups, groups, strict=True):
        for key in [key for key in group if key != "params" and key not in then]:
            del group[key]
        group.update({key: _copy(item) for key, item in then.items()})
    vars(optimizer).update(own)
