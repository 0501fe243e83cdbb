"""The target TorchScript: its interpreter takes less time between kernels than Python's, and lets other threads run.

It knows PyTorch's own operators and the kernels of `girih.kernels.scripted`; loops with others, and loops that read
files, stay in Python.
"""

from __future__ import annotations

import threading
from functools import lru_cache

import torch

from girih.graph.graph import ITEM_BYTES
from girih.kernels.exact import EXACT_KERNELS
from girih.kernels.own import LONG_ROW, PLACE_KERNELS
from girih.kernels.products import SCRIPT_NAMES, is_long
from girih.kernels.scripted import SCRIPT, SCRIPTED_KERNELS
from girih.program.fusion.slicing import at_block
from girih.run.loops.form import Argument, Free, KernelLine, LoopForm, Read
from girih.run.loops.python import Run, calls_of, function_text, lines

HEAD = (
    "def run(first: int, last: int, rows: int, outside: List[Tensor], results: List[Tensor], buffers: List[Tensor],"
    " totals: List[Optional[Tensor]]) -> List[Optional[Tensor]]:"
)
_compiling = threading.Lock()


@lru_cache(maxsize=512)
def compiled(text: str, thread: int) -> Run | None:
    """The function of a text; None if it cannot be compiled. thread: that calls it; two in one function slow each
    other down."""
    Tensor = torch.Tensor  # noqa: F841 - TorchScript looks for the names of types here, where it is called
    with _compiling:
        try:
            return torch.jit.CompilationUnit(text).run  # type: ignore[no-any-return]
        except RuntimeError:
            return None


def script_text(form: LoopForm) -> str | None:
    """The form as TorchScript; None where it calls a function that TorchScript does not know."""
    calls = calls_of(form)
    if not all(map(_is_known, calls)) or any(isinstance(statement, Read) for statement in form.body):
        return None
    kinds = form.kinds()
    block = form.span[0], form.span[0] + form.rows

    def row(call: KernelLine) -> tuple[int, int]:
        """How many numbers a row of the first operand has, and bytes."""
        shape, dtype = kinds[call.arguments[0].register]
        length = at_block(call.arguments[0].shape(shape), *block)[-1]
        return length, length * ITEM_BYTES[dtype]

    def kernel(call: KernelLine) -> str:
        if call.operator in SCRIPT_NAMES and is_long(at_block(call.shape, *block), row(call)[0]):
            return SCRIPT_NAMES[call.operator]
        space, name, *_ = call.operator.split(".")
        short = call.operator not in PLACE_KERNELS or row(call)[1] < LONG_ROW
        return name if call.operator in SCRIPTED_KERNELS and short else f"torch.ops.{space}.{name}"

    # Nothing is freed: TorchScript lets a name go behind its last use.
    body = [line for item in form.body if not isinstance(item, Free) for line in lines(item, kernel, _constant)]
    own = any(call.operator in SCRIPTED_KERNELS for call in calls)
    return (f"{SCRIPT}\n" if own else "") + function_text(form, HEAD, body)


def _is_known(call: KernelLine) -> bool:
    return call.operator.startswith("aten.") or call.operator in EXACT_KERNELS or call.operator in SCRIPTED_KERNELS


def _constant(item: Argument) -> str:
    return f'float("{item}")' if isinstance(item, float) else repr(item)
