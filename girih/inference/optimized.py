"""A model for inference, rewritten so that it is faster here, and never slower: what won is what was timed.

Search: the graph in segments, cost-based backtracking in each (TASO §2.7), costs measured. Guard (`trial.py`): the
model as it was and as it is rewritten, each by every back end, run in turns on the example; the fastest is kept, and
all the figures."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from girih.capture import Captured, CaptureError, Inference, capture
from girih.capture.batches import leaves_of
from girih.capture.torch.exported import ExportedModule
from girih.capture.torch.initial import is_real
from girih.capture.torch.settings import Settings, listed
from girih.capture.torch.state import state_of
from girih.capture.torch.weights import Weights
from girih.cost.store import Store
from girih.graph import Graph
from girih.inference.calls import Call, batch_of, call_of, difference, is_flat, is_of_other_sizes
from girih.inference.costs import KernelCosts, RuntimeCosts
from girih.inference.export import ExportError, copy, exported, save, write
from girih.inference.kept import Kept, KeptError, described
from girih.inference.kept import write as write_kept
from girih.inference.layouts import LayoutCosts
from girih.inference.module import module_of
from girih.inference.onnx.module import OnnxModule
from girih.inference.open_sizes import Sizes, opened, resized
from girih.inference.quick.way import NO, Watch, model_way, no_way, quick_way
from girih.inference.runtimes.apart import Apart
from girih.inference.runtimes.backends import RUNTIMES, directly, installed
from girih.inference.runtimes.short import in_bfloat16, in_int8
from girih.inference.searching import Found, rewrite, search_of
from girih.inference.trial import (
    BFLOAT16,
    INT8,
    PROBES,
    SHORT,
    Candidate,
    Progress,
    Way,
    at_random,
    fastest,
    same,
    turn_of,
)
from girih.plans.indices import check_numbers, look_ups
from girih.rewrite.backtracking import Applied, Rewritten, RuleSearch, fingerprint
from girih.rewrite.certificate import Certificate, explained
from girih.rewrite.constants import folded
from girih.rewrite.passes.binary_joins import FlatJoins
from girih.rewrite.passes.computed_once import ComputeOnce
from girih.rewrite.passes.whole import Whole
from girih.rewrite.prove import proved
from girih.rewrite.rules.further import inference
from girih.rewrite.rules.rule import Rule, RuleError
from girih.rewrite.rules.shipped import shipped
from girih.rewrite.sweep import Sweep
from girih.rewrite.ways import Way as KernelWay
from girih.rewrite.ways import cheapest

BACKENDS = ("eager", "onednn", "inductor", "onnxruntime", "openvino")
MODEL, AGAIN, REFUSE = OTHERWISE = "model", "again", "refuse"
"""What answers a call that is not like the example, or after weights were changed: the model as it was, what is
optimised again for it, an error."""
MOST_CALLS = 8
"""For which something is kept at a time."""
AS_IT_WAS, REWRITTEN, FOR_ONNX = "as it was", "rewritten", "rewritten for ONNX Runtime"
"""Programs: the model, and what was found by kernels of PyTorch, or of ONNX Runtime."""
FILES = (".pt2", ".onnx", ".girih")
AGAIN_SHARE = 0.25
"""The share of the time for measuring that another size gets: it has two candidates, what won before and the model."""
SWEEP = 0.4
"""The share of the search's seconds, at most, that the whole graph at once gets."""


_TRAINING = attrgetter("training")


class OptimizeError(ValueError):
    """A model that cannot be optimised as was asked; the message says why, and what to do."""


