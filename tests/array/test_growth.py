"""What a growing graph holds, and for how long."""

from __future__ import annotations

import gc

import numpy as np

import girih.array as gnp
from girih.capture.expressions import _known


def test_what_is_made_on_the_way_is_let_go_at_once(two):
    """Not when the garbage collector comes: until then its tiles would lie with the workers."""
    gc.collect()
    gc.disable()
    try:
        x = gnp.array(np.arange(12.0).reshape(4, 3))
        before = len(_known)
        y = ((x + 1) * x).sum(0)
        np.testing.assert_allclose(y.compute(), [144, 188, 240])
        assert len(_known) == before + 1  # y itself
    finally:
        gc.enable()
