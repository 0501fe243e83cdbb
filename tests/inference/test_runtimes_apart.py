"""A library that crashes, hangs or exits does so in a process of its own; it is out, and named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from failing_libraries import aborts, exits, hangs, raises, segfaults, zeros
from torch import nn

import girih
from girih.inference.runtimes import apart
from girih.inference.runtimes.libraries import LIBRARIES

pytest.importorskip("onnxscript")


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (segfaults, "crashed (SIGSEGV) in a process of its own"),
        (aborts, "crashed (SIGABRT) in a process of its own"),
        (exits, "ended the program (exit code 0) in a process of its own"),
        (hangs, "gave no answer in 2 s in a process of its own"),
        (raises, "ValueError: no such operator"),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_a_library_that_fails_is_out_and_named(library: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library is hangs:
        monkeypatch.setattr(apart, "LIMIT", 2.0)
    monkeypatch.setitem(LIBRARIES, "openvino", library)
    model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    fast = girih.optimize(model, x, threads=1, seconds=0.1, backends=("eager", "openvino"))
    torch.testing.assert_close(fast(x), model(x).detach())
    told = {item.why for item in fast.explain().candidates if item.backend == "openvino"}
    assert told == {f"does not run: {why}"}
    assert f"openvino    does not run: {why}" in str(fast.explain())


def test_others_are_tried_after_a_crash_and_onnx_runtime_s_kernels_are_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(LIBRARIES, "onnxruntime", segfaults)
    monkeypatch.setitem(LIBRARIES, "openvino", zeros)
    x = torch.randn(2, 4)
    fast = girih.optimize(nn.ReLU().eval(), x, threads=1, seconds=0.1, backends=("onnxruntime", "openvino"))
    whys = {item.backend: item.why for item in fast.explain().candidates if item.why}
    assert whys["onnxruntime"].startswith("does not run: crashed (SIGSEGV)")
    assert whys["openvino"] == "refused: its results are others"  # it ran, in a process of its own and here
    assert "rewritten for ONNX Runtime" not in {item.program for item in fast.explain().candidates}


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARIES, "openvino", zeros)
    with apart.Apart(1) as place:
        place.check("openvino", "none.onnx", {}, [torch.zeros(2).numpy()])
        process, folder = place._started(), place.folder
        assert folder.is_dir()
    assert process.poll() is not None
    assert not folder.exists()
