"""The rule behind `girih.ops.safe_operators`, on PyTorch's own schemas. It is written by
`python -m tests.support.safe_operators`.

An operator of `torch.ops.aten` is harmless if it is a function: it makes tensors of tensors and numbers, writes to none
of its arguments, and takes no text but a few that choose one of several formulas. It must also check its arguments:
what PyTorch keeps for its own use (names that begin with an underscore), or does for one library, is left out unless a
model is known to call it (`INSIDE`), and so is what makes tensors over memory that it does not look at (`UNCHECKED`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

# Texts that choose a formula: of an operator, an argument.
FORMULAS = frozenset(
    {"approximate", "driver", "indexing", "interpolation", "mode", "norm", "ord", "p", "pad_mode", "padding",
     "padding_side", "reduce", "rounding_mode", "side", "UPLO", "equation"}
)  # fmt: skip
TYPES = frozenset({"Tensor", "number", "int", "bool", "float", "Generator", "Device"})
LIBRARIES = re.compile(r"mkldnn|miopen|cudnn|fbgemm|vulkan|quantize|qscheme|sparse|nested|_mps|xnnpack|dlpack|q_per")
# These write to what their schemas do not say, too: a batch norm to the running mean.
UNCHECKED = re.compile(
    r"(set|resize|resize_as|unsafe_\w+|pin_memory|rename|refine_names|align_\w+|record_stream|from_file|quantized_\w+|"
    r"\w+_cell|(rnn|lstm|gru)\w*|coalesce|crow_indices\w*|ccol_indices\w*|col_indices\w*|row_indices\w*|"
    r"indices|indices_copy|values|values_copy|to_padded_tensor|fake_quantize\w*|choose_qparams\w*|int_repr|"
    r"(native_)?batch_norm\w*|instance_norm|mps_\w+|\w+_overrideable|slow_conv\w*|sspaddmm|hspmm|smm)"
)
INSIDE = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _cdist_backward _cdist_forward _conj _conj_physical _fft_c2c _fft_c2r _fft_r2c _grouped_mm _linalg_det
    _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd _log_softmax _log_softmax_backward_data
    _native_batch_norm_legit_functional _neg_view _pdist_backward _pdist_forward _prelu_kernel
    _prelu_kernel_backward _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _softmax _softmax_backward_data _stack _to_copy _trilinear
    _unsafe_view _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
    _upsample_nearest_exact3d_backward _weight_norm _weight_norm_interface _weight_norm_interface_backward
    _fused_rms_norm _fused_rms_norm_backward _safe_softmax _assert_tensor_metadata _unique2 _euclidean_dist
    """.split()  # noqa: SIM905
)

TARGET = Path(__file__).parents[2] / "girih" / "ops" / "safe_operators.py"
HEAD = '''"""Names of the ATen operators that a plan file may call beside the described ones: pure functions, every one.

Written by `python -m tests.support.safe_operators`, whose rule says which these are; a test holds the names against the
schemas of the installed PyTorch. Names that a version does not have do no harm. Without `aten.`, an overload behind a
dot where it is not `default`.
"""

from __future__ import annotations

SAFE_ATEN = frozenset(
    """
'''
TAIL = '''
    """.split()  # noqa: SIM905 - a thousand names in quotes are no easier to read
)
'''


def why_not(operator: Any) -> str:
    """Why an operator of `torch.ops.aten` may not stand in a plan file; "" for one that may."""
    schema = operator._schema
    base = schema.name.partition("::")[2]
    if base.startswith("_") and base not in INSIDE:
        return "it is PyTorch's own"
    if LIBRARIES.search(base) or UNCHECKED.fullmatch(base):
        return "it is for one library, or looks at memory unchecked"
    for item in schema.arguments:
        if item.name == "unsafe":
            return "it can be told not to check its arguments"
        if item.is_out or (item.alias_info is not None and item.alias_info.is_write):
            return f"it writes to {item.name}"
        kinds = set(re.findall(r"\w+", str(item.type))) - {"Optional", "List"}
        if kinds == {"str"}:
            if item.name not in FORMULAS:
                return f"it takes the text {item.name}"
        elif not kinds <= TYPES or str(item.type) in ("Device", "Generator"):
            return f"it takes {item.name}, which is {item.type}"
    made = [str(item.type) for item in schema.returns]
    if not made or not all(kind in ("Tensor", "List[Tensor]") for kind in made):
        return f"it returns {made}, which are not tensors"
    return ""


def every_operator() -> Iterator[tuple[str, Any]]:
    """(name without `aten.`, the overload), sorted."""
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = qualified.partition("::")
        if space != "aten":
            continue
        name, _, overload = rest.partition(".")
        yield rest, getattr(getattr(torch.ops.aten, name), overload or "default")


def write() -> None:
    lines, line = [], "   "
    for name in (name for name, operator in every_operator() if not why_not(operator)):
        if len(line) + 1 + len(name) > 120:
            lines.append(line)
            line = "   "
        line += f" {name}"
    TARGET.write_text(HEAD + "\n".join([*lines, line]) + TAIL, encoding="utf-8")


if __name__ == "__main__":
    write()
