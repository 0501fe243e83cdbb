"""What capture says of a program that it cannot record: the user's line, the operator with its shapes, what to do."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from girih.capture.errors import CaptureError
from girih.capture.source import find_asker, lines_of_error, source_of_error
from girih.capture.torch.record import FailedCall, is_own

# What PyTorch says when NumPy, or C++, wants the memory of a fake tensor.
_READS = (".numpy() is not supported", "Cannot access data pointer", "can't convert")

# What to do instead, by a part of the operator's name, or of a line that the error came through.
_SHAPES = {
    "self_loops(": "give a layer that has it add_self_loops=False, and edges that have their self loops already "
    "(torch_geometric.transforms.AddRemainingSelfLoops); or close over edges that are the same in every step",
    "_pack_padded_sequence": "give the recurrent layer the padded sequences, and mask what follows their ends",
    "bincount": "count by torch.zeros(n).index_add(0, index, torch.ones(len(index))), or in __init__",
}
_SHAPE = (
    "keep shapes fixed: torch.where, multiplication by a mask, labels of -100 that the loss ignores, or topk with a "
    "fixed number. What is the same in every step may be a plain tensor, neither a buffer nor of the batch: its values "
    "are known"
)
_VALUES = {
    "dim_size = int(": "say how many graphs a batch has, as in global_mean_pool(x, batch, size)",
    "num_batches_tracked": "give the batch norm a number as momentum",
}
_VALUE = (
    "a graph has no values yet: use torch.where instead of `if`, keep `.item()` and printing out of the step, and "
    "compute numbers that set shapes from Python numbers"
)

_CALLS = {
    "_nested_tensor_from_mask": "nn.TransformerEncoder leaves padded places out so: make it with "
    "enable_nested_tensor=False, or set its use_nested_tensor to False, which computes the same in all others",
}


def refusal(error: Exception, failure: FailedCall | None) -> CaptureError:
    """The error to raise for one that came out of the program, or out of recording it.

    failure: the call at which it was raised, if it was one.
    """
    if isinstance(error, CaptureError):
        return error
    place = _place(error, failure)
    operator = str(getattr(error, "func", error)).removesuffix(".default")
    if isinstance(error, DynamicOutputShapeException):
        mend = next((mend for name, mend in _SHAPES.items() if name in operator + lines_of_error(error)), _SHAPE)
        return CaptureError(f"{place} makes a tensor whose shape depends on the data ({operator}); {mend}")
    reads = isinstance(error, (RuntimeError, TypeError)) and any(text in str(error) for text in _READS)
    if isinstance(error, DataDependentOutputException) or reads:
        mend = next((mend for name, mend in _VALUES.items() if name in lines_of_error(error)), _VALUE)
        return CaptureError(f"{place} needs a tensor's value while the program is captured ({operator}); {mend}")
    message = f"{type(error).__name__}: {_first_lines(error)}"
    if failure is not None and is_own(error):
        return CaptureError(f"{place} cannot be captured: girih failed at {_call(failure)} with {message}")
    if "backward through the graph a second time" in message:
        return CaptureError("the step calls backward itself: it should only compute the loss, and return it")
    if failure is not None:
        mend = next((mend for name, mend in _CALLS.items() if name in str(failure.operator)), "")
        return CaptureError(f"{place} fails at {_call(failure)}: {mend or _first_lines(error)}")
    return CaptureError(f"{place} raises {message}")


def translation_error(error: Exception, source: str, operator: str, arguments: Any) -> CaptureError:
    """For a call that was recorded, and that a rule could not put into girih's vocabulary."""
    what = f"{operator}({_describe(arguments)})"
    return CaptureError(
        f"{source or find_asker() or 'somewhere'}: {what} cannot be put into a graph: "
        f"{type(error).__name__}: {_first_lines(error)}"
    )


def _place(error: Exception, failure: FailedCall | None) -> str:
    """``file:line: `text` `` of the user, and the module; in the backward pass the forward line, without its text."""
    source, text = source_of_error(error)
    scope = failure.note.scope if failure is not None else ""
    if failure is not None and failure.note.source and (not source or failure.note.phase == "backward"):
        source, text = failure.note.source, ""
    phase = f"the {failure.note.phase} pass of " if failure is not None and failure.note.phase != "forward" else ""
    shown = f"{phase}`{text}`" if text else f"{phase}the program"
    where = f" (module {scope!r})" if scope else ""
    return f"{source}: {shown}{where}" if source else f"{shown}{where}"


def _first_lines(error: Exception) -> str:
    """The message without PyTorch's stack of C++ frames."""
    text = str(error).partition("Exception raised from")[0].partition("While executing")[0]
    return " ".join(text.split()) or "no message"


def _call(failure: FailedCall | None) -> str:
    return "an unknown call" if failure is None else f"{failure.operator}({_describe(failure.arguments)})"


def _describe(arguments: Any) -> str:
    return ", ".join(_shown(item) for item in arguments)


def _shown(item: Any) -> str:
    """A tensor by dtype and shape, numbers as they are."""
    if isinstance(item, torch.Tensor) or (hasattr(item, "shape") and hasattr(item, "dtype")):
        return f"{str(item.dtype).removeprefix('torch.')}{list(item.shape)}"
    if isinstance(item, (list, tuple)):
        return f"[{_describe(item)}]"
    return str(item)
