"""Plan files, broken in every way that we can think of: each is refused by a PlanError of one line, or starts.

    python -m tests.support.fuzz_plans --count 100000 --seed 3

says how many were refused when they were loaded, how many when they were started, and how many started; anything else
is shown with its number, and the exit code is 1. `--only NUMBER` does one again and shows its traceback. `make
test-long` does 2,000.
"""

from __future__ import annotations

import argparse
import collections
import copy
import gzip
import json
import random
import re
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import girih

JSON = Any
NASTY: tuple[JSON, ...] = (
    None, True, False, 0, 1, -1, 2, 7, -2, -3, 10**6, 10**12, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40, 0.5,
    -0.0, 1e-300, 1e300, "", "x", "aten.mm", "inf", "nan", "é\u0000\n", "a" * 5000, [],
    {}, [[]], [[[0]]], [0], [1, 2, 3],
    {"a": 1}, [None], ["x"], {"": {}}, [0] * 3000, 1 << 12, (1 << 12) + 1, 5 << 12, 1 << 59,
)  # fmt: skip
WORDS = (
    "aten.from_file", "aten.mm", "aten.add.Tensor", "aten.sum.dim_IntList", "aten.full", "aten.expand", "aten.reshape",
    "girih.map", "girih.constant", "girih.embedding", "girih.mean", "aten.__class__", "aten._ops", "aten.mm.__call__",
    "os.system", "quantized.add", "aten.randn", "aten.eye", "aten.cat", "aten.native_layer_norm", "float32", "float64",
    "int64", "bool", "complex64", "float33", "qint8", "update", "loss", "result", "parameter", "batch", "scalar", "inf",
    "nan", "None", "True", "[]", "[0, 0]", "[[[[[[0]]]]]]", "(" * 200, "[" * 3000, '"', "%", "%x", "-1", "2**9",
    "1e400",
    "99999999999999999999", "4611686018427387904", "1000000000000", "=", ",", "  # ", "replaces",
)  # fmt: skip
CHUNK = 500  # mutants after which what went wrong is shown
ENTRIES = (
    "S0", "S1", "S7", "S0[7:3]", "S1[1:3]", "S0[1:1000000]", "S0[1:1:1]", "S0[0:1]", "S0@1", "S1[2]@0", "R", "R@0",
    "R@5", "P", "P1", "P@1", "", "x", "S0·S0", f"S0[{10**40}:1]", "R" * 5000,
)  # fmt: skip
CODES = (
    -4,
    -3,
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    -2049,
    (1 << 12) - 1,
    (1 << 12) + 1,
    (2 << 12) - 1,
    (3 << 12),
    (8 << 12),
    1 << 60,
)


