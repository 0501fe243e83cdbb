"""What lies in girih's caches and was not written by the user, or is damaged, is neither loaded nor run: it is made
again."""

import base64
import gzip
import json
import os
import pickle
import stat
import subprocess
import sys
import tempfile
from pathlib import Path


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def broken(why):
    print(why, file=sys.stderr)
    sys.exit(1)


with tempfile.TemporaryDirectory() as name:
    environment = {**os.environ, "XDG_CACHE_HOME": name}
    folder = Path(name) / "girih"

    def girih(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "girih", *arguments], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            broken(f"girih {' '.join(arguments)}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return done

    plan = ("plan", "mlp-tiny", "--no-compare", "-o", f"{name}/plan.json")
    girih(*plan)
    (kept,) = (folder / "captured").iterdir()
    for part in (folder, kept.parent):
        if stat.S_IMODE(part.stat().st_mode) != 0o700:
            broken(f"{part.name} has mode {part.stat().st_mode & 0o777:o}")
    data = json.loads(gzip.decompress(kept.read_bytes()))
    bomb = f"f|{base64.b85encode(pickle.dumps(Bomb(f'{name}/ran'))).decode()}"
    call = f'  %hostile: float32[64] = girih.map(tensors=[%p.0.bias], function={json.dumps(bomb)}, kind="float32")  # forward'
    data["graph"].insert(-1, call)
    kept.write_bytes(gzip.compress(json.dumps(data).encode()))
    girih(*plan)
    girih("run", f"{name}/plan.json", "--steps", "1", "--backend", "threads")
    if Path(name, "ran").exists():
        broken("a pickle in the cache of captured models was run")
    if "girih.map" in Path(name, "plan.json").read_text():
        broken("a captured graph that no plan file may hold was planned")

    arena = "from girih.run.arena.arena import library; library()"

    def load():
        return subprocess.run([sys.executable, "-c", arena], env=environment, capture_output=True, text=True)

    first = load()
    if first.returncode == 0:  # else there is no compiler here
        (built,) = (folder / "arena").glob("*.so")
        content = built.read_bytes()
        for damaged in (b"", content[: len(content) // 2]):
            built.write_bytes(damaged)
            if (done := load()).returncode or not any(
                file.read_bytes() == content for file in (folder / "arena").glob("*.so")
            ):
                broken(f"a library of {len(damaged)} bytes was not built again: {done.stderr.strip()[-200:]}")
    folder.chmod(0o777)
    if "girih goes on without its cache" not in girih(*plan).stderr:
        broken("a folder that others may write to is used without a word")
