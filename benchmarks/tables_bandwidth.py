"""Training over slow links: managed communication beside bounded staleness alone, and what should go first.

What: four hosts of one worker and one server each, joined by links of 200 Mbit/s, a clock for each pass over the data
(the paper's setting), cut into batches: a batch reads the rows that it needs, computes, and adds what they changed.
First, SGD matrix factorisation of ratings drawn from a factor model with noise, items by a power law (a few have most
of the ratings): users' factors stay with the worker that has the user's ratings, items' are a table. It is run with
staleness 2 and managed communication by relative magnitude, with staleness 2 alone, and with staleness 0. Every way
runs with each step size, and its best counts: a smaller error is reached sooner by larger steps only where updates are
seen soon. The target is twice the variance of the noise; the error is computed on a fixed sample of the ratings, from
the model as the first worker had it at the end of each pass. Second, topics by collapsed Gibbs sampling, words by a
power law, counts of words by topics in a table: managed communication by random choice, absolute and relative
magnitude, as in the paper, which saw less of a difference in matrix factorisation. The target is most of the way from
random topics to those that the corpus was drawn from.
How: hosts are network namespaces of this machine, and `tc` limits both directions of every host's link; where that is
not allowed (no root, `ip` or `tc`) the processes share this host's loopback, only the budget of managed communication
limits anybody, plain runs are limited by nothing, and the notes say so. Managed communication may use half of the link
for each of a host's two processes. A host computes at a stated pace, below what a core could do, so that eight
processes on few cores do not take the processor from each other: all ways compute equally fast, and what differs is
what is sent. On a machine that keeps the pace a pass is shorter than on one that falls behind, so that less is sent in
it and more passes are needed: there are as many as the target may take, and what is compared is seconds to the target.
Times are those of the slowest worker; medians of `--repeats` runs.
Floors: 2.5 times as fast as both in wall time (`--floor`), and topics 25 % sooner by the order that tables of
whole numbers have unless told (the absolute change) than by random choice. `--quick` learns too little to reach the
targets: it shows how much is sent, and has no floors.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from scipy.special import gammaln

from benchmarks.common import Benchmark, Report, Row, note, repeats_option
from benchmarks.namespaces import Workers, network, refusal

HOSTS = 4
RATE = 200e6
KEY = "of the hosts of this benchmark"
PRIORITY_FLOOR = 1.25
NOISE = 0.3
TARGET = 2.0 * NOISE**2
"""Mean squared error; nothing that does not know the noise can have less than half of it."""
LONGER = 4
"""So many times as many passes as managed communication needs, where nothing is sent between clocks."""
SWEEPS, SHARE = 40, 0.95
"""Of topics: sweeps of a run, and the target's share of the way from random topics to those that made the corpus."""


@dataclass(frozen=True)
class Problem:
    """pace: ratings per second that a host computes with. skew: exponent of the power law of items. queue: bytes."""

    users: int
    items: int
    ratings: int
    rank: int
    batch: int
    passes: int
    pace: float
    skew: float
    queue: int


FULL = Problem(8_000, 8_000, 1_000_000, rank=32, batch=12_500, passes=45, pace=500_000, skew=0.9, queue=16 << 10)
QUICK = Problem(1_000, 500, 40_000, rank=8, batch=5_000, passes=2, pace=500_000, skew=0.9, queue=4 << 10)
STEPS = (0.001, 0.003, 0.01, 0.02)


@dataclass(frozen=True)
class Way:
    name: str
    staleness: int
    priority: str = ""


WAYS = (
    Way("bulk synchronous", 0),
    Way("staleness 2", 2),
    Way("managed, random", 2, "random"),
    Way("managed, absolute", 2, "absolute"),
    Way("managed, relative", 2, "relative"),
)