@dataclass(frozen=True)
class Explanation:
    """What was done, in figures. nodes: operators of the program, without those of weights alone, before and after.
    swept: what was found in the whole graph, before it was searched in parts: found. Both are of the rewritten program
    that was chosen; where the model as it was is the fastest, of the one that was found first. cost, before: sums of
    measured kernels, with what brings tensors into other layouts, in seconds."""

    nodes: tuple[int, int]
    swept: Rewritten
    found: Found
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    threads: int
    from_onnx: bool = False

    @property
    def rewritten(self) -> bool:
        """Is what was chosen a rewritten program?"""
        return _in_full(self.chosen.program) != AS_IT_WAS

    @property
    def sequence(self) -> tuple[Applied, ...]:
        """The steps to the rewritten program, whether it was chosen or not."""
        return tuple(step for part in (self.swept, *self.searched) for step in part.sequence)

    @property
    def searched(self) -> tuple[Rewritten, ...]:
        """The parts in which it was searched."""
        return self.found.searched

    @property
    def before(self) -> float:
        return self.found.before

    @property
    def cost(self) -> float:
        return self.found.choice.cost

    @property
    def certificate(self) -> Certificate:
        """How far from the best of the space that was searched the cost is at most."""
        return self.found.certificate

    @property
    def brought(self) -> Candidate:
        """What the user would run without girih, with which the chosen is compared: ONNX Runtime on the file as it was
        where the model came from an ONNX file and that runs, else the model in eager PyTorch."""
        first, *others = [item for item in self.candidates if item.program == AS_IT_WAS and item.seconds is not None]
        return next((item for item in others if self.from_onnx and item.backend == "onnxruntime"), first)

    @property
    def speedup(self) -> float:
        """Over what the user brought."""
        assert self.brought.seconds is not None
        assert self.chosen.seconds is not None
        return self.brought.seconds / self.chosen.seconds

    def __str__(self) -> str:
        lines = [
            f"{self.nodes[0]} operators became {self.nodes[1]}; kernels {_ms(self.before)} → {_ms(self.cost)}, "
            f"the sum of what each takes alone, {self.threads} thread{'s' if self.threads > 1 else ''}"
        ]
        names = Counter(step.rule.name or str(step.rule) for step in self.sequence)
        lines += [f"  {count} × {name}" for name, count in names.most_common()] or ["  no rewrite that pays"]
        extracted = sum(part.by == "saturation" for part in self.searched)
        if extracted:
            lines.append(f"  {extracted} of {len(self.searched)} parts as equality saturation found them")
        layouts = Counter(self.found.choice.layouts.values())
        lines += [f"  {count} tensors in {layout}" for layout, count in layouts.most_common()]
        lines += explained(self.certificate)
        unfinished = sum(not part.complete for part in self.searched)
        if unfinished:
            lines.append(f"the time ran out in {unfinished} of {len(self.searched)} parts: more may be found")
        lines.append("measured in turns:")
        for item in self.candidates:
            mark = "→" if item is self.chosen else " "
            text = item.why if item.seconds is None else f"{_ms(item.seconds)}"
            if item.seconds is not None and item.error is not None:
                text += f", off by {item.error:.2g} of the largest number"
            lines.append(f"{mark} {item.program:<26} {item.backend:<11} {text}")
        what = "the model as it was" if not self.rewritten else "the rewritten program"
        how = "" if self.chosen.backend == "eager" else f", run by {self.chosen.backend},"
        beside = "the file in ONNX Runtime" if self.brought.backend == "onnxruntime" else "the model in eager PyTorch"
        if self.chosen == self.brought:
            lines.append(f"{what}{how} is the fastest: nothing is gained over what you brought")
        else:
            lines.append(f"{what}{how} is the fastest: {self.speedup:.2f} × as fast as {beside}")
        return "\n".join(lines)


def _in_full(program: str) -> str:
    """A program's name without what says in which short type it is computed."""
    return program.partition(", ")[0]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


@dataclass(frozen=True)
class Made:
    """What was made for one call, `arguments` and `named`. run: the fastest way, called as the model is. module,
    tensors: the rewritten program as plain PyTorch calls, and what it takes of the call. found: all rewritten programs,
    by name."""

    call: Call
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    run: Callable[..., Any]
    module: torch.fx.GraphModule
    tensors: tuple[Any, ...]
    explanation: Explanation
    found: Mapping[str, _Found] = field(default_factory=dict)


