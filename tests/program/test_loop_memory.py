"""Which element-wise kernels make a result of their own, as loops over blocks find out (`girih.run.loops.build`)."""

from __future__ import annotations

import itertools

import pytest
import torch

from girih.ops.catalogue import catalogue
from girih.program.fusion.block_memory import WITHOUT_OUT, makes_result

SAMPLES = (torch.ones(1), torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool), 1.0, 1)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_takes_no_out_is_known() -> None:
    names = {item.name for item in catalogue().values() if item.elementwise and not item.view}
    names = {name.split(".")[1] for name in names if name.startswith("aten.") and name != "aten._to_copy"}
    assert names & WITHOUT_OUT == {name for name in names if not takes_out(name)}
    assert names >= WITHOUT_OUT
    assert makes_result("girih.normalise")
    assert not makes_result("girih.exp")
    assert makes_result("aten.relu")
    assert not makes_result("aten.add.Tensor")


def takes_out(name: str) -> bool:
    function = getattr(torch, name, None)
    if function is None:
        return False
    for count in range(1, 4):
        for arguments in itertools.product(SAMPLES, repeat=count):
            for dtype in (torch.float32, torch.bool, torch.int64):
                try:
                    function(*arguments, out=torch.zeros(1, dtype=dtype))
                except (TypeError, RuntimeError):
                    continue
                return True
    return False
