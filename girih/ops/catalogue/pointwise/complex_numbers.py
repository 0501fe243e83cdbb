"""Complex numbers: from two real ones and back. Arithmetic on them is that of the other pages."""

from __future__ import annotations

from girih.ops.language import Opaque, fn
from girih.ops.operator import operator


@operator("aten.view_as_complex", view=True)
def view_as_complex(x):
    return lambda *i: Opaque(x[(*i, slice(None))])[()]


@operator("aten.view_as_real", view=True)
def view_as_real(x):
    return lambda *i: Opaque(x[i[:-1]])[i[-1]]


@operator("aten.complex", elementwise=True)
def from_parts(real, imag):
    return fn("complex")(real, imag)


@operator("aten.polar", elementwise=True)
def polar(abs, angle):
    return fn("polar")(abs, angle)


@operator("aten.real", view=True, elementwise=True)
def real(x):
    return fn("real")(x)


@operator("aten.imag", view=True, elementwise=True)
def imag(x):
    return fn("imag")(x)


@operator("aten.angle", elementwise=True)
def angle(x):
    return fn("angle")(x)


@operator("aten.conj_physical", elementwise=True)
def conjugate(x):
    return fn("conj")(x)
