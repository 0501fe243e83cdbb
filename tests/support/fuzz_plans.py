"""Plan files, broken in every way that we can think of: each is refused by a PlanError of one line, or starts.

    python -m tests.support.fuzz_plans --count 100000 --seed 3

says how many were refused when they were loaded, how many when they were started, and how many started; anything else
is shown with its number, and the exit code is 1. `--only NUMBER` does one again and shows its traceback. `--plan KIND`
breaks a plan of another kind (`PLANS`), or `all`, one after the other. `--compiled` runs all loops as Numba compiles
them; with NUMBA_BOUNDSCHECK=1 in the environment, and a NUMBA_CACHE_DIR of its own, each index out of bounds is an
IndexError there, which is none of the ends that are right. `--files FOLDER` keeps the plans there, or takes those that
it finds. The suite does 200, and 20 of each of the other kinds; `make test-long` does ten times as many.
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
from functools import cache
from pathlib import Path
from typing import Any

import torch

import girih
from girih.layout import compiled

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
POSITIONS = (-(2**63), -(2**31), -1000, -2, -1, 0, 1, 2, 3, 10, 63, 64, 65, 200, 4096, 10**6, 2**30, 2**31 - 1, 2**31,
             2**62, 2**63, 1.5, float("nan"), float("inf"), True, False, "0", None)  # fmt: skip
HELD = ("residency", "residencies", "sequence", "pieces", "schedule", "memory", "room", "rewrites", "micro_batches")
"""Keys that say what is computed when, and what is in memory then: by numbers of steps and of storages."""
LONG = 26_000
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


def _perceptron(depth: int, rows: int, micro_batches: int = 1) -> tuple[girih.TrainingStep, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layers = [part for _ in range(depth) for part in (torch.nn.Linear(8, 8), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = girih.TrainingStep(
        model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer, micro_batches=micro_batches
    )
    return step, (torch.randn(rows, 8), torch.randint(0, 4, (rows,)))


def _limited(share: float, step: girih.TrainingStep, batch: tuple[torch.Tensor, ...], **how: Any) -> girih.Plan:
    """In so much of the memory that it needs without a limit."""
    how = {"machine": "local:1", "compare": ()} | how
    free = girih.plan(step, batch, **{key: value for key, value in how.items() if key != "hold"})
    return girih.plan(step, batch, memory=int(free.peak * share), **how)


def moved_plan() -> girih.Plan:
    """A step whose tensors are moved out and back, in another order."""
    return _limited(0.6, *_perceptron(3, 16), hold="swap")


def computed_again_plan() -> girih.Plan:
    return _limited(0.85, *_perceptron(6, 64), hold="recompute")


def plan_in_pieces() -> girih.Plan:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=torch.nn.functional.cross_entropy, optimizer=optimizer)
    return _limited(0.5, step, (torch.randn(64, 8), torch.randint(0, 256, (64,))))


def pipeline_plan() -> girih.Plan:
    """Two stages, each with movements of its own."""
    step, batch = _perceptron(3, 32, micro_batches=4)
    return _limited(0.8, step, batch, machine="local:2", search="pipeline-1f1b", objective="seconds", hold="swap")


def rewritten_plan() -> girih.Plan:
    """The same layer on two inputs: the gradients of its weights are two products, whose sum is one."""

    class Siamese(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 4)

        def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.layer(one)) * torch.relu(self.layer(other)))

    torch.manual_seed(0)
    model = Siamese()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, step=lambda net, batch: (net(*batch) ** 2).mean(), optimizer=optimizer)
    batch = (torch.randn(2, 64), torch.randn(2, 64))
    return girih.plan(step, batch, machine="local:2", compare=(), rewrite=True)


def array_plan() -> girih.Plan:
    """Of an array program: products, sorting, sums."""
    import girih.array as gnp
    from girih.array.session.explain import explain

    with girih.cluster(workers=2, backend="threads", small=0):
        x, y = gnp.arange(48.0).reshape(6, 8), gnp.arange(48.0).reshape(8, 6)
        made = (x @ y).sum(axis=0) + gnp.sort(x[:, :6], axis=0).max(axis=0)
        return girih.Plan.of(explain(made).plan)


PLANS: dict[str, Callable[[], girih.Plan]] = {
    "training": small_plan,
    "moved": moved_plan,
    "computed again": computed_again_plan,
    "in pieces": plan_in_pieces,
    "pipeline": pipeline_plan,
    "rewritten": rewritten_plan,
    "arrays": array_plan,
}


@cache
def plan_of(kind: str) -> girih.Plan:
    """A plan of this kind; whoever asks again in this process is given the same."""
    return PLANS[kind]()


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
        self.held = [place for place in self.ways if place[0] in HELD]
        self.lists = [place for place in self.held if isinstance(at(self.data, place), list)]
        if self.lists:  # a plan that is held within a limit: half of what is done to it is done there
            self.kinds += 6 * (self.position,) + 3 * (self.grown, self.shuffled) + 2 * (self.renamed,)

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

    def position(self, chance: random.Random) -> bytes:
        """The number of a step or of a storage, or several."""
        data = copy.deepcopy(self.data)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            *way, last = chance.choice(self.held)
            holder = at(data, tuple(way))
            if isinstance(holder[last], (int, float)):
                near = (holder[last] + 1, holder[last] - 1, not holder[last])
                holder[last] = chance.choice((*near, *near, *POSITIONS))
        return self.written(data, chance)

    def grown(self, chance: random.Random) -> bytes:
        """A list with copies of one of its items, and one of them changed: so much that loops are worth compiling."""
        data = copy.deepcopy(self.data)
        items = at(data, chance.choice(self.lists))
        if items:
            one = chance.choice(items)
            items += [copy.deepcopy(one) for _ in range(chance.choice((1, 2, 100, LONG)))]
            last = items[-1]
            if isinstance(last, list) and last and chance.random() < 0.7:
                last[chance.randrange(len(last))] = chance.choice(POSITIONS)
        return self.written(data, chance)

    def shuffled(self, chance: random.Random) -> bytes:
        """A list without an item, without its end, or in another order."""
        data = copy.deepcopy(self.data)
        items = at(data, chance.choice(self.lists))
        do = chance.randrange(5)
        if do == 0 and items:
            del items[chance.randrange(len(items))]
        elif do == 1:
            del items[chance.randrange(len(items) + 1) :]
        elif do == 2:
            items.reverse()
        elif do == 3 and len(items) > 1:
            one, two = chance.sample(range(len(items)), 2)
            items[one], items[two] = items[two], items[one]
        else:
            chance.shuffle(items)
        return self.written(data, chance)

    def renamed(self, chance: random.Random) -> bytes:
        """A key under the name of another."""
        data = copy.deepcopy(self.data)
        held = chance.choice([key for key in data if key in HELD])
        other = chance.choice([*HELD, "stays", "home", "overlap", "held"])
        data[other] = data.pop(held) if chance.random() < 0.5 else copy.deepcopy(data[held])
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
    assert not re.search(r"is damaged: \w+Error\b", message), (
        f"an error of Python's in the place of a reason: {message!r}"
    )


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
    parser.add_argument("--plan", choices=[*PLANS, "all"], default="training")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--files", type=Path)
    options = parser.parse_args()
    if options.compiled:
        compiled._Budget.left = float("-inf")
    kinds = list(PLANS) if options.plan == "all" else [options.plan]
    return max(_tried(kind, options) for kind in kinds)


def _tried(kind: str, options: argparse.Namespace) -> int:
    """Mutants of one kind of plan; the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = (options.files or folder) / f"{kind}.json"
        if not file.exists():
            plan_of(kind).save(file)
        text = file.read_text()
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
    print(f"of a plan: {kind}")
    for end, count in result.ends.most_common():
        print(f"{count:>7} {end}")
    print(f"{len(result.wrong):>7} something else")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"slowest {result.slowest[0]:.2f} s (--only {result.slowest[1]}); peak memory {peak:.2f} GB")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
