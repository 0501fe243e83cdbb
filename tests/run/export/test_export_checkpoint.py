"""Training goes from girih to FSDP2 and back by torch.distributed.checkpoint, optimizer's state included, and is as if
it had never moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsdp_program
import torch
from exported import forked_ranks
from torch import nn

import girih
from girih.run.training.dcp import export_dcp, import_dcp


def test_girih_then_fsdp_then_girih(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(2)
    batches = [(torch.randn(8, 8, generator=draw), torch.randn(8, 4, generator=draw)) for _ in range(6)]
    module, loss = fsdp_program.model(), nn.functional.mse_loss
    step = girih.TrainingStep(module, loss=loss, optimizer=torch.optim.AdamW(module.parameters(), lr=0.01))
    plan = girih.plan(step, batches[0], machine="local:2", objective="bytes", compare=())
    with plan.start(backend="threads") as run:
        losses = [run.step(*batch) for batch in batches[:2]]
        run.save(tmp_path / "first")
    export_dcp(tmp_path / "first", tmp_path / "to_pytorch")
    torch.save(batches[2:4], tmp_path / "batches.pt")
    script = Path(shutil.copy(fsdp_program.__file__, tmp_path))
    forked_ranks(script, 2, *(str(tmp_path / name) for name in ("to_pytorch", "of_pytorch", "batches.pt")))
    _, others = import_dcp(tmp_path / "of_pytorch", tmp_path / "second", step=4)
    assert not others
    with plan.start(backend="threads", resume=tmp_path / "second") as run:
        assert run.steps == 4
        losses += [run.step(*batch) for batch in batches[4:]]
        state = run.state_dict()
    alone = fsdp_program.model()
    optimizer, expected = torch.optim.AdamW(alone.parameters(), lr=0.01), []
    for x, y in batches:
        optimizer.zero_grad()
        made = loss(alone(x), y)
        made.backward()
        optimizer.step()
        expected.append(made.item())
    torch.testing.assert_close(losses, [*expected[:2], *expected[4:]], rtol=1e-6, atol=0)
    for key, tensor in alone.state_dict().items():
        torch.testing.assert_close(state[key], tensor, rtol=1e-5, atol=1e-6)
