"""What users call: a model that is made faster where it is, and models that others have written to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from girih.plans.plan import Observe

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from girih.capture.torch.exported import ExportedModule
    from girih.inference.kept import Kept
    from girih.inference.onnx.module import OnnxModule
    from girih.inference.optimized import Optimized
    from girih.rewrite.backtracking import RuleSearch
    from girih.rewrite.rules.rule import Rule


def optimize(
    model: Any,
    example: Any = None,
    *,
    threads: int | None = None,
    search: str | RuleSearch = "backtracking",
    seconds: float = 60.0,
    alpha: float = 1.05,
    rules: Sequence[Rule] | None = None,
    backends: Sequence[str] | None = None,
    store: str | Path | None = None,
    progress: Observe | None = None,
    otherwise: str = "model",
    tolerance: float | None = None,
    trust: bool = False,
) -> Optimized:
    """The model with its operators rewritten so that it is faster here: a module with the same results.

        fast = girih.optimize(model.eval(), x, threads=1)
        y = fast(x)
        print(fast.explain())

    model: a module, an ONNX file (`read_onnx` says for which shapes), or PyTorch's exported program, also as a `.pt2`
    file, which is read with `trust` only (`read_exported`). example: what the model is called with: a tensor, a tuple,
    or a mapping by name; files and exported programs bring their own. otherwise: what is made is for calls like the
    example and for the weights of now, and this is what answers another call (other shapes, dtypes, structure, or
    values that are no tensors), and every call after weights were changed: `model`, the model as it is then, right at
    once and no faster; `again`, what is optimised again at that call (eight are kept), as long as the first time, but
    for other sizes alone, which take what won over; `refuse`, an OptimizeError. Writes through `.data` or NumPy are
    seen by samples of the weights. threads: while kernels and candidates are measured, PyTorch's as many as it has if
    none is said. search: `backtracking` or `saturation`, or one of `girih.rewrite.backtracking.Backtracking` and
    `girih.rewrite.saturation.Saturation` with its options, or one's own (docs/add-a-search.md); all choose rewrites,
    kernels and layouts together, and say how far from the best of what they searched they are at most. seconds: for the
    search, where it is given by name; compiling and measuring come on top. alpha: graphs that cost so many times what
    the cheapest does are looked at too (TASO §2.7). rules: by default those of `girih.rewrite.rules`; others are proved
    first, or refused. backends: what it may run on, of `eager`, `onednn`, `inductor`, `onnxruntime` and `openvino`; by
    default all that are installed. The model as it was, in eager PyTorch, is always among what is timed, so that
    nothing gets slower than it was. store: the file in which measured kernels are kept. tolerance: by which share of
    the largest number results may be off, as 0.02; then programs whose products are in int8 (ONNX Runtime's dynamic
    quantisation), and programs in bfloat16, are tried too, on the example and on numbers at random. By default nothing
    is computed in shorter types than the model's.

    Raises:
        CaptureError: for what cannot be captured, naming the line of the program, or of an ONNX file.
        OptimizeError: for a model in training mode, or options that mean nothing.
    """
    from torch.export import ExportedProgram

    from girih.cost.store import Store
    from girih.inference.optimized import OptimizeError, optimise, proved_rules
    from girih.rewrite.rules.further import inference
    from girih.rewrite.rules.shipped import shipped

    if isinstance(model, ExportedProgram) or (isinstance(model, (str, Path)) and Path(model).suffix == ".pt2"):
        model = read_exported(model, trust=trust)
        example = model.example if example is None else example
    if isinstance(model, (str, Path)):
        named = isinstance(example, dict)
        inputs = example if named or example is None else example if isinstance(example, (tuple, list)) else (example,)
        model = read_onnx(model, inputs)
        example = model.example if named else tuple(model.example.values())
    elif example is None:
        raise OptimizeError("expected an example of what the model is called with")
    return optimise(
        model,
        example,
        (*inference(), *shipped()) if rules is None else proved_rules(rules),
        threads=threads,
        search=search,
        seconds=seconds,
        alpha=alpha,
        backends=backends,
        store=None if store is None else Store(store),
        progress=progress or (lambda what, share: None),
        otherwise=otherwise,
        tolerance=tolerance,
    )


def read_onnx(
    path: str | Path, example: Any = None, *, sizes: Mapping[str, int] | None = None, otherwise: str = "again"
) -> OnnxModule:
    """The model of an ONNX file as a PyTorch module, for inputs of one shape. Needs the extra `onnx`.

    example: inputs, a sequence or a mapping by name. They give the shapes that the file leaves open, and the values of
    inputs on which shapes depend, which are then fixed. sizes: of dimensions that have names in the file, where there
    is no example. The module takes the inputs in the file's order, or by name. otherwise: inputs of other shapes, where
    the file leaves them open, have it read `again` (eight shapes are kept), or are refused (`refuse`).

    Raises:
        CaptureError: the file is damaged, reads what is not its own, or has an operator that is not supported.
    """
    try:
        from girih.inference.onnx.translate import read
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        from girih.capture.errors import CaptureError

        raise CaptureError("reading ONNX files needs the package onnx: pip install 'girih[onnx]'") from error
    return read(path, example, sizes, otherwise)


def load_optimized(path: str | Path) -> Kept:
    """The model of a file that `fast.save("x.girih")` wrote, to call as the model was, within a second: nothing is
    searched, timed or compiled by us. It is for calls of the form for which it was optimised, and refuses others.

    The file is data, checked before it is used: nothing in it is unpickled, and the program has ONNX's operators alone.

    Raises:
        KeptError: there is no such file, it is another or damaged, or needs a library that is not installed.
    """
    from girih.inference.kept import read

    return read(path)


def read_exported(program: ExportedProgram | str | Path, *, trust: bool = False) -> ExportedModule:
    """PyTorch's exported program as a module for `girih.plan`, `girih.infer` and `girih.optimize`.

    program: what `torch.export.export` returns, or a `.pt2` file, as `fast.save` and `torch.export.save` write them.
    trust: you answer for whoever wrote the file: PyTorch unpickles and evaluates parts of it, so that reading it may
    run what its writer put there. The module's `example` is what it was exported with.

    Raises:
        CaptureError: the file is damaged, has operators that are not registered here, or needs your trust.
    """
    from girih.capture.torch.exported import read_exported as read

    return read(program, trust=trust)