def small_plan() -> girih.Plan:
    """A training step with a matrix product, a normalisation, a table and a loss, over four devices."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(8, 4)
            self.norm = torch.nn.LayerNorm(4)
            self.last = torch.nn.Linear(4, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.relu(self.norm(self.table(x))))

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer)
    batch = (torch.randint(0, 8, (8,)), torch.randint(0, 6, (8,)))
    return girih.plan(step, batch, machine="local:4", objective="seconds", compare=("data",))


# ------------------------------------------------------------------------------------------- mutations


def places(item: JSON, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    if place:
        yield place
    pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, part in pairs:
        yield from places(part, (*place, key))


def at(item: JSON, place: tuple[Any, ...]) -> JSON:
    for key in place:
        item = item[key]
    return item


class Mutator:
    """Mutants of one plan file, each made of (seed, number) alone."""

    def __init__(self, text: str, seed: int) -> None:
        self.text = text
        self.data = json.loads(text)
        self.packed = gzip.compress(text.encode(), mtime=0)
        self.seed = seed
        self.ways = list(places(self.data))
        # Layouts and the graph are most of a file: what is said once is tried as often.
        self.first = [place for place in self.ways if place[0] not in ("graph", "layouts", "divisions", "initial")]
        self.kinds: tuple[Callable[[random.Random], bytes], ...] = (
            self.flipped, self.cut, self.packed_flipped, self.packed_cut, self.replaced, self.replaced, self.deleted,
            self.doubled, self.nested, self.swapped, self.number, self.number, self.word, self.lines, self.code,
            self.code, self.several,
        )  # fmt: skip

    def mutant(self, number: int) -> tuple[str, bytes]:
        """(what was done, the file)"""
        chance = random.Random(f"{self.seed}/{number}")
        kind = chance.choice(self.kinds)
        return kind.__name__, kind(chance)

    def written(self, data: JSON, chance: random.Random) -> bytes:
        raw = json.dumps(data, indent=chance.choice((None, 1))).encode()
        return gzip.compress(raw, compresslevel=1, mtime=0) if chance.random() < 0.25 else raw

    def flipped(self, chance: random.Random) -> bytes:
        return _flipped(self.text.encode(), chance)

    def cut(self, chance: random.Random) -> bytes:
        return _cut(self.text.encode(), chance)

    def packed_flipped(self, chance: random.Random) -> bytes:
        return _flipped(self.packed, chance)

    def packed_cut(self, chance: random.Random) -> bytes:
        return _cut(self.packed, chance)

    def place(self, chance: random.Random) -> tuple[Any, ...]:
        return chance.choice(self.first if chance.random() < 0.5 else self.ways)

    def replaced(self, chance: random.Random) -> bytes:
        data = copy.deepcopy(self.data)
        self.replace(data, chance)
        return self.written(data, chance)

    def replace(self, data: JSON, chance: random.Random) -> None:
        *way, last = self.place(chance)
        old = at(data, (*way, last))
        near = [old + 1, old - 1, -old, old * 2] if type(old) is int else []
        at(data, tuple(way))[last] = chance.choice((*near, *NASTY, chance.choice(WORDS)))

    def several(self, chance: random.Random) -> bytes:
        data = copy.deepcopy(self.data)
        for _ in range(chance.randint(2, 4)):
            try:
                self.replace(data, chance)
            except (LookupError, TypeError):  # the place went with what was replaced before
                continue
        return self.written(data, chance)

    def deleted(self, chance: random.Random) -> bytes:
        data = copy.deepcopy(self.data)
        *way, last = self.place(chance)
        del at(data, tuple(way))[last]
        return self.written(data, chance)

    def doubled(self, chance: random.Random) -> bytes:
        """A key twice, in the text."""
        lines = self.text.splitlines()
        number = chance.randrange(len(lines))
        return "\n".join([*lines[: number + 1], *lines[number:]]).encode()

    def nested(self, chance: random.Random) -> bytes:
        depth = chance.choice((2, 50, 500, 2000, 100_000))
        opening, closing = chance.choice((("[", "]"), ('{"a": ', "}")))
        value = chance.choice(("0", '"x"', ""))
        data = copy.deepcopy(self.data)
        *way, last = self.place(chance)
        at(data, tuple(way))[last] = "here it is"
        return json.dumps(data).replace('"here it is"', opening * depth + value + closing * depth).encode()

    def swapped(self, chance: random.Random) -> bytes:
        data = copy.deepcopy(self.data)
        (*one, first), (*two, second) = self.place(chance), self.place(chance)
        try:
            other = copy.deepcopy(at(data, (*two, second)))
            at(data, tuple(two))[second] = copy.deepcopy(at(data, (*one, first)))
            at(data, tuple(one))[first] = other
        except (LookupError, TypeError):  # one was inside the other
            pass
        return self.written(data, chance)

    def number(self, chance: random.Random) -> bytes:
        """A number of the graph's text."""
        return self.in_graph(r"\d+", [0, 1, 2, 3, 5, -1, 10**6, 10**12, 2**62, 10**30], chance)

    def word(self, chance: random.Random) -> bytes:
        return self.in_graph(r"[\w.]+|%[\w.]+|\[[\d, ]*\]", WORDS, chance)

    def in_graph(self, pattern: str, words: Any, chance: random.Random) -> bytes:
        data = copy.deepcopy(self.data)
        line = chance.randrange(len(data["graph"]))
        found = list(re.finditer(pattern, data["graph"][line]))
        if found:
            match = chance.choice(found)
            text = data["graph"][line]
            data["graph"][line] = f"{text[: match.start()]}{chance.choice(words)}{text[match.end() :]}"
        return self.written(data, chance)

    def lines(self, chance: random.Random) -> bytes:
        """Lines of the graph gone, twice, elsewhere."""
        data = copy.deepcopy(self.data)
        graph = data["graph"]
        one, two = chance.randrange(len(graph)), chance.randrange(len(graph))
        do = chance.randrange(4)
        if do == 0:
            del graph[one]
        elif do == 1:
            graph.insert(two, graph[one])
        elif do == 2:
            graph[one], graph[two] = graph[two], graph[one]
        else:
            graph[one] = graph[one].replace("%", chance.choice(("", "%%", "%x")), 1)
        return self.written(data, chance)

    def code(self, chance: random.Random) -> bytes:
        """How a value lies, or how a node is divided."""
        data = copy.deepcopy(self.data)
        key = chance.choice(("layouts", "divisions"))
        keys = list(data[key]) if key == "layouts" else range(len(data[key]))
        which = chance.choice(keys)
        entries: list[Any] = data[key][which].split("·")
        if chance.random() < 0.5:
            entries[chance.randrange(len(entries))] = chance.choice(ENTRIES)
            data[key][which] = "·".join(entries)
        else:  # as files of version 2 have them
            data[key][which] = [chance.choice(CODES) for _ in entries]
        return self.written(data, chance)