@lru_cache(maxsize=1)
def ratings(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(users, items, values), in random order."""
    generator = np.random.default_rng(7)
    users = generator.integers(0, problem.users, problem.ratings)
    shares = 1.0 / np.arange(1, problem.items + 1) ** problem.skew
    items = generator.choice(problem.items, problem.ratings, p=shares / shares.sum())
    own = generator.standard_normal((problem.users, 8)).astype(np.float32)
    other = generator.standard_normal((problem.items, 8)).astype(np.float32)
    exact = np.einsum("ij,ij->i", own[users], other[items]) / math.sqrt(8)
    values = exact + NOISE * generator.standard_normal(problem.ratings).astype(np.float32)
    return users.astype(np.int32), items.astype(np.int32), values.astype(np.float32)


def start(rows: int, rank: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.5 / math.sqrt(rank), (rows, rank)).astype(np.float32)


@numba.njit(nogil=True, fastmath=True, cache=True)
def sgd(users, items, values, W, H, step, decay):  # type: ignore[no-untyped-def]
    for n in range(len(values)):
        i, j = users[n], items[n]
        error = values[n]
        for k in range(W.shape[1]):
            error -= W[i, k] * H[j, k]
        for k in range(W.shape[1]):
            old = W[i, k]
            W[i, k] += step * (error * H[j, k] - decay * old)
            H[j, k] += step * (error * old - decay * H[j, k])


DECAY = 0.01
SLACK = 0.05
"""Seconds that a host may catch up with by computing faster than its pace."""


def factorise(t: Any, rank: int, problem: Problem, passes: int, step: float) -> dict[str, Any]:
    """One worker: its users' factors and its view of the items' at the end of each pass, and when that was."""
    users, items, values = ratings(problem)
    mine = users % HOSTS == rank
    users, items, values = users[mine] // HOSTS, items[mine], values[mine]
    W = start(problem.users, problem.rank, 1)[rank::HOSTS].copy()
    table = t["items"]
    everything = np.arange(problem.items)
    table.get_rows(everything)
    sgd(users[:1], items[:1], values[:1], W.copy(), start(problem.items, problem.rank, 2), 0.0, 0.0)
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    times = []
    parts = [np.unique(items[begin : begin + problem.batch]) for begin in range(0, len(items), problem.batch)]
    local = np.zeros(problem.items, np.int32)
    t.clock()
    table.get_rows(everything[:1])
    began = time.time()
    due = time.monotonic()
    for _ in range(passes):
        for number, rows in enumerate(parts):
            part = slice(number * problem.batch, (number + 1) * problem.batch)
            H = table.get_rows(rows)
            before = H.copy()
            local[rows] = np.arange(len(rows))
            sgd(users[part], local[items[part]], values[part], W, H, step, DECAY)
            table.inc_rows(rows, H - before)
            due = max(due + len(values[part]) / problem.pace, time.monotonic() - SLACK)
            time.sleep(max(0.0, due - time.monotonic()))
        t.clock()
        times.append(time.time())
        kept.append((W.copy(), table.get_rows(everything)))
    return {
        "began": began, "times": times, "W": [W for W, _ in kept], "H": [H for _, H in kept] if rank == 0 else [],
        "messages": t.statistics["early_messages"],
    }  # fmt: skip


def host(
    rank: int, fields: dict[str, Any], way: tuple[str, int, str], step: float, passes: int, addresses: list[str]
) -> dict[str, Any]:
    """What a host runs. fields: of the problem."""
    import girih.loop as gl

    problem, (_, staleness, priority) = Problem(**fields), way
    managed = {"priority": priority, "bandwidth": RATE / 16, "queue": problem.queue} if priority else {}
    with gl.tables(HOSTS, staleness, rank=rank, addresses=addresses, key=KEY, timeout=60, **managed) as t:
        t.dense("items", problem.items, problem.rank, initial=start(problem.items, problem.rank, 2))
        result: dict[str, Any] = t.run(factorise, problem, passes, step)
    return result


# ------------------------------------------------------------------------------------------------- topics


@dataclass(frozen=True)
class Corpus:
    """Documents drawn from a topic model; words by a power law. pace: tokens per second that a host samples."""

    documents: int
    words: int
    tokens: int
    topics: int
    batches: int
    pace: float
    queue: int


TOPICS = Corpus(5_000, 10_000, 600_000, topics=50, batches=20, pace=300_000, queue=16 << 10)
QUICK_TOPICS = Corpus(400, 500, 40_000, topics=10, batches=4, pace=500_000, queue=4 << 10)
ALPHA, BETA = 0.1, 0.01


@lru_cache(maxsize=1)
def drawn(corpus: Corpus) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(documents ascending, words, topics that they were drawn from) of all tokens."""
    generator = np.random.default_rng(5)
    documents = np.sort(generator.integers(0, corpus.documents, corpus.tokens))
    shares = generator.dirichlet(np.full(corpus.topics, ALPHA), corpus.documents).cumsum(axis=1)
    topics = (shares[documents] < generator.random(corpus.tokens)[:, None]).sum(axis=1)
    topics = np.minimum(topics, corpus.topics - 1)
    common = 1.0 / np.arange(1, corpus.words + 1)
    words = np.empty(corpus.tokens, np.int64)
    for topic in range(corpus.topics):
        own = common * generator.gamma(0.1, size=corpus.words)
        mine = topics == topic
        words[mine] = generator.choice(corpus.words, int(mine.sum()), p=own / own.sum())
    return documents.astype(np.int32), words.astype(np.int32), topics.astype(np.int32)


@numba.njit(nogil=True, cache=True)
def gibbs(documents, words, topics, by_document, by_word, totals, draws, vocabulary):  # type: ignore[no-untyped-def]
    """One sweep of collapsed Gibbs sampling; all counts change."""
    count = by_word.shape[1]
    weights = np.empty(count)
    for n in range(len(words)):
        d, w, old = documents[n], words[n], topics[n]
        by_document[d, old] -= 1
        by_word[w, old] -= 1
        totals[old] -= 1
        total = 0.0
        for k in range(count):
            total += (
                (by_document[d, k] + ALPHA) * (max(by_word[w, k], 0) + BETA) / (max(totals[k], 0) + BETA * vocabulary)
            )
            weights[k] = total
        place = draws[n] * total
        new = 0
        while new < count - 1 and weights[new] < place:
            new += 1
        topics[n] = new
        by_document[d, new] += 1
        by_word[w, new] += 1
        totals[new] += 1


def sample(t: Any, rank: int, corpus: Corpus, passes: int) -> dict[str, Any]:
    """One worker: the topics of its documents' tokens at the end of each pass, and when that was."""
    documents, words, _ = drawn(corpus)
    mine = documents % HOSTS == rank
    documents, words = documents[mine] // HOSTS, words[mine]
    generator = np.random.default_rng(100 + rank)
    topics = generator.integers(0, corpus.topics, len(words)).astype(np.int32)
    by_document = np.zeros((corpus.documents // HOSTS + 1, corpus.topics), np.int32)
    np.add.at(by_document, (documents, topics), 1)
    table, sums = t["words"], t["totals"]
    first = np.zeros((corpus.words, corpus.topics), np.int32)
    np.add.at(first, (words, topics), 1)
    table.inc_rows(np.arange(corpus.words), first)
    sums.inc_row(0, first.sum(axis=0))
    gibbs(
        documents[:1], words[:1], topics[:1].copy(), by_document.copy(), first.copy(), first.sum(axis=0), np.zeros(1), 1
    )
    for _ in range(1 + t._lines.options.staleness):
        t.clock()
    table.get_rows(np.arange(corpus.words))
    local = np.zeros(corpus.words, np.int32)
    parts = np.array_split(np.arange(len(words)), corpus.batches)
    kept, times = [], []
    began = time.time()
    due = time.monotonic()
    for _ in range(passes):
        for part in parts:
            rows = np.unique(words[part])
            local[rows] = np.arange(len(rows))
            by_word, totals = table.get_rows(rows), sums.get_row(0)
            before, sum_before = by_word.copy(), totals.copy()
            own = topics[part]
            gibbs(
                documents[part],
                local[words[part]],
                own,
                by_document,
                by_word,
                totals,
                generator.random(len(part)),
                corpus.words,
            )
            topics[part] = own
            table.inc_rows(rows, by_word - before)
            sums.inc_row(0, totals - sum_before)
            due = max(due + len(part) / corpus.pace, time.monotonic() - SLACK)
            time.sleep(max(0.0, due - time.monotonic()))
        t.clock()
        times.append(time.time())
        kept.append(topics.astype(np.uint8))
    return {"began": began, "times": times, "topics": kept, "messages": t.statistics["early_messages"]}


def topic_host(
    rank: int, fields: dict[str, Any], way: tuple[str, int, str], passes: int, addresses: list[str]
) -> dict[str, Any]:
    """What a host runs. fields: of the corpus."""
    import girih.loop as gl

    corpus, (_, staleness, priority) = Corpus(**fields), way
    managed = {"priority": priority, "bandwidth": RATE / 16, "queue": corpus.queue} if priority else {}
    with gl.tables(HOSTS, staleness, rank=rank, addresses=addresses, key=KEY, timeout=60, **managed) as t:
        t.dense("words", corpus.words, corpus.topics, "int32")
        t.dense("totals", 1, corpus.topics, "int32")
        result: dict[str, Any] = t.run(sample, corpus, passes)
    return result


def log_likelihood(corpus: Corpus, words: np.ndarray, topics: np.ndarray) -> float:
    """log p(words given topics) for each token."""
    counts = np.bincount(words.astype(np.int64) * corpus.topics + topics, minlength=corpus.words * corpus.topics)
    table = counts.reshape(corpus.words, corpus.topics)
    some = table[table > 0]
    sums = table.sum(axis=0)
    found = (gammaln(some + BETA) - gammaln(BETA)).sum()
    found += (gammaln(corpus.words * BETA) - gammaln(sums + corpus.words * BETA)).sum()
    return float(found / len(words))


def likelihoods(corpus: Corpus, found: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """(of each pass, seconds since the start)."""
    documents, words, _ = drawn(corpus)
    began = min(one["began"] for one in found)
    values, seconds = [], []
    for number in range(len(found[0]["times"])):
        topics = np.empty(len(words), np.int64)
        for rank, one in enumerate(found):
            topics[documents % HOSTS == rank] = one["topics"][number]
        values.append(log_likelihood(corpus, words, topics))
        seconds.append(max(one["times"][number] for one in found) - began)
    return values, seconds


# ------------------------------------------------------------------------------------------------- runs


def errors(problem: Problem, found: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """(mean squared error, seconds since the start) after each pass."""
    users, items, values = ratings(problem)
    sample = np.random.default_rng(3).choice(problem.ratings, min(problem.ratings, 100_000), replace=False)
    users, items, values = users[sample], items[sample], values[sample]
    began = min(one["began"] for one in found)
    loss, seconds = [], []
    for number in range(len(found[0]["times"])):
        H = found[0]["H"][number]
        W = np.empty((problem.users, problem.rank), np.float32)
        for rank, one in enumerate(found):
            W[rank::HOSTS] = one["W"][number]
        with np.errstate(all="ignore"):
            error = values - np.einsum("ij,ij->i", W[users], H[items])
            loss.append(float(np.mean(np.square(error, dtype=np.float64))))
        seconds.append(max(one["times"][number] for one in found) - began)
    return loss, seconds


class LocalWorkers:
    """Threads of this process in place of hosts, where there can be no network namespaces."""

    def call(self, function: str, *, timeout: float, **fields: Any) -> list[Any]:
        name = function.partition(":")[2]
        results: list[Any] = [None] * HOSTS

        def work(rank: int) -> None:
            results[rank] = globals()[name](rank, **fields)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(HOSTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if any(result is None for result in results):
            raise RuntimeError("a worker failed; its traceback is above")
        return results


def free_ports() -> list[str]:
    sockets = [socket.socket() for _ in range(HOSTS)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


@dataclass
class Hosts:
    """What all runs share: workers on their hosts, and addresses, of which each run takes its own."""

    workers: Any
    addresses: Callable[[int], list[str]]
    runs: int = 0

    def run(self, function: str, way: Way, passes: int, **fields: Any) -> list[dict[str, Any]]:
        self.runs += 1
        found: list[dict[str, Any]] = self.workers.call(
            f"benchmarks.tables_bandwidth:{function}",
            way=(way.name, way.staleness, way.priority),
            passes=passes,
            addresses=self.addresses(self.runs),
            timeout=300.0,
            **fields,
        )
        return found

    def factorise(self, problem: Problem, way: Way, step: float, passes: int) -> Row:
        found = self.run("host", way, passes, fields=asdict(problem), step=step)
        loss, seconds = errors(problem, found)
        return summed_up(way, found, [-value for value in loss], seconds, -TARGET) | {"step": step, "best": min(loss)}

    def sample(self, corpus: Corpus, way: Way, passes: int, target: float) -> Row:
        found = self.run("topic_host", way, passes, fields=asdict(corpus))
        values, seconds = likelihoods(corpus, found)
        return summed_up(way, found, values, seconds, target) | {"best": max(values)}


def summed_up(way: Way, found: list[dict[str, Any]], values: list[float], seconds: list[float], target: float) -> Row:
    """Passes and seconds until a value reached the target, None if none did."""
    reached = next((at for at, value in enumerate(values) if value >= target), None)
    return {
        "way": way.name,
        "passes": None if reached is None else reached + 1,
        "seconds": None if reached is None else seconds[reached],
        "each": seconds[-1] / len(seconds),
        "messages": sum(one["messages"] for one in found) / len(seconds),
    }


def middle(rows: list[Row]) -> Row:
    """The run with the median of the seconds; one that never reached the target took longest."""
    return sorted(rows, key=lambda row: math.inf if row["seconds"] is None else row["seconds"])[len(rows) // 2]


def against_plain(options: argparse.Namespace, hosts: Hosts) -> tuple[Report, list[str], list[str]]:
    """Matrix factorisation: (table, what is said of it, what missed the floor)."""
    problem = QUICK if options.quick else FULL
    steps = options.steps[-1:] if options.quick else options.steps
    named = {way.name: way for way in WAYS}

    def best(way: Way, passes: int, repeats: int) -> Row:
        tried = []
        for step in steps:
            tried.append(hosts.factorise(problem, way, step, passes))
            note(tried[-1])
        chosen = min(tried, key=lambda row: (math.inf if row["seconds"] is None else row["seconds"], row["best"]))
        again = [chosen]
        for _ in range(repeats - 1):
            again.append(hosts.factorise(problem, way, chosen["step"], passes))
            note(again[-1])
        return middle(again)

    ours = best(named["managed, relative"], problem.passes, 1 if options.quick else options.repeats)
    rows, said, misses = [ours], [], []
    # Plain runs go on for so long that they show the floor to be met, or reach the target before.
    longer = problem.passes if ours["passes"] is None else math.ceil(LONGER * ours["passes"])
    for name in ("staleness 2", "bulk synchronous"):
        row = best(named[name], longer, 1)
        rows.append(row)
        if ours["seconds"] is None:
            continue
        took = row["seconds"] or row["each"] * longer
        more = "" if row["seconds"] else "more than "
        row["ratio"] = took / ours["seconds"]
        said.append(f"{more}{row['ratio']:.3g} × as fast as {name}")
        if row["ratio"] < options.floor:
            misses.append(f"{said[-1]}, below {options.floor:g}")
    if ours["seconds"] is None:
        misses.append("managed communication did not reach the target")
    columns = (
        ("way", "way"), ("best step", "step"), ("passes", "passes"), ("seconds", "seconds"), ("s / pass", "each"),
        ("least error", "best"), ("early messages / pass", "messages"), ("relative is … × as fast", "ratio"),
    )  # fmt: skip
    title = f"matrix factorisation on {HOSTS} hosts, 200 Mbit/s, to a mean squared error of {TARGET:.3g}"
    return Report(title, columns, tuple(rows), ""), said, misses


def priorities(options: argparse.Namespace, hosts: Hosts) -> tuple[Report, list[str], list[str]]:
    """Topics: (table, what is said of it, what missed the floor)."""
    corpus = QUICK_TOPICS if options.quick else TOPICS
    passes = 2 if options.quick else SWEEPS
    _, words, topics = drawn(corpus)
    top = log_likelihood(corpus, words, topics)
    bottom = log_likelihood(corpus, words, np.random.default_rng(0).integers(0, corpus.topics, len(words)))
    target = bottom + SHARE * (top - bottom)
    ways = [way for way in WAYS if way.priority in ("random", "absolute", "relative")]
    found: dict[str, list[Row]] = {way.name: [] for way in ways}
    for _ in range(1 if options.quick else options.repeats):
        for way in ways:
            row = hosts.sample(corpus, way, passes, target)
            note(row)
            found[way.name].append(row)
    rows = {name: middle(many) for name, many in found.items()}
    ours, random = rows["managed, absolute"]["seconds"], rows["managed, random"]["seconds"]
    for row in rows.values():
        row["ratio"] = row["seconds"] / ours if row["seconds"] and ours else None
    said, misses = [], []
    if ours is None:
        misses.append("absolute magnitude did not reach the target")
    else:
        better = (random or rows["managed, random"]["each"] * passes) / ours
        said.append(f"{'' if random else 'more than '}{better:.3g} × as fast by absolute magnitude as by random choice")
        if better < PRIORITY_FLOOR:
            misses.append(f"{said[-1]}, below {PRIORITY_FLOOR}")
    columns = (
        ("way", "way"), ("sweeps", "passes"), ("seconds", "seconds"), ("s / sweep", "each"), ("best", "best"),
        ("early messages / sweep", "messages"), ("absolute is … × as fast", "ratio"),
    )  # fmt: skip
    title = f"topics on {HOSTS} hosts, 200 Mbit/s, to a log likelihood of {target:.3f} for each token"
    return Report(title, columns, tuple(rows.values()), ""), said, misses


def measure(options: argparse.Namespace) -> Report:
    why = refusal()
    notes = []
    if why:
        notes.append(f"no network namespaces ({why}): links are loopback, only the managed budget limits anybody")
        hosts = Hosts(LocalWorkers(), lambda number: free_ports())
        parts = [against_plain(options, hosts), priorities(options, hosts)]
    else:
        with network(HOSTS, RATE) as made, Workers(made) as workers:
            hosts = Hosts(workers, lambda number: [f"tcp://{address}:{31_000 + number}" for address in made.addresses])
            parts = [against_plain(options, hosts), priorities(options, hosts)]
    (first, said, misses), (second, more, others) = parts
    missed = () if options.quick else (*misses, *others)
    return Report(first.title, first.columns, first.rows, "; ".join(said + more), missed, tuple(notes), (second,))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=float, nargs="+", default=list(STEPS), help="step sizes that are tried")
    repeats_option(parser)


BENCHMARK = Benchmark(
    "tables_bandwidth", __doc__ or "", measure, 2.5, "times as fast as without managed communication", add_options
)

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(BENCHMARK.main())
