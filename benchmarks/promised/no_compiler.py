"""Without a C compiler on PATH everything still works: what needs one is left out, and says so."""

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import torch, girih
if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(part for _ in range(3) for part in (torch.nn.Linear(32, 32), torch.nn.Tanh())))
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    batch = torch.randn(64, 32), torch.randn(64, 32)
    free = girih.plan(step, batch, machine="local:1", compare=())
    plan = girih.plan(step, batch, machine="local:1", memory=free.peak * 7 // 10, compare=())
    with plan.start(backend="processes") as run:
        print(float(run.step(*batch)))
    with girih.cluster(workers=2, backend="threads", small=0):
        import girih.array as gnp
        assert float((gnp.arange(10.0) * 2).sum()) == 90
    fast = girih.optimize(model.eval(), batch[0], seconds=4)
    assert torch.allclose(fast(batch[0]), model(batch[0]), atol=1e-4)
    from girih.run.arena.arena import library, ArenaError
    try:
        library()
    except ArenaError as error:
        assert "cannot be run" in str(error), error
    else:
        raise SystemExit("a compiler was found")
"""

with tempfile.TemporaryDirectory() as name:
    file = os.path.join(name, "program.py")
    with open(file, "w") as opened:
        opened.write(PROGRAM)
    environment = {key: value for key, value in os.environ.items() if key not in ("CC", "CXX")}
    environment |= {"PATH": name, "XDG_CACHE_HOME": name, "TORCHINDUCTOR_CACHE_DIR": name}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True)
    if done.returncode:
        print((done.stderr.strip().splitlines() or ["no message"])[-1], file=sys.stderr)
        sys.exit(1)