def _flipped(raw: bytes, chance: random.Random) -> bytes:
    made = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 4))):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made)


def _cut(raw: bytes, chance: random.Random) -> bytes:
    one, two = sorted((chance.randrange(len(raw) + 1), chance.randrange(len(raw) + 1)))
    return chance.choice((raw[:one], raw[one:], raw[:one] + raw[two:], raw[:two] + raw[one:], raw + raw[one:two]))


# ------------------------------------------------------------------------------------------- trying them


@dataclass
class Result:
    """What became of mutants. wrong: (number, what was done, what happened) of those that broke the promise."""

    ends: collections.Counter = field(default_factory=collections.Counter)
    wrong: list[tuple[int, str, str]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)


def attempt(path: Path, start: bool) -> str:
    """`refused`, `refused at the start` or `started`.

    Raises:
        AssertionError: a refusal that is not one line, or does not name the file.
    """
    try:
        plan = girih.load(path)
    except girih.PlanError as error:
        _check_message(str(error), path)
        return "refused"
    if not start:
        return "loaded"
    try:
        with plan.start(backend="threads"):
            return "started"
    except girih.PlanError as error:
        _check_message(str(error), None)
        return "refused at the start"


def _check_message(message: str, path: Path | None) -> None:
    assert message.strip(), "a refusal without words"
    assert len(message.splitlines()) == 1, f"a refusal of several lines: {message!r}"
    assert len(message) < 2000, f"a refusal of {len(message)} letters: {message[:200]!r}"
    assert path is None or str(path) in message, f"the file is not named: {message!r}"


def fuzz(text: str, numbers: range, seed: int, folder: Path, every: int = 1) -> Result:
    """Try mutants; of those that load one in `every` is started."""
    mutator, result = Mutator(text, seed), Result()
    for number in numbers:
        what, raw = mutator.mutant(number)
        path = folder / "mutant.json"
        path.write_bytes(raw)
        began = time.perf_counter()
        try:
            result.ends[attempt(path, number % every == 0)] += 1
        except Exception as error:
            said = traceback.format_exception_only(error)[-1].strip()
            where = traceback.extract_tb(error.__traceback__)[-1]
            result.wrong.append((number, what, f"{said[:300]} ({Path(where.filename).name}:{where.lineno})"))
        result.slowest = max(result.slowest, (time.perf_counter() - began, number))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_plan().save(folder / "plan.json")
        text = (folder / "plan.json").read_text()
        if options.only is not None:
            what, raw = Mutator(text, options.seed).mutant(options.only)
            (folder / "mutant.json").write_bytes(raw)
            print(what)
            try:
                girih.load(folder / "mutant.json").start(backend="threads").close()
            except girih.PlanError as error:
                print(error)
            return 0
        result = Result()
        for start in range(0, options.count, CHUNK):
            part = fuzz(text, range(start, min(start + CHUNK, options.count)), options.seed, folder)
            for number, what, said in part.wrong:
                print(f"--only {number}  {what}: {said}", flush=True)
            result.ends += part.ends
            result.wrong += part.wrong
            result.slowest = max(result.slowest, part.slowest)
    for end, count in result.ends.most_common():
        print(f"{count:>7} {end}")
    print(f"{len(result.wrong):>7} something else")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"slowest {result.slowest[0]:.2f} s (--only {result.slowest[1]}); peak memory {peak:.2f} GB")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
