"""LDA: tokens per CPU second at K = 100 and 1,000 against tomotopy, two workers, and held-out likelihood against time.

A corpus of 5 million tokens (20,000 documents, 20,000 words, few of them frequent, drawn from 200 topics; `--quick`:
0.2 million). Each sampler of girih.loop.apps.lda sweeps over it, as does tomotopy's collapsed Gibbs with one worker,
runs alternating: medians of CPU seconds after some sweeps. Two workers are compared with one on the wall.

Then each trains until it reaches the best that tomotopy reached, at most for as long as tomotopy took, and is judged
by document completion: topics of a twentieth of the documents, kept back, are folded in by half their tokens, and the
other half's mean log likelihood counts; all by the same code, from their probabilities of words. `time to quality` is
the CPU seconds of training (one worker, judging not counted) until the best that tomotopy reaches.

Last, a million topics and a vocabulary of 100,000: a corpus in files (40 million tokens; `--quick`: 1 million), which
LightLDA's sampler streams by double buffering, in a process of its own, whose peak of resident memory is the kernel's
figure (VmHWM), mapped files included.

Floors: `--floor` times tomotopy's tokens per CPU second at each K by the sampler that `auto` chooses; the time to
quality less than tomotopy's; two workers 1.8 times one (these two not under --quick); a million topics within 4 GB,
every token counted, the likelihood rising.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.common import Benchmark, Report, Row, clock, median, note, repeats_option, since

ALPHA, BETA = 0.1, 0.01
TOPICS = (100, 1000)
TWO = 1.8
MANY, VOCABULARY, TOKENS = 1_000_000, 100_000, 40_000_000
BLOCKS, LIMIT = 256 << 20, 4e9


def corpus(documents: int, words: int, topics: int = 200, mean: int = 250) -> scipy.sparse.csr_matrix:
    """Counts of words in documents: Zipf's frequencies, which each topic raises or lowers at random."""
    draw = np.random.default_rng(0)
    base = 1 / np.arange(3, words + 3) ** 0.9
    lengths = draw.poisson(mean, documents).clip(10)
    document = np.repeat(np.arange(documents), lengths)
    mixtures = draw.gamma(0.05, 1, (documents, topics)) + 1e-12
    cumulated = (mixtures / mixtures.sum(axis=1, keepdims=True)).cumsum(axis=1) + np.arange(documents)[:, None]
    topic = np.searchsorted(cumulated.ravel(), document + draw.random(len(document)) * 0.999999) % topics
    word = np.empty(len(document), np.int32)
    for k in range(topics):
        chances = base * draw.gamma(0.15, 1, words)
        mine = np.flatnonzero(topic == k)
        word[mine] = draw.choice(words, len(mine), p=chances / chances.sum())
    ones = np.ones(len(document), np.int32)
    return scipy.sparse.coo_matrix((ones, (document, word)), shape=(documents, words)).tocsr()


def halves(matrix: scipy.sparse.csr_matrix) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    first = matrix.copy()
    first.data = np.random.default_rng(1).binomial(matrix.data, 0.5).astype(matrix.data.dtype)
    second = matrix - first
    first.eliminate_zeros()
    second.eliminate_zeros()
    return first, second


