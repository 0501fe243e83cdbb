"""Where one subscript lies in one dimension of an array."""

from __future__ import annotations

from girih.loop.capture.values import ANYWHERE, Cut, Index, Interval, Scalar, Subscript, Value


def entry(part: Value | Subscript, size: int) -> tuple[Subscript, bool, bool]:
    """(where it lies in a dimension of this size, the dimension stays, it is an array of indices)."""
    if isinstance(part, Subscript):
        return part, False, False
    if isinstance(part, Index):
        return Subscript(part.dim, part.offset, part.offset + 1), False, False
    if isinstance(part, Interval):
        if part.constant is not None and -size <= part.low < 0:
            return Subscript(None, part.low + size, part.low + size + 1), False, False
        return (Subscript(None, part.low, part.high) if part.low >= 0 else ANYWHERE), False, False
    if isinstance(part, Cut):
        return slice_of(part, size), True, False
    return ANYWHERE, False, not isinstance(part, Scalar)


def slice_of(part: Cut, size: int) -> Subscript:
    """Where a slice lies."""
    start: Value = Interval(0, 1) if part.start is None else part.start
    stop: Value = Interval(size, size + 1) if part.stop is None else part.stop
    if isinstance(start, Interval) and isinstance(stop, Interval) and not part.step:
        low, high = start.low, stop.high - 1
        low, high = (low + size if low < 0 else low), (high + size if high < 0 else high)
        if start.constant is not None and stop.constant is not None and low >= 0:
            return ANYWHERE if (low, min(high, size)) == (0, size) else Subscript(None, low, max(min(high, size), low))
    if not (isinstance(start, Index) and isinstance(stop, Index) and start.dim == stop.dim) or part.step:
        return ANYWHERE
    if stop.offset > start.offset >= 0:  # below 0 a slice counts from the end
        return Subscript(start.dim, start.offset, stop.offset)
    return ANYWHERE


def is_whole(part: Value | Subscript, size: int) -> bool:
    """Is it a slice of everything?"""
    if not isinstance(part, Cut) or part.step:
        return False
    first = part.start is None or part.start == Interval(0, 1)
    return first and (part.stop is None or (isinstance(part.stop, Interval) and part.stop.low >= size))
