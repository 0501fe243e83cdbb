"""NumPy's comparisons, logic and bits, element by element."""

from __future__ import annotations

import numpy as np

from girih.array.universal import mapped

# ------------------------------------------------------------------------------------------- comparison and logic


equal = mapped(np.equal, "aten.eq.Tensor")
not_equal = mapped(np.not_equal, "aten.ne.Tensor")
less = mapped(np.less, "aten.lt.Tensor")
less_equal = mapped(np.less_equal, "aten.le.Tensor")
greater = mapped(np.greater, "aten.gt.Tensor")
greater_equal = mapped(np.greater_equal, "aten.ge.Tensor")
logical_and = mapped(np.logical_and, "aten.logical_and")
logical_or = mapped(np.logical_or, "aten.logical_or")
logical_xor = mapped(np.logical_xor, "aten.logical_xor")
logical_not = mapped(np.logical_not, "aten.logical_not")
isnan = mapped(np.isnan, "aten.isnan")
isinf = mapped(np.isinf, "aten.isinf")
isfinite = mapped(np.isfinite, "aten.isfinite")
# ------------------------------------------------------------------------------------------- bits


bitwise_and = mapped(np.bitwise_and, "aten.bitwise_and.Tensor")
bitwise_or = mapped(np.bitwise_or, "aten.bitwise_or.Tensor")
bitwise_xor = mapped(np.bitwise_xor, "aten.bitwise_xor.Tensor")
invert = bitwise_not = bitwise_invert = mapped(np.invert, "aten.bitwise_not")


left_shift = bitwise_left_shift = mapped(np.left_shift, "aten.bitwise_left_shift.Tensor")
right_shift = bitwise_right_shift = mapped(np.right_shift, "aten.bitwise_right_shift.Tensor")