class Peer:
    """tomotopy's model of the same documents, words by their numbers."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, topics: int) -> None:
        with warnings.catch_warnings(action="ignore"):  # of its own types, on import
            import tomotopy

        self.tomotopy, self.shape = tomotopy, matrix.shape
        self.model = tomotopy.LDAModel(k=topics, alpha=ALPHA, eta=BETA, seed=1)
        self.model.optim_interval = 0
        for row in range(matrix.shape[0]):
            a, b = matrix.indptr[row], matrix.indptr[row + 1]
            self.model.add_doc([str(word) for word in np.repeat(matrix.indices[a:b], matrix.data[a:b])])
        self.model.train(0, workers=1)

    def sweeps(self, count: int) -> None:
        self.model.train(count, workers=1, parallel=self.tomotopy.ParallelScheme.NONE)

    def chances(self) -> np.ndarray:
        """[words, topics] probabilities of words, as this corpus numbers them."""
        found = np.full((self.shape[1], self.model.k), 1e-9, np.float32)
        order = np.array([int(word) for word in self.model.used_vocabs])
        found[order] = np.array([self.model.get_topic_word_dist(k) for k in range(self.model.k)]).T
        return found


class Ours:
    def __init__(self, matrix: scipy.sparse.csr_matrix, topics: int, sampler: str, workers: int = 1) -> None:
        from girih.loop.apps.lda import read_corpus
        from girih.loop.apps.lda.estimator import started
        from girih.loop.apps.lda.schedule import Model
        from girih.loop.apps.team import Team

        self.model = Model(topics, ALPHA, BETA, 0, workers, 4 << 30)
        self.state = started(read_corpus(matrix), self.model, sampler)
        self.team = Team(workers)
        self.number = 0

    def sweeps(self, count: int) -> None:
        for _ in range(count):
            self.state.sweep(self.number, self.team.all)
            self.number += 1

    def chances(self) -> np.ndarray:
        table = self.state.word_topic().toarray() + np.float32(BETA)
        return np.asarray(table / table.sum(axis=0), np.float32)


def judged(chances: np.ndarray, given: scipy.sparse.csr_matrix, wanted: scipy.sparse.csr_matrix) -> float:
    """The mean log likelihood of the wanted tokens, topics found by the given ones."""
    from girih.loop.apps.lda.inference import folded_in, log_chances

    shares = np.empty((given.shape[0], chances.shape[1]), np.float32)
    folded_in(given.indptr, given.indices, given.data.astype(np.float32), chances, ALPHA, 30, 1e-3, shares)
    data = wanted.data.astype(np.float32)
    return float(log_chances(wanted.indptr, wanted.indices, data, chances, shares) / data.sum())


def measure(options: argparse.Namespace) -> Report:
    from girih.loop.apps.lda import read_corpus
    from girih.loop.apps.lda.estimator import SWEEPS, trials
    from girih.loop.apps.lda.schedule import Model

    whole = corpus(1000, 2000, 20, 220) if options.quick else corpus(20_000, 20_000)
    kept = whole.shape[0] // 20
    given, wanted = halves(whole[:kept])
    matrix = whole[kept:].tocsr()
    tokens = int(matrix.data.sum())
    warm, sweeps = (2, 2) if options.quick else (5, 3)
    rows: list[Row] = []
    curves: list[Row] = []
    misses: list[str] = []
    for topics in (100,) if options.quick else options.topics:
        costs = trials(read_corpus(matrix), Model(topics, ALPHA, BETA, 0, 1, 4 << 30))
        chosen = min(costs, key=lambda name: costs[name] * SWEEPS[name])
        engines: dict[str, Any] = {name: Ours(matrix, topics, name) for name in costs}
        engines["tomotopy"] = Peer(matrix, topics)
        engines["two"] = Ours(matrix, topics, chosen, 2)
        for name, engine in engines.items():
            engine.sweeps(2 if topics > 100 and name in ("tomotopy", "gibbs") else warm)
        taken: dict[str, list[Any]] = {name: [] for name in engines}
        for _ in range(1 if options.quick else options.repeats):
            for name, engine in engines.items():
                count = 1 if topics > 100 and name in ("tomotopy", "gibbs") else sweeps
                began = clock()
                engine.sweeps(count)
                used = since(began)
                taken[name].append(type(used)(used.cpu / count, used.wall / count))
        middle = {name: median(found) for name, found in taken.items()}
        speeds = {name: tokens / found.cpu / 1e6 for name, found in middle.items()}
        two = middle[chosen].wall / middle["two"].wall
        row: Row = {
            "topics": topics, **{name: round(speeds[name], 1) for name in (*costs, "tomotopy")}, "chosen": chosen,
            "ratio": round(speeds[chosen] / speeds["tomotopy"], 2), "two": round(two, 2),
        }  # fmt: skip
        note(row)
        rows.append(row)
        engines["two"].team.close()
        del engines
        found = quality(matrix, topics, tuple(costs), given, wanted, options.quick)
        curves.extend(found)
        ahead = next(item["ahead"] for item in found if item["sampler"] == chosen)
        if row["ratio"] < options.floor:
            misses.append(f"K = {topics}: {row['ratio']} × tomotopy")
        if two < TWO and not options.quick:
            misses.append(f"K = {topics}: two workers {two:.2f} × one")
        if (ahead or 0) < 1 and not options.quick:
            misses.append(f"K = {topics}: {chosen} reaches tomotopy's likelihood at {ahead or 'no'} × its speed")
    columns = (("K", "topics"), *((name, name) for name in ("gibbs", "light", "warp", "tomotopy")), ("auto", "chosen"),
               ("auto / tomotopy", "ratio"), ("2 workers ×", "two"))  # fmt: skip
    large = many_topics(1_000_000 if options.quick else TOKENS)
    note(large)
    if large["peak_gb"] * 1e9 > LIMIT or large["counted"] != large["tokens"] or large["after"] <= large["before"]:
        misses.append(f"a million topics: {large}")
    part = Report(
        "held-out log likelihood for each token, against CPU seconds of training",
        (("K", "topics"), ("sampler", "sampler"), ("sweeps", "sweeps"), ("CPU s", "seconds"), ("best", "reached"),
         ("s to tomotopy's", "until"), ("tomotopy's time over it", "ahead")),
        tuple(curves), "",
    )  # fmt: skip
    streamed = Report(
        f"{MANY:,} topics, a vocabulary of {VOCABULARY:,}, streamed from files in blocks, two workers",
        (("tokens", "tokens"), ("blocks", "blocks"), ("sweeps", "sweeps"), ("CPU / wall s of a sweep", "seconds"),
         ("GB at the peak", "peak_gb"), ("log p per token before", "before"), ("after", "after")),
        (large,), "",
    )  # fmt: skip
    summary = f"{min(row['ratio'] for row in rows)} × tomotopy's tokens per CPU second by the sampler chosen"
    title = f"millions of tokens per CPU second, one worker; {tokens:,} tokens, {matrix.shape[0]:,} documents"
    return Report(title, columns, tuple(rows), summary, tuple(misses), parts=(part, streamed))


def quality(
    matrix: scipy.sparse.csr_matrix, topics: int, samplers: tuple[str, ...], given: Any, wanted: Any, quick: bool
) -> list[Row]:
    """One row for tomotopy, and one for each sampler, which trains for as many seconds as tomotopy did at most."""

    def curve(engine: Any, step: int, stop: Callable[[float, int, float], bool]) -> list[tuple[float, float, int]]:
        spent, sweeps, found = 0.0, 0, []
        reached = -np.inf
        while not stop(spent, sweeps, reached):
            began = clock()
            engine.sweeps(step)
            spent += since(began).cpu
            sweeps += step
            reached = judged(engine.chances(), given, wanted)
            found.append((spent, reached, sweeps))
        return found

    def done(spent: float, sweeps: int, reached: float) -> bool:
        return reached >= goal or spent >= peer[-1][0] or sweeps >= 200

    most = 10 if quick else 60 if topics == 100 else 24
    peer = curve(Peer(matrix, topics), most // 6 or 1, lambda _, sweeps, __: sweeps >= most)
    goal = max(reached for _, reached, _ in peer)
    limit = next(spent for spent, reached, _ in peer if reached == goal)
    rows = [_row(topics, "tomotopy", peer, goal, limit)]
    note(rows[0])
    for sampler in samplers:
        step = {"gibbs": 2, "light": 3, "warp": 5}[sampler]
        found = curve(Ours(matrix, topics, sampler), step, done)
        rows.append(_row(topics, sampler, found, goal, limit))
        note(rows[-1])
    return rows


def _row(topics: int, name: str, curve: list[tuple[float, float, int]], goal: float, limit: float) -> Row:
    until = next((spent for spent, reached, _ in curve if reached >= goal), None)
    best = max(curve, key=lambda point: point[1])
    return {
        "topics": topics, "sampler": name, "sweeps": best[2], "seconds": round(best[0], 2),
        "reached": round(best[1], 4),
        "until": None if until is None else round(until, 2),
        "ahead": None if until is None else round(limit / until, 2),
    }  # fmt: skip


def many_topics(tokens: int) -> dict[str, Any]:
    """A row for a corpus in files and a million topics, from a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        lengths = np.random.default_rng(0).poisson(300, tokens // 300)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        cumulated = np.cumsum(1 / np.arange(3, VOCABULARY + 3) ** 0.9)
        with (Path(place) / "words").open("wb") as file:
            for first in range(0, int(starts[-1]), 1 << 22):
                drawn = np.random.default_rng(first + 1).random(min(1 << 22, int(starts[-1]) - first))
                np.searchsorted(cumulated, drawn * cumulated[-1]).astype(np.int32).tofile(file)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            return alone.submit(_streamed, place, starts).result()


def _streamed(place: str, starts: np.ndarray, sweeps: int = 2) -> dict[str, Any]:
    from girih.loop.apps.lda import Corpus
    from girih.loop.apps.lda.schedule import Cells, Model
    from girih.loop.apps.team import Team

    words = np.memmap(Path(place) / "words", np.int32, "r")
    model = Model(MANY, 1e-4, 0.01, 0, 2, BLOCKS)
    state = Cells(Corpus(words, starts, VOCABULARY, Path(place)), model, "light")
    note({"tokens": len(words), "blocks": len(state.layout.blocks) - 1, "peak_gb": _peak() / 1e9})
    team = Team(2)
    before = state.likelihood() / len(words)
    taken = []
    for number in range(sweeps):
        began = clock()
        state.sweep(number, team.all)
        taken.append(since(began))
        note({"sweep": number + 1, "CPU / wall s": str(taken[-1]), "peak_gb": _peak() / 1e9})
    team.close()
    return {
        "tokens": len(words), "blocks": len(state.layout.blocks) - 1, "sweeps": sweeps, "seconds": str(median(taken)),
        "peak_gb": round(_peak() / 1e9, 2), "before": round(before, 3),
        "after": round(state.likelihood() / len(words), 3), "counted": int(state.word_topic().sum()),
    }  # fmt: skip


def _peak() -> int:
    """Bytes that this program had resident at most; getrusage would count what its parent had when it was started."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def _options(parser: argparse.ArgumentParser) -> None:
    repeats_option(parser)
    parser.add_argument("--topics", type=int, nargs="+", default=TOPICS, help="numbers of topics, K (100 1000)")


BENCHMARK = Benchmark("loops_lda", __doc__ or "", measure, 1.0, "times tomotopy's tokens per CPU second", _options)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.main())
