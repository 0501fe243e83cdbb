"""Complex numbers: from two real ones and back. Arithmetic on them is that of the other pages."""

from __future__ import annotations

from girih.ops.catalogue.pointwise.arithmetic import pointwise, unary
from girih.ops.language import Opaque, fn
from girih.ops.operator import operator

real = unary("real", "aten.real", view=True)
imag = unary("imag", "aten.imag", view=True)
angle = unary("angle", "aten.angle")
conjugate = unary("conj", "aten.conj_physical")


@operator("aten.view_as_complex", view=True)
def view_as_complex(x):
    return lambda *i: Opaque(x[(*i, slice(None))])[()]


@operator("aten.view_as_real", view=True)
def view_as_real(x):
    return lambda *i: Opaque(x[i[:-1]])[i[-1]]


from_parts = pointwise("aten.complex")(lambda real, imag: fn("complex")(real, imag))
polar = pointwise("aten.polar")(lambda abs, angle: fn("polar")(abs, angle))
