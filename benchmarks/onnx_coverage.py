"""Every model of ONNX's own test data: the file's graph, run by PyTorch, gives the outputs that come with it.

What: all cases of `onnx.backend.test` of opset 13 to today's, those of the wheel's `data` of any opset, and its light
models. How: file → module → Graph → outputs, compared within the case's own tolerances (relative 1e-3, absolute 1e-7
where it says none), but at least what rounding in another order changes (`SPACINGS`). A case that is refused must say
in one line what is not supported. Floor: none wrong, and at least so many per cent right.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row

RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
QUICK = 15
SPACINGS = 2
"""Of the output's floats, by which results may differ in any case: sums are rounded in another order, here and in what
is expected. So is one spacing of the largest number, where a sum is near zero."""


@dataclass(frozen=True)
class Case:
    """kind: of ONNX's own names. model: its ModelProto. data: pairs of inputs and expected outputs, NumPy arrays or
    what else there is."""

    kind: str
    name: str
    model: Any
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


def cases() -> Iterator[Case]:
    """All of them. Those that ONNX makes by a program first."""
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            versions = {item.domain: item.version for item in case.model.opset_import}
            if versions.get("", 13) >= 13:
                data = [
                    ([_array(x) for x in inputs], [_array(x) for x in outputs]) for inputs, outputs in case.data_sets
                ]
                yield Case("node", case.name, case.model, data, case.rtol, case.atol)
    yield from loaded_cases(("simple", "pytorch-converted", "pytorch-operator"))
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for file in sorted(folder.glob("*.onnx")):
        model = onnx.load(file)
        expected = numpy_helper.to_array(onnx.load_tensor(folder / f"{file.stem}_output_0.pb"))
        yield Case("light", file.stem, model, [([], [expected])], 1e-3, 1e-4)


def loaded_cases(kinds: Sequence[str]) -> Iterator[Case]:
    """Those that lie as files in the wheel."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    for kind in kinds:
        for case in load_model_tests(kind=kind):
            folder = Path(case.model_dir)
            model = onnx.load(folder / "model.onnx")
            data = []
            for place in sorted(folder.glob("test_data_set_*")):
                pair: list[list[Any]] = []
                for side, infos in (("input", model.graph.input), ("output", model.graph.output)):
                    files = sorted(place.glob(f"{side}_*.pb"), key=lambda file: int(file.stem.split("_")[1]))
                    pair.append([_loaded(file, info) for file, info in zip(files, infos, strict=False)])
                data.append((pair[0], pair[1]))
            yield Case(kind, case.name, model, data, case.rtol, case.atol)


def _array(item: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _loaded(file: Path, info: Any) -> Any:
    """A tensor's numbers; of a sequence, and of what else there is, its file."""
    import onnx
    from onnx import numpy_helper

    return numpy_helper.to_array(onnx.load_tensor(file)) if info.type.WhichOneof("value") == "tensor_type" else file


def verdict(case: Case, folder: Path) -> tuple[str, str]:
    """One of RIGHT, REFUSED, WRONG, and why."""
    from girih.capture import CaptureError

    try:
        for inputs, expected in case.data:
            why = _differs(case, inputs, expected, folder)
            if why:
                return WRONG, why
    except CaptureError as error:
        said = str(error)
        return (REFUSED, said) if "\n" not in said else (WRONG, f"several lines: {said}")
    except Exception as error:
        return WRONG, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return RIGHT, ""


def _differs(case: Case, inputs: list[Any], expected: list[Any], folder: Path) -> str:
    """ "" where the graph of the file gives the expected outputs."""
    import numpy as np
    import torch

    from girih.capture import Inference, capture
    from girih.capture.torch.state import state_of
    from girih.inference.onnx.file import read_file
    from girih.inference.onnx.tensors import dtype_of, from_numpy, to_numpy
    from girih.inference.onnx.translate import translated
    from girih.kernels.evaluate import interpret

    path = folder / "model.onnx"
    path.write_bytes(case.model.SerializeToString())
    file = read_file(path)
    wanted = [item for item in case.model.graph.input if item.name not in file.weights]
    example = {}
    for item, array in zip(wanted, inputs if case.kind != "light" else [_light(item) for item in wanted], strict=False):
        kind = item.type.WhichOneof("value")
        dtype = dtype_of(item.type.tensor_type.elem_type) if kind == "tensor_type" else None
        example[item.name] = array if dtype is None else from_numpy(np.asarray(array), dtype)
    module = translated(file, example)
    batch = tuple(module.example.values())
    captured = capture(Inference(module), batch)
    state = state_of(Inference(module), captured.graph)
    given = {item.name: state[item.path] for item in captured.graph.inputs if item.path in state}
    results = interpret(captured.graph, given | captured.flatten(batch))
    leaves = [results[item.name] for item in captured.graph.outputs]
    if len(leaves) != len(expected):
        return f"{len(leaves)} outputs, expected {len(expected)}"
    for number, (result, array) in enumerate(zip(leaves, expected, strict=True)):
        if case.kind == "light" and not np.asarray(array).size:
            continue
        ours, theirs = to_numpy(result.contiguous()), np.asarray(array)
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"output {number}: {ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}"
        wide = np.complex128 if np.iscomplexobj(theirs) else np.float64
        eps = float(torch.finfo(result.dtype).eps) if result.is_floating_point() else 0.0
        rtol = max(case.rtol, SPACINGS * eps)
        atol = (
            max(case.atol, eps * float(np.nanmax(np.abs(theirs[np.isfinite(theirs)]), initial=0.0)))
            if eps
            else case.atol
        )
        try:
            np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=rtol, atol=atol)
        except AssertionError:
            worst = np.nanmax(np.abs(ours.astype(wide) - theirs.astype(wide)))
            return f"output {number} differs by up to {worst:.3g}"
    return ""