class Optimized(nn.Module):
    """The fastest of what was tried; called as the model is.

    It is for calls like the example's, with the weights of the time when it was made. Each call is compared with that:
    structure, shapes, dtypes, devices, what is no tensor, autocast and default types, the model's weights (`Weights`),
    and what its modules, functions and classes hold (`Settings`). Any other call is answered as `otherwise` says.

    module: the rewritten program as plain PyTorch calls, for `torch.export` and others; it takes the tensors of a batch
    in order and returns the results as a tuple.
    """

    def __init__(self, model: nn.Module, make: Callable[..., Made], example: Any, otherwise: str) -> None:
        super().__init__()
        self.model = model
        first = make(example)
        self.module = first.module
        self._make, self._first, self._otherwise = make, first, otherwise
        self._made: list[tuple[Call, Made | None]] = [(first.call, first)]
        self._itself = (model,)  # PyTorch takes a microsecond to look up a part by its name
        self._turn = RLock() if otherwise == AGAIN else None  # while one thread captures the model again, its tensors
        # are fakes
        self._told = False
        self._look()
        self.eval()
        self._parts = list(model.modules())

    def _look(self) -> None:
        """The model is as it is to be from now on."""
        self._weights, self._settings = Weights(self.model), Settings(Inference(self.model))
        self._ready()

    def _ready(self) -> None:
        """Make the quick way of calls anew."""
        hooks, settings = (self._forward_hooks, self._forward_pre_hooks), self._settings
        self._watch: Watch | None = None
        if self._first.run is self._itself[0] and self._otherwise == MODEL:
            self._quick = model_way(self.model, hooks)
            return
        made = [
            (call, item.run)
            for call, item in self._made
            if item is not None and call.guard is not None and call.around == settings.around
        ]
        if not made or settings.around_plain is None:
            self._quick = no_way
            return
        self._watch = Watch(settings, self._weights, hooks)
        self._quick = quick_way(settings, self._watch, made, self._turn)
        if any(hooks) or not settings.untouched(forms=False) or self._weights.written():
            self._watch.words.forget()

    def _changed(self) -> str:
        """What of the model is another; nothing where all is as it was."""
        name = self._weights.changed()
        return f"its {name!r} was changed" if name else listed(self._settings.changed())

    def train(self, mode: bool = True) -> Optimized:
        """Stays in evaluation, which is what was optimised: training would write into the model that it was made of."""
        super().train(False)
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise OptimizeError(
            "an optimised model holds compiled code, which cannot be pickled or copied: fast.save('x.pt2')"
        )

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """A module's call takes two microseconds of its own."""
        result = self._quick(*batch, **named)
        return super().__call__(*batch, **named) if result is NO else result

    def forward(self, *batch: Any, **named: Any) -> Any:
        with torch.no_grad() if torch.is_grad_enabled() else nullcontext(), self._turn or nullcontext():
            return self._answer(batch, named)

    def _answer(self, batch: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._first.run is self._itself[0] and self._otherwise == MODEL:
            self._check_evaluates()
            return self.model(*batch, **named)  # which answers every call
        made = self._known(batch, named)
        if made is None:
            self._check_evaluates()
            call, changed = call_of(batch, named), self._changed()
            if changed:
                self._watch, self._quick = None, no_way  # so that no memory is kept of what is another now
            made = None if changed else next((made for other, made in self._made if other == call), None)
            if made is None:
                made = self._other(batch, named, call, changed)
            elif self._watch is None or not self._watch.is_of(self._settings, self._weights):
                self._ready()  # what was touched, and is the same, is told quickly from now on
            if made is None:
                return self._by_model(batch, named, changed)
        try:
            return made.run(*batch, **named)
        except Exception as error:
            results = self._by_model(batch, named, "")  # or its own error, which says what is wrong with the call
            how = f"{made.explanation.chosen.backend} failed ({_first_line(error)})"
        self._tell(f"{how}, so that the model as it was answered", 7)
        return results

    def _check_evaluates(self) -> None:
        """Where nobody has touched the model, that was looked at before: it is an attribute of each part."""
        if any(map(_TRAINING, self._parts)):
            raise OptimizeError(
                "the model was put into training mode after it was optimised, in which it computes something else: "
                "call model.eval() before"
            )

    def _known(self, batch: tuple[Any, ...], named: Mapping[str, Any]) -> Made | None:
        """What was made for this call, where that is told without flattening it: of a model that nobody has touched."""
        watch = self._watch
        now = None if watch is None else watch.words.now()  # first: a write meanwhile is seen later
        if not self._settings.untouched(forms=False) or self._weights.written():
            return None
        if watch is None or now is None or not watch.is_of(self._settings, self._weights):
            self._ready()
        elif not any(watch.hooks):
            watch.words.known = now
        around = self._settings.around
        every = (made for call, made in self._made if call.around == around and call.is_quickly(batch, named))
        return next(every, None)

    def _by_model(self, batch: tuple[Any, ...], named: Mapping[str, Any], changed: str) -> Any:
        results = self.model(*batch, **named)
        if not changed and self._settings.changed():
            # By the model itself, as in a cache: capture has seen that its next call does not depend on it.
            self._settings = Settings(Inference(self.model))
            self._ready()
        return results

    def _other(self, batch: tuple[Any, ...], named: Mapping[str, Any], call: Call, changed: str) -> Made | None:
        """What answers a call for which nothing was made; None: the model itself.

        Raises:
            OptimizeError: it is to be refused.
        """
        if self._otherwise == MODEL and self._told:
            return None
        why = f"{changed} after it was optimised" if changed else difference(batch, named, self._first.call)
        if self._otherwise == REFUSE:
            raise OptimizeError(
                f"{why}: call it as the example, call girih.optimize again, or give it otherwise='{MODEL}' or '{AGAIN}'"
            )
        if self._otherwise == AGAIN and not (batch and named):
            if changed:
                self._made = []
            known = [made for other, made in self._made if other == call]
            if not known:
                try:
                    other_size = not changed and is_of_other_sizes(call, self._first.call)
                    known = [self._make(named or batch, *([self._first] if other_size else []))]
                except (CaptureError, OptimizeError) as error:
                    why, known = f"{why}, for which it cannot be optimised ({_first_line(error)})", [None]
                self._made = [(call, known[0]), *self._made][:MOST_CALLS]
                self._look()
            if known[0] is not None:
                if changed:
                    self._first, self.module = known[0], known[0].module
                return known[0]
        self._tell(
            f"{why}, so that the model as it was answers, from now on without a word: girih.optimize(…, "
            f"otherwise='{AGAIN}') optimises again for such a call, '{REFUSE}' refuses it"
        )
        return None

    def _tell(self, text: str, level: int = 8) -> None:
        """level: as many calls above is that of the model."""
        if not self._told:
            self._told = True
            warnings.warn(text, stacklevel=level)

    def explain(self) -> Explanation:
        """The rewrites, what they were to gain, and what was measured; `print` shows it as a text.

        It tells about the example; after weights were changed, about the first call that was optimised again."""
        return self._first.explanation

    def _names(self, made: Made) -> tuple[str, ...] | None:
        """The names of a call's tensors, in the order of its leaves; None if an argument has no name, or no tensor."""
        if not all(isinstance(item, torch.Tensor) for item in (*made.arguments, *made.named.values())):
            return None
        if made.named:
            return tuple(sorted(made.named))
        if isinstance(self.model, (OnnxModule, ExportedModule)):
            names: tuple[str, ...] = self.model.names
        else:
            kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters = inspect.signature(self.model.forward).parameters.values()
            names = tuple(item.name for item in parameters if item.kind in kinds)[: len(made.arguments)]
        return names if len(names) == len(made.arguments) else None

    def _places(self, made: Made) -> list[int]:
        """Which leaf of a call each input of the rewritten program is."""
        leaves = tree_leaves(batch_of(made.arguments, made.named))
        return [next(place for place, leaf in enumerate(leaves) if leaf is tensor) for tensor in made.tensors]

    def _write_onnx(self, made: Made, path: Path) -> None:
        names, places, sizes = self._names(made), self._places(made), self._sizes(made)
        results = self.model.results if isinstance(self.model, OnnxModule) else None
        if len(set(places)) < len(places):  # a tensor that was given twice
            names = None
        if made.explanation.rewritten:
            inputs = None if names is None else tuple(names[place] for place in places)
            branches = isinstance(self.model, OnnxModule) and self.model.branches
            found = None if sizes is None or branches else opened(self.module, sizes)
            if sizes is not None and found is not None:
                with suppress(ExportError):
                    write(exported(*found, {}, inputs, results, sizes.open), path)
                    return
            write(exported(self.module, made.tensors, {}, inputs, results), path)
        else:
            if sizes is not None and self._written_as_it_was(made, sizes, path):
                return
            inputs = tuple(made.named) if names is not None and made.named else names
            write(exported(self.model, made.arguments, made.named, inputs, results), path)
        if sizes is not None:
            shown = ", ".join(f"{name}={size}" for name, size in sizes.known.items())
            warnings.warn(
                f"{path.name} is for the example's sizes alone ({shown}): the program was made for them, and that it "
                "holds for others could not be shown",
                stacklevel=3,
            )

    def _write_kept(self, made: Made, path: Path) -> None:
        backend, given = made.explanation.chosen.backend, tuple(made.named[name] for name in sorted(made.named))
        arguments, leaves = made.arguments or given, tree_leaves(batch_of(made.arguments, made.named))
        if backend not in RUNTIMES:
            raise OptimizeError(
                f"{backend} has won, whose program {path.name} cannot hold: fast.save('x.pt2') writes it as PyTorch's"
            )
        tensors = all(type(item) in (torch.Tensor, nn.Parameter) for item in arguments)
        if not tensors or not made.call.flat or getattr(self.model, "fixed", None):
            raise OptimizeError(f"{path.name} holds models whose arguments are tensors, and free: fast.save('x.onnx')")
        if made.explanation.rewritten:
            written = exported(self.module, made.tensors)
        else:
            written = exported(self.model, made.arguments, made.named)
        program = written.model_proto.SerializeToString()
        captured = capture(Inference(self.model), dict(made.named) if made.named else made.arguments)
        names = [captured.batch_names[name] for name, _ in leaves_of(batch_of(made.arguments, made.named))]
        order = self._places(made)
        with torch.no_grad():
            expected = tree_flatten(made.run(*made.arguments, **made.named))
        content = described(
            backend, made.explanation.threads, sorted(made.named), leaves, order, expected, captured.graph,
            [names[place] for place in order], program,
        )  # fmt: skip
        results = tree_leaves(Kept(content, program)(*made.arguments, **made.named))
        if not same(results, expected[0]):
            raise OptimizeError(f"{path.name} cannot hold the program: written as ONNX again it has other results")
        write_kept(path, content, program)

    def _written_as_it_was(self, made: Made, sizes: Sizes, path: Path) -> bool:
        """The model for all its sizes, if it can be written so."""
        if isinstance(self.model, OnnxModule):
            if self.model.path is None or self.model.again is None or self.model.fixed:
                return False
            self.model.again(self.model.example)  # raises an error where the file was changed
            copy(self.model.path, path)
            return True
        assert isinstance(self.model, ExportedModule)
        program, names = self.model.program, tuple(made.named) or self.model.names
        with suppress(ExportError):
            inputs = sizes.at(sizes.others()[0]) if not made.named else ()
            write(exported(program, inputs, made.named, names, None, sizes.open), path)
            return True
        return False

    def _sizes(self, made: Made) -> Sizes | None:
        """The sizes that the rewritten program's inputs may have; None where the model has no open dimension."""
        names, places = self._names(made), self._places(made)
        dims = getattr(self.model, "open", {})
        if not isinstance(self.model, (OnnxModule, ExportedModule)) or names is None:
            return None
        open = [{dim: size for dim, size in enumerate(dims.get(name, ())) if isinstance(size, str)} for name in names]
        if sorted(places) != list(range(len(names))) or not any(open):
            return None

        def answer(*tensors: Any) -> Any:
            given = dict(zip(places, tensors, strict=True))
            batch = [given[place] for place in range(len(names))]
            return self.model(**dict(zip(names, batch, strict=True))) if made.named else self.model(*batch)

        return Sizes(made.tensors, tuple(open[place] for place in places), answer)

    def save(self, path: str | Path) -> None:
        """Write the program that won, for where girih is not: as PyTorch's exported program (`.pt2`), which
        `torch.export.load(path).module()` runs, or as an ONNX model (`.onnx`). What a back end adds is not in it. Or,
        with its library, threads and the form of its call, for `girih.load_optimized` (`.girih`), where ONNX Runtime or
        OpenVINO has won.

        The rewritten program takes the tensors of a batch in their order. Nothing is written if it fails.

        Raises:
            OptimizeError: PyTorch cannot export it, the name ends otherwise, or weights were changed since.
        """
        first = self._first
        path, chosen = Path(path), first.explanation.chosen.program
        if path.suffix not in FILES:
            raise OptimizeError(f"{path} is to end in {', '.join(FILES[:-1])} or {FILES[-1]}")
        if not path.parent.is_dir():
            raise OptimizeError(f"there is no folder {path.parent} to write {path.name} into")
        if changed := self._changed():
            raise OptimizeError(f"{changed} after it was optimised: optimise it again")
        if chosen.endswith(SHORT):
            raise OptimizeError(
                f"{chosen.partition(', ')[2]} has won, which is not written: optimise it without tolerance, and save "
                "that"
            )
        rewritten = first.explanation.rewritten
        arguments, named = (first.tensors, {}) if rewritten else (first.arguments, first.named)
        model = self.module if rewritten else self.model
        try:
            if path.suffix == ".onnx":
                self._write_onnx(first, path)
                return
            if path.suffix == ".girih":
                self._write_kept(first, path)
                return
            with torch.no_grad():
                torch.export.save(torch.export.export(model, tuple(arguments), dict(named)), path)
        except (RuntimeError, ExportError, KeptError, torch._dynamo.exc.TorchDynamoException) as error:
            raise OptimizeError(f"PyTorch cannot export the program {chosen}: {_first_line(error)}") from error


def optimise(
    model: nn.Module,
    example: Any,
    rules: Sequence[Rule],
    *,
    threads: int | None = None,
    search: str | RuleSearch = "backtracking",
    seconds: float = 60.0,
    alpha: float = 1.05,
    backends: Sequence[str] | None = None,
    store: Store | None = None,
    progress: Progress = lambda what, share: None,
    otherwise: str = MODEL,
    tolerance: float | None = None,
) -> Optimized:
    """See `girih.optimize`."""
    backends = installed(BACKENDS) if backends is None else backends
    _check(model, seconds, alpha, backends)
    if otherwise not in OTHERWISE:
        raise OptimizeError(f"no way {otherwise!r} to answer other calls: there are {', '.join(OTHERWISE)}")
    try:
        search = search_of(search, seconds, alpha)
    except ValueError as error:
        raise OptimizeError(str(error)) from error
    if tolerance is not None and (isinstance(tolerance, bool) or not isinstance(tolerance, float | int)):
        raise OptimizeError(f"expected a number for tolerance, got {tolerance!r}")
    if tolerance is not None and not 0 < tolerance < 1:
        raise OptimizeError(f"tolerance is a share of the largest number, such as 0.01, got {tolerance}")
    make = partial(_made, model, rules, threads, search, tuple(backends), store, progress, float(tolerance or 0))
    return Optimized(model, make, example, otherwise)


def _made(
    model: nn.Module,
    rules: Sequence[Rule],
    threads: int | None,
    search: RuleSearch,
    backends: Sequence[str],
    store: Store | None,
    progress: Progress,
    tolerance: float,
    example: Any,
    first: Made | None = None,
) -> Made:
    """The fastest way for one call. first: what was made for a call that differs in sizes alone: what won there is
    built and compared with the model, without another search, where it can be."""
    arguments, named = _called_with(example)
    _check_real(model, arguments, named)
    if isinstance(model, OnnxModule) and len(arguments) == len(model.names):
        model = model.for_inputs(arguments)
    with torch.inference_mode(False), _threads(threads) as count, Apart(count) as apart:  # its tensors count no writes
        original = cache(partial(_original, model, arguments, named, apart.folder))
        captured = capture(Inference(model), dict(named) if named else arguments)
        _check_pure(captured.graph)
        _check_example_is_kept(model, arguments, named)
        state = state_of(Inference(model), captured.graph)
        weights = {item.name: state[item.path] for item in captured.graph.inputs if item.path in state}
        graph, weights = folded(ComputeOnce().apply(captured.graph), weights)
        kinds: dict[str, type[KernelCosts]] = {REWRITTEN: LayoutCosts}
        flat = captured.flatten(dict(named) if named else arguments)
        tensors = [flat[item.name] for item in captured.graph.inputs if item.name in flat]
        if first is not None and (known := _of_other_sizes(first, flat)):
            programs = _Programs(model, captured, known, (arguments, named), count, apart, original)
            if (made := _made_again(first, programs, backends, tolerance, progress)) is not None:
                return made
        if "onnxruntime" in installed(backends) and _survives("onnxruntime", apart, original, tensors):
            kinds[FOR_ONNX] = RuntimeCosts
        share = search.within(search.seconds / len(kinds))
        found: dict[str, _Found] = {}
        for program, kind in kinds.items():
            item = _searched(graph, weights, rules, kind(weights, count, store), share, progress)
            if all(fingerprint(item.graph) != fingerprint(other.graph) for other in found.values()):
                found[program] = item
        programs = _Programs(model, captured, found, (arguments, named), count, apart, original)
        ways, call, turn = programs.ways(backends, tolerance > 0), call_of(arguments, named), turn_of(count)
        candidates, chosen, run = fastest(ways, arguments, named, progress, turn, _check_of(model, call), tolerance)
    best = found.get(_in_full(chosen.program), found[REWRITTEN])
    sizes = len(graph.nodes), len(best.graph.nodes)
    explanation = Explanation(sizes, best.swept, best.found, candidates, chosen, count, isinstance(model, OnnxModule))
    return Made(call, arguments, named, run, best.module, programs.tensors, explanation, found)


def _of_other_sizes(first: Made, flat: Mapping[str, Any]) -> Mapping[str, _Found]:
    """The program that won for the first call, as it is for tensors of other sizes, and as all that there is; nothing
    where that cannot be told."""
    program = _in_full(first.explanation.chosen.program)
    if program == AS_IT_WAS:
        return first.found
    own = first.found[program]
    names = [item.name for item in own.graph.inputs if item.name not in own.weights]
    if not set(names) <= flat.keys():
        return {}
    wanted: dict[str, int] = {}
    open = []
    for name, then in zip(names, first.tensors, strict=True):
        pairs = [(dim, *pair) for dim, pair in enumerate(zip(then.shape, flat[name].shape, strict=True))]
        open.append({dim: f"{old} to {new}" for dim, old, new in pairs if old != new})
        wanted |= {f"{old} to {new}": new for _, old, new in pairs if old != new}
    graph = resized(own.graph, own.weights, names, Sizes(first.tensors, tuple(open), own.module), wanted)
    if graph is None:
        return {}
    other = replace(own, graph=graph, module=module_of(graph, own.weights))
    return {REWRITTEN: other, program: other}


def _made_again(
    first: Made, programs: _Programs, backends: Sequence[str], tolerance: float, progress: Progress
) -> Made | None:
    """What won for the first call, or the model where that is faster; None: what won runs no more, or has other results
    than the model."""
    chosen, (arguments, named) = first.explanation.chosen, programs.example
    wanted = (AS_IT_WAS, "eager"), (chosen.program, chosen.backend)
    ways = (way for way in programs.ways(backends, tolerance > 0) if way[:2] in wanted)
    call, turn = call_of(arguments, named), turn_of(programs.threads)
    check = _check_of(programs.model, call)
    candidates, chosen, run = fastest(ways, arguments, named, progress, turn, check, tolerance, AGAIN_SHARE)
    if any(item.seconds is None for item in candidates):
        return None
    if not chosen.program.endswith(SHORT) and not _alike(run, programs.model, arguments, named):
        return None
    explanation = replace(first.explanation, candidates=candidates, chosen=chosen)
    return Made(call, tuple(arguments), named, run, programs.own.module, programs.tensors, explanation)


def _alike(run: Callable[..., Any], model: nn.Module, arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Has a program the model's results on other numbers, too? A size that stayed a number in it may not show in those
    of one call, such as zeros."""
    try:
        with torch.no_grad():
            for seed in range(PROBES if run is not model else 0):
                batch, more = at_random(arguments, named, seed)
                if not same(tree_leaves(run(*batch, **more)), tree_leaves(model(*batch, **more))):
                    return False
    except Exception:  # of a library, or of the model, whose numbers these are not
        return False
    return True


def _check_of(model: nn.Module, call: Call) -> Callable[..., object]:
    """What `Optimized` asks before it lets another program than the model answer."""
    watch = Watch(Settings(Inference(model)), Weights(model))
    return lambda *called: watch.words.same() and all(ask() for ask in watch.rest) and call.is_quickly(*called)


@dataclass(frozen=True)
class _Found:
    """A rewritten program. module: as PyTorch's calls; ways: the kernels and layouts that were chosen."""

    graph: Graph
    weights: Mapping[str, Any]
    swept: Rewritten
    found: Found
    module: torch.fx.GraphModule
    ways: Mapping[str, KernelWay]

    def fastest(self) -> torch.fx.GraphModule:
        """With these kernels and layouts, whose weights are copies in other orders."""
        return module_of(self.graph, self.weights, ways=self.ways)


def _searched(
    graph: Graph,
    weights: Mapping[str, Any],
    rules: Sequence[Rule],
    costs: KernelCosts,
    search: RuleSearch,
    progress: Progress,
) -> _Found:
    """The whole graph first, then its parts; what is of weights alone is computed."""
    progress("search the whole", 0.0)
    before = cheapest(graph, costs).cost
    swept = Sweep(SWEEP * search.seconds).search(graph, rules, costs)
    whole, weights = folded(ComputeOnce().apply(FlatJoins(whole=True).apply(swept.graph)), weights)
    costs.knows(weights)
    search = search.within((1 - SWEEP) * search.seconds)
    found = replace(rewrite(whole, weights, rules, costs, search, progress), before=before)
    flat = FlatJoins(whole=True).apply(Whole().apply(found.graph))
    better, weights = folded(ComputeOnce().apply(flat), found.weights)
    costs.knows(weights)
    ways = cheapest(better, costs).ways  # of whole operators, too
    return _Found(better, weights, swept, found, module_of(better, weights), ways)


def _check(model: Any, seconds: float, alpha: float, backends: Sequence[str]) -> None:
    if not isinstance(model, nn.Module):
        raise OptimizeError(f"a model is a torch.nn.Module, got {type(model).__name__}")
    if model.training:
        raise OptimizeError("the model is in training mode, in which it computes something else: call model.eval()")
    if isinstance(backends, str) or not isinstance(backends, Sequence):
        raise OptimizeError(f"backends are a sequence of names, as ({str(backends)!r},), got {backends!r}")
    unknown = [item for item in backends if item not in BACKENDS]
    if unknown:
        raise OptimizeError(f"no back end {unknown[0]!r}: there are {', '.join(BACKENDS)}")
    if any(isinstance(item, bool) or not isinstance(item, (int, float)) for item in (seconds, alpha)):
        raise OptimizeError(f"expected numbers for seconds and alpha, got {seconds!r} and {alpha!r}")
    if not seconds >= 0 or not alpha >= 1:
        raise OptimizeError(f"expected seconds of 0 or more and alpha of 1 or more, got {seconds} and {alpha}")


def proved_rules(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """A user's rules, with the shapes for which they are proved.

    Raises:
        OptimizeError: one is no rule, or is not proved.
    """
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        raise OptimizeError(f"rules are a sequence of rules, got {rules!r}")
    if wrong := [rule for rule in rules if not isinstance(rule, Rule)]:
        raise OptimizeError(f"{wrong[0]!r} is no Rule: girih.rewrite.rules.rule.parse(text) makes one of a text")
    known = set(inference()) | set(shipped())
    try:
        return tuple(rule if rule in known else proved([rule])[0] for rule in rules)
    except RuleError as error:
        raise OptimizeError(f"rules: {error}") from error


def _check_real(model: nn.Module, arguments: Any, named: Any) -> None:
    """Candidates are run on the example, and compared."""
    given = [("the example", leaf) for leaf in tree_leaves((arguments, dict(named)))]
    given += [(f"the model's {name!r}", item) for name, item in (*model.named_parameters(), *model.named_buffers())]
    for what, item in given:
        if isinstance(item, torch.Tensor) and not is_real(item):
            raise OptimizeError(
                f"{what} has no numbers ({type(item).__name__} {list(item.shape)} on {item.device}): what is optimised "
                "is run and timed, so give real tensors"
            )


def _check_pure(graph: Graph) -> None:
    """A model is run many times while it is timed, and what is rewritten only gives results."""
    written = [item.path for item in graph.inputs if item.name in {output.replaces for output in graph.outputs}]
    if written:
        raise OptimizeError(
            f"the model writes into its buffer or parameter {written[0]!r} when it is called, which a rewritten "
            "program does not: call model.eval() if a module is in training mode, or return the new value"
        )
    if any(item.role == "seed" for item in graph.inputs):
        raise OptimizeError(
            "the model draws random numbers, so that its results cannot be compared: call model.eval() if a module "
            "of it is in training mode, or make the random tensor an input"
        )


def _check_example_is_kept(model: nn.Module, arguments: Any, named: Any) -> None:
    """Look, on copies since the example is the caller's, that a call leaves its example as it is."""
    arguments, named = tree_map_only(torch.Tensor, torch.clone, (arguments, dict(named)))
    tensors = [leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
    before = [tensor._version for tensor in tensors]
    with torch.no_grad():
        model(*arguments, **named)
    for tensor, version in zip(tensors, before, strict=True):
        if tensor._version != version:
            raise OptimizeError(
                f"the model writes into its input of shape {tuple(tensor.shape)} when it is called, which a rewritten "
                "program does not: let it write into a copy (x = x.clone())"
            )


def _called_with(example: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(example, Mapping):
        return (), example
    return (tuple(example), {}) if isinstance(example, (tuple, list)) else ((example,), {})


@contextmanager
def _threads(count: int | None) -> Iterator[int]:
    """With so many of PyTorch's threads; as many as it has where none is said."""
    before = torch.get_num_threads()
    if count is not None and (not isinstance(count, int) or count < 1):
        raise OptimizeError(f"expected a whole number of threads, 1 or more, got {count!r}")
    torch.set_num_threads(count or before)
    try:
        yield count or before
    finally:
        torch.set_num_threads(before)


class _Programs:
    """The model as it was and as it is rewritten, in the form that each back end takes."""

    def __init__(
        self,
        model: nn.Module,
        captured: Captured,
        found: Mapping[str, _Found],
        example: tuple[Sequence[Any], Mapping[str, Any]],
        threads: int,
        apart: Apart,
        original: Callable[[], tuple[str, Any]],
    ) -> None:
        self.model, self.captured, self.threads, self.example = model, captured, threads, example
        self.apart, self.original = apart, original
        self.found, self.own = found, found[REWRITTEN]
        batch = set(captured.batch_names.values())
        self.names = tuple(item.name for item in self.own.graph.inputs if item.name in batch)
        paths = [path for path, _ in leaves_of(batch_of(*example))]
        path_of = {name: path for path, name in captured.batch_names.items()}
        self.places = [paths.index(path_of[name]) for name in self.names]
        leaves = tree_leaves(batch_of(*example))
        arguments, named = example
        self.leaves = len(leaves)
        self.flat_names = sorted(named) if is_flat(arguments, named, leaves) else None
        self.tensors = tuple(leaves[place] for place in self.places)
        self.look_ups = look_ups(captured.graph)
        self.bare = captured.result_spec.is_leaf() and not captured.constants
        self.in_order = self.flat_names == [] and self.places == [*range(self.leaves)]

    def nested(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A function of these tensors, called as the model is. It keeps nothing of the other programs."""
        captured, places, names, bare, in_order = self.captured, self.places, self.flat_names, self.bare, self.in_order
        if bare and in_order:
            return (lambda tensor: run(tensor)[0]) if self.leaves == 1 else lambda *batch: run(*batch)[0]

        def call(*batch: Any, **named: Any) -> Any:
            leaves = tree_leaves(batch_of(batch, named)) if names is None else batch or [named[n] for n in names]
            results = run(*leaves) if in_order else run(*[leaves[place] for place in places])
            return results[0] if bare else captured.nest(results)

        return call

    def ways(self, backends: Sequence[str], short: bool = False) -> Iterator[Way]:
        """The simplest first. short: in short types, too."""
        yield AS_IT_WAS, "eager", lambda: self.model
        if "eager" in backends:
            yield REWRITTEN, "eager", lambda: self.nested(self.own.module.forward)
        if "onednn" in backends:
            yield REWRITTEN, "onednn", lambda: self.nested(self.own.fastest().forward)
        if "inductor" in backends:
            yield AS_IT_WAS, "inductor", lambda: torch.compile(self.model, options={"freezing": True})
            yield REWRITTEN, "inductor", lambda: self.nested(torch.compile(self.own.module, options={"freezing": True}))
        chosen = [name for name in RUNTIMES if name in backends]
        every: dict[str, Callable[[], tuple[str, Any]]] = {AS_IT_WAS: self.original} | {
            program: cache(partial(self._rewritten, program, found)) for program, found in self.found.items()
        }
        for program, written in every.items() if chosen else ():
            for name in chosen:
                yield program, name, partial(self._runtime, name, written)
        if short:
            yield from self._in_short_types(backends, every)

    def _in_short_types(
        self, backends: Sequence[str], written: Mapping[str, Callable[[], tuple[str, Any]]]
    ) -> Iterator[Way]:
        if "eager" in backends:
            yield AS_IT_WAS + BFLOAT16, "eager", lambda: in_bfloat16(self.model)
            yield REWRITTEN + BFLOAT16, "eager", lambda: self.nested(in_bfloat16(self.own.module))
        if "inductor" in backends:
            compiled = partial(torch.compile, options={"freezing": True})
            yield REWRITTEN + BFLOAT16, "inductor", lambda: self.nested(in_bfloat16(self.own.module, compiled))
        for program, file in written.items():
            if "onnxruntime" in backends:
                yield (
                    program + INT8,
                    "onnxruntime",
                    partial(self._runtime, "onnxruntime", partial(in_int8, file, self.apart.folder)),
                )
            if "openvino" in backends:
                yield program + BFLOAT16, "openvino", partial(self._runtime, "openvino", file, True)

    def _runtime(self, name: str, program: Callable[[], tuple[str, Any]], short: bool = False) -> Callable[..., Any]:
        file, fixed = program()
        _try_apart(self.apart, name, file, fixed, self.tensors, short)
        run = RUNTIMES[name](file, self.threads, fixed, *([short] if short else []))
        checks = [(item, self.names.index(item.input.name)) for item in self.look_ups]

        def checked(*tensors: Any) -> Any:
            for look_up, place in checks:
                check_numbers(look_up, tensors[place])
            return run(*tensors)

        nested = self.nested(checked if checks else run)
        if self.bare and self.in_order and self.leaves == 1 and not checks and self.tensors[0].is_contiguous():
            nested.directly = directly(run)  # type: ignore[attr-defined]
        return nested

    def _rewritten(self, program: str, found: _Found) -> tuple[str, Any]:
        file = self.apart.folder / f"{program.replace(' ', '-')}.onnx"
        save(exported(found.module, self.tensors), file)
        return str(file), {}


def _original(model: nn.Module, arguments: Sequence[Any], named: Mapping[str, Any], folder: Path) -> tuple[str, Any]:
    """The file of the model as it was, and inputs that are fixed: its own file, if it came from one."""
    path, fixed = getattr(model, "path", None), getattr(model, "fixed", None)
    if path is not None and isinstance(fixed, dict):
        return str(path), fixed
    file = folder / "as-it-was.onnx"
    save(exported(model, arguments, named), file)
    return str(file), {}


def _survives(name: str, apart: Apart, original: Callable[[], tuple[str, Any]], tensors: Sequence[Any]) -> bool:
    """May the kernels of a library be measured in this process? Not if it crashed or hung in its own."""
    with suppress(Exception):  # what cannot be written or read is told where the candidates are
        _try_apart(apart, name, *original(), tensors)
    return not apart.is_out(name)


def _try_apart(
    apart: Apart, name: str, file: str, fixed: Mapping[str, Any], tensors: Sequence[Any], short: bool = False
) -> None:
    always = {item: tensor.numpy() for item, tensor in fixed.items()}
    apart.check(name, file, always, [tensor.contiguous().numpy() for tensor in tensors], short)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:200]
