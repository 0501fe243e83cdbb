"""The loops of `girih.inference.winograd`, compiled; imported when they are first called: Numba is slow to load.

In F(4×4, 3×3) six numbers of the data make four of the result. Both transformations go through the columns of a tile,
then its rows; innermost are the channels, which lie together, so that they are computed in vectors.
"""

from __future__ import annotations

import numpy as np
from numpy import float32

from girih.layout.jit import numba


@numba.njit(nogil=True, cache=True, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy", inline="always")
def six(a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, b4, b5, channels):  # type: ignore[no-untyped-def]
    """b = Bᵀa of six numbers, for each channel."""
    for k in range(channels):
        two, four = a4[k] - a2[k], a4[k] - float32(4) * a2[k]
        odd, twice = a3[k] - float32(4) * a1[k], float32(2) * (a3[k] - a1[k])
        b0[k] = float32(4) * a0[k] - float32(5) * a2[k] + a4[k]
        b1[k] = four + odd
        b2[k] = four - odd
        b3[k] = two + twice
        b4[k] = two - twice
        b5[k] = float32(4) * a1[k] - float32(5) * a3[k] + a5[k]


@numba.njit(nogil=True, cache=True, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy")
def enter(data: np.ndarray, out: np.ndarray, top: int, left: int, first: int, last: int, across: int) -> None:
    """Tiles of rows of tiles from `first` to `last`, which are counted through the batch. data: [batch, h, w,
    channels]; out: [tiles, 36, channels]; top, left: padding; across: tiles in a row."""
    _, height, width, channels = data.shape
    down = (height + 2 * top - 2 + 3) // 4
    tile = np.zeros((6, 6, channels), np.float32)
    half = np.empty((6, 6, channels), np.float32)
    for row in range(first, last):
        image, y = data[row // down], row % down * 4 - top
        for column in range(across):
            x, place = column * 4 - left, (row - first) * across + column
            inside = y >= 0 and x >= 0 and y + 6 <= height and x + 6 <= width
            if not inside:
                for i in range(6):
                    for j in range(6):
                        if 0 <= y + i < height and 0 <= x + j < width:
                            tile[i, j] = image[y + i, x + j]
                        else:
                            tile[i, j] = float32(0)
            for j in range(6):
                if inside:
                    z = x + j
                    six(image[y, z], image[y + 1, z], image[y + 2, z], image[y + 3, z], image[y + 4, z],
                        image[y + 5, z], half[0, j], half[1, j], half[2, j], half[3, j], half[4, j], half[5, j],
                        channels)  # fmt: skip
                else:
                    six(tile[0, j], tile[1, j], tile[2, j], tile[3, j], tile[4, j], tile[5, j], half[0, j], half[1, j],
                        half[2, j], half[3, j], half[4, j], half[5, j], channels)  # fmt: skip
            for i in range(6):
                n = 6 * i
                six(half[i, 0], half[i, 1], half[i, 2], half[i, 3], half[i, 4], half[i, 5], out[place, n],
                    out[place, n + 1], out[place, n + 2], out[place, n + 3], out[place, n + 4], out[place, n + 5],
                    channels)  # fmt: skip


@numba.njit(nogil=True, cache=True, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy", inline="always")
def four(a0, a1, a2, a3, a4, a5, b0, b1, b2, b3, add, low, channels):  # type: ignore[no-untyped-def]
    """b = max(low, Aᵀa + add) of six numbers, for each channel."""
    for k in range(channels):
        p, q, r, s = a1[k] + a2[k], a1[k] - a2[k], a3[k] + a4[k], a3[k] - a4[k]
        y0, y1 = a0[k] + p + r + add[k], q + float32(2) * s + add[k]
        y2, y3 = p + float32(4) * r + add[k], q + float32(8) * s + a5[k] + add[k]
        b0[k] = low if y0 < low else y0  # what is no number stays so
        b1[k] = low if y1 < low else y1
        b2[k] = low if y2 < low else y2
        b3[k] = low if y3 < low else y3


@numba.njit(nogil=True, cache=True, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy")
def leave(
    products: np.ndarray, out: np.ndarray, bias: np.ndarray, relu: bool, first: int, last: int, across: int
) -> None:
    """Back from the products of tiles. products: [tiles, 36, channels]; out: [batch, h, w, channels]."""
    _, height, width, channels = out.shape
    down = (height + 3) // 4
    half = np.empty((4, 6, channels), np.float32)
    tile = np.empty((4, 4, channels), np.float32)
    nothing = np.zeros(channels, np.float32)
    least, low = float32(-np.inf), float32(0) if relu else float32(-np.inf)
    for row in range(first, last):
        image, y = out[row // down], row % down * 4
        for column in range(across):
            x, place = column * 4, (row - first) * across + column
            for j in range(6):
                four(products[place, j], products[place, 6 + j], products[place, 12 + j], products[place, 18 + j],
                     products[place, 24 + j], products[place, 30 + j], half[0, j], half[1, j], half[2, j], half[3, j],
                     nothing, least, channels)  # fmt: skip
            whole = y + 4 <= height and x + 4 <= width
            for i in range(4):
                if whole:
                    z = y + i
                    four(half[i, 0], half[i, 1], half[i, 2], half[i, 3], half[i, 4], half[i, 5], image[z, x],
                         image[z, x + 1], image[z, x + 2], image[z, x + 3], bias, low, channels)  # fmt: skip
                else:
                    four(half[i, 0], half[i, 1], half[i, 2], half[i, 3], half[i, 4], half[i, 5], tile[i, 0],
                         tile[i, 1], tile[i, 2], tile[i, 3], bias, low, channels)  # fmt: skip
            if not whole:
                for i in range(min(4, height - y)):
                    for j in range(min(4, width - x)):
                        image[y + i, x + j] = tile[i, j]