def _light(item: Any) -> Any:
    """The input of a light model, as ONNX's own runner makes it."""
    import numpy as np

    shape = [part.dim_value for part in item.type.tensor_type.shape.dim]
    size = int(np.prod(shape))
    return (np.arange(size).reshape(shape) / size).astype(np.float32)


def measure(options: argparse.Namespace) -> Report:
    import torch

    torch.set_num_threads(1)
    rows: list[Row] = []
    source = loaded_cases(("simple", "pytorch-converted", "pytorch-operator")) if options.quick else cases()
    every = [case for case in source if not options.only or any(part in case.name for part in options.only)]
    if options.quick:
        every = every[:: max(1, len(every) // QUICK)]
    counts: dict[str, Counter[str]] = {}
    refusals: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in every:
            word, why = verdict(case, Path(place))
            counts.setdefault(case.kind, Counter())[word] += 1
            if word == REFUSED:
                refusals[why.removeprefix(f"{Path(place) / 'model.onnx'}: ")] += 1
            if word == WRONG:
                wrong.append(f"{case.name}: {why}")
            if options.verbose and word != RIGHT:
                print(f"  {word} {case.name}: {why}", file=sys.stderr)
    for kind, count in counts.items():
        total = sum(count.values())
        rows.append(
            {"data": kind, "models": total, RIGHT: count[RIGHT], REFUSED: count[REFUSED], WRONG: count[WRONG],
             "right %": round(100 * count[RIGHT] / total, 1)}
        )  # fmt: skip
    total, right = (sum(row[key] for row in rows) for key in ("models", RIGHT))
    share = 100 * right / max(total, 1)
    misses = [f"wrong: {item}" for item in wrong]
    if share < options.floor and not options.quick and not options.only:
        misses.append(f"{share:.1f} % right, floor {options.floor:g} %")
    reasons = tuple(
        {"refused": why, "models": count} for why, count in refusals.most_common(None if options.verbose else 25)
    )
    parts = (Report("Refused, by name", (("models", "models"), ("why", "refused")), reasons, ""),) if reasons else ()
    return Report(
        "Models of ONNX's test data",
        tuple((key, key) for key in rows[0]) if rows else (),
        tuple(rows),
        f"{right} of {total} models right ({share:.1f} %), {sum(refusals.values())} refused, {len(wrong)} wrong",
        tuple(misses),
        parts=parts,
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", help="cases whose names contain one of these")
    parser.add_argument("--verbose", action="store_true", help="say each case that is not right, on the error stream")


BENCHMARK = Benchmark("onnx_coverage", __doc__ or "", measure, 80.0, "least per cent right", add_options)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
