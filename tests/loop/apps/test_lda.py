"""LDA: each sampler finds the topics of a generated corpus, counts stay consistent, results repeat."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import girih.loop as gl
from girih.loop.apps.lda import LDA, Sweep, read_corpus
from girih.loop.apps.lda.cells import light
from girih.loop.apps.lda.estimator import started
from girih.loop.apps.lda.layout import blocks_of, laid_out, shares, sliced, word_counts
from girih.loop.apps.lda.schedule import Cells, Model, Passes
from girih.loop.apps.lda.tables import DENSE, HybridTable, alias_tables, count_of, put, take
from girih.loop.apps.team import Team
from girih.loop.checkpoint import LoopCheckpointError

TOPICS, WORDS = 5, 40
SAMPLERS = ("gibbs", "light", "warp")


def generated(documents: int = 200, length: int = 60, seed: int = 0) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """(counts, topics [TOPICS, WORDS]): topics are disjoint runs of words, most tokens of a document are of one."""
    draw = np.random.default_rng(seed)
    each = WORDS // TOPICS
    topics = np.zeros((TOPICS, WORDS))
    for k in range(TOPICS):
        topics[k, k * each : (k + 1) * each] = draw.dirichlet(np.full(each, 3.0))
    table = np.zeros((documents, WORDS), np.int64)
    for document in range(documents):
        shares_of = draw.dirichlet(np.full(TOPICS, 0.2))
        table[document] = draw.multinomial(length, shares_of @ topics)
    return scipy.sparse.csr_matrix(table), topics


def distance(model: LDA, topics: np.ndarray) -> float:
    """The worst topic's distance in total variation from the found topic that is nearest."""
    found = model.components_ / model.components_.sum(axis=1, keepdims=True)
    return float((np.abs(found[:, None] - topics[None]).sum(axis=2) / 2).min(axis=0).max())


def options(sampler: str, **more: object) -> dict:
    return {"doc_topic_prior": 0.1, "topic_word_prior": 0.05, "sampler": sampler, "max_iter": 120, **more}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_topics_are_found_and_the_likelihood_rises(sampler: str, workers: int) -> None:
    counts, topics = generated()
    # Some starts end in a local optimum, with any sampler: the best of a few is what a user takes too.
    tried = [
        LDA(TOPICS, **options(sampler, workers=workers, random_state=seed, evaluate_every=1)).fit(counts)
        for seed in range(3)
    ]
    for model in tried:
        assert model.likelihoods_[0][1] + 0.3 < model.likelihoods_[-1][1]
        assert len(model.likelihoods_) == model.n_iter_ == 120
        np.testing.assert_array_equal(np.asarray(model.word_topic_.sum(axis=1)).ravel(), counts.sum(axis=0).A1)
    best = max(tried, key=lambda model: model.likelihoods_[-1][1])
    assert distance(best, topics) < 0.12


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_counts_are_those_of_the_tokens_topics(sampler: str) -> None:
    counts, _ = generated(60)
    corpus = read_corpus(counts)
    state = started(corpus, Model(7, 0.1, 0.05, 3, 2, 1 << 30), sampler)
    with Team(2) as team:
        for number in range(4):
            state.sweep(number, team.all)
    table = state.word_topic().toarray()
    np.testing.assert_array_equal(table.sum(axis=0), state.sums[:7])
    if isinstance(state, Passes):
        words = np.repeat(np.arange(WORDS), np.diff(state.starts))
        np.testing.assert_array_equal(words[state.where], corpus.words)
        topics = state.pairs[:, 0]
    else:
        assert isinstance(state, Cells)
        words, topics = state.layout.words, state.layout.topics
    np.testing.assert_array_equal(table, counted(words, topics, WORDS, 7))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_seed_and_workers_give_the_same_result(sampler: str) -> None:
    counts, _ = generated(80)

    def table(workers: int, seed: int) -> np.ndarray:
        options_of = options(sampler, workers=workers, random_state=seed, max_iter=5)
        return LDA(TOPICS, **options_of).fit(counts).word_topic_.toarray()

    for workers in (1, 3):
        np.testing.assert_array_equal(table(workers, 1), table(workers, 1))
    assert (table(1, 1) != table(1, 2)).any()
    if sampler == "warp":
        np.testing.assert_array_equal(table(1, 1), table(3, 1))


def test_one_gibbs_draw_follows_the_conditional() -> None:
    """One token is sampled many times under fixed counts: frequencies are the conditional's."""
    from girih.loop.apps.lda.cells import gibbs

    alpha, beta, topics = 0.5, 0.2, 3
    words = np.array([0, 1, 0], np.int32)
    begun = np.array([2, 0, 1], np.int32)
    table = np.zeros((2, 16), np.int32)
    table[0, :3], table[1, :3] = (4, 1, 2), (1, 5, 1)
    found = np.zeros(3)
    for seed in range(6000):
        counts, sums, z = table.copy(), np.append(table.sum(axis=0), 0)[:16].astype(np.int64), begun.copy()
        starts, bounds = np.array([0, 3]), np.array([[0, 1]])  # the first token alone is in the slice
        gibbs(z, words, starts, bounds, 0, 1, 0, counts, sums, topics, alpha, beta, seed, 0, 0)
        found[z[0]] += 1
        assert counts.sum() == table.sum()
    without = table[:, :3].astype(float)
    without[0, 2] -= 1
    own = np.array([1, 1, 0])
    expected = (own + alpha) * (without[0] + beta) / (without.sum(axis=0) + 2 * beta)
    expected /= expected.sum()
    # The chi-square statistic of 2 degrees of freedom passes 20 once in 20,000 seeds; these are fixed.
    assert ((found - 6000 * expected) ** 2 / (6000 * expected)).sum() < 20


PRIORS = (0.4, 0.3)
TINY = np.array([[2, 1, 0], [0, 2, 1], [1, 0, 2]])


def squares(table: np.ndarray) -> float:
    """The sum of squared counts: small where topics are mixed, large where each word has one."""
    return float((table.astype(float) ** 2).sum())


def exact_squares() -> float:
    """The posterior mean of `squares` for two topics of TINY's 9 tokens, by all 512 assignments."""
    alpha, beta = PRIORS
    documents, words = (np.repeat(axis, TINY.ravel()) for axis in np.indices(TINY.shape).reshape(2, -1))
    logs, values = [], []
    for topics in itertools.product(range(2), repeat=len(words)):
        table, rows = np.zeros((3, 2)), np.zeros((3, 2))
        np.add.at(table, (words, topics), 1)
        np.add.at(rows, (documents, topics), 1)
        logs.append(
            gammaln(table + beta).sum() - gammaln(table.sum(axis=0) + 3 * beta).sum() + gammaln(rows + alpha).sum()
        )
        values.append(squares(table))
    return float(np.average(values, weights=np.exp(logs)))


@pytest.mark.parametrize(("sampler", "cycles", "near"), [("gibbs", 1, 0.005), ("light", 1, 0.006), ("warp", 1, 0.02)])
def test_chains_have_the_posterior_of_all_assignments(sampler: str, cycles: int, near: float) -> None:
    """Means over a chain of 9 tokens have a standard error of 0.1 %. LightLDA's tables and WarpLDA's sums are those of
    before the slice and the pass, which moves the mean by 0.2 % and 1.2 % here."""
    state = started(read_corpus(TINY), Model(2, *PRIORS, 5, 1, 1 << 30, cycles), sampler)
    run = Team(1).all
    total = 0.0
    for number in range(6000):
        state.sweep(number, run)
        total += squares(state.word_topic().toarray())
    assert total / 6000 == pytest.approx(exact_squares(), rel=near)


@pytest.mark.parametrize("cycles", [1, 3])
def test_light_is_exact_with_tables_of_the_moment(cycles: int) -> None:
    """If the word's table had the token's own count, the mean would be 2.8 % more with one cycle."""
    state = started(read_corpus(TINY), Model(2, *PRIORS, 5, 1, 1 << 30, cycles), "light")
    assert isinstance(state, Cells)
    assert isinstance(state.table, HybridTable)
    table = (state.table.begins, state.table.bits, state.table.cells)
    layout, every = state.layout, np.arange(3)
    total = 0.0
    for number in range(6000):
        for document in range(3):
            for at in range(3 * document, 3 * document + 3):
                bounds = np.tile([at, at + 1], (3, 1))
                light(
                    layout.topics, layout.words, layout.starts, bounds, document, document + 1, 0, *table, state.sums,
                    2, *PRIORS, 5, number, 100 * at, cycles, every, state.heights, *alias_tables(every, *table, 2),
                )  # fmt: skip
        total += squares(counted(layout.words, layout.topics, 3, 2))
    assert total / 6000 == pytest.approx(exact_squares(), rel=0.005)


def counted(words: np.ndarray, topics: np.ndarray, vocabulary: int, number: int) -> np.ndarray:
    table = np.zeros((vocabulary, number), np.int64)
    np.add.at(table, (words, topics), 1)
    return table


@pytest.mark.parametrize("topics", [20, 10_000])  # dense rows, and hash tables beside a dense one
def test_alias_tables_give_each_topic_its_count(topics: int) -> None:
    draw = np.random.default_rng(0)
    words, drawn = draw.integers(0, 5, 300), draw.integers(0, topics, 300)
    words[words == 3] = 2  # word 3 does not occur, word 5 is frequent elsewhere
    expected = counted(words, drawn, 6, topics)
    table = HybridTable.of(np.array([*expected.sum(axis=1)[:5], 10_000]), topics)
    assert (table.bits == DENSE).tolist() == [topics == 20] * 3 + [False, topics == 20, True]
    table.count(words, drawn, np.zeros(topics, np.int64))
    chosen = np.array([0, 2, 3, 5])
    begins, own, other, stay, heights = alias_tables(chosen, table.begins, table.bits, table.cells, topics)
    for item, word in enumerate(chosen):
        a, b = begins[item], begins[item + 1]
        mass = np.zeros(topics)
        np.add.at(mass, own[a:b], stay[a:b] / (b - a))
        np.add.at(mass, other[a:b], (1 - stay[a:b]) / (b - a))
        np.testing.assert_array_equal(own[a:b], np.flatnonzero(expected[word]))
        np.testing.assert_array_equal(heights[a:b], expected[word][own[a:b]])
        np.testing.assert_allclose(mass, expected[word] / max(expected[word].sum(), 1), atol=1e-5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=80), st.integers(1, 12))
def test_rows_of_a_hybrid_table_count(changes: list[tuple[bool, int]], most: int) -> None:
    """Against Counter, in two words' rows; a row never has more tokens than its word."""
    topics = 1000
    table = HybridTable.of(np.array([most, most]), topics)
    rows = [Counter(), Counter()]
    for more, topic in changes:
        word = topic % 2
        row, begin, bits = rows[word], table.begins[word], table.bits[word]
        if more and row.total() < most:
            put(table.cells, begin, bits, topic)
            row[topic] += 1
        elif not more and row[topic]:
            row[topic] -= 1
            assert take(table.cells, begin, bits, topic) == row[topic]
        assert count_of(table.cells, begin, bits, topic) == row[topic]
    expected = np.zeros((2, topics), np.int64)
    for word, row in enumerate(rows):
        for topic, count in row.items():
            expected[word, topic] = count
    np.testing.assert_array_equal(table.sparse().toarray(), expected)


def test_no_two_workers_have_the_same_words_or_documents() -> None:
    counts, _ = generated(50)
    corpus = read_corpus(counts)
    layout = laid_out(corpus, 3, 1 << 30, word_counts(corpus))
    cuts = shares(corpus.starts, 3)
    assert cuts[0] == 0
    assert cuts[-1] == 50
    seen = 0
    for step in range(3):
        words = []
        for worker in range(3):
            part = (worker + step) % 3
            rows = range(cuts[worker], cuts[worker + 1])
            spans = [layout.words[layout.bounds[row, part] : layout.bounds[row, part + 1]] for row in rows]
            tokens = np.concatenate(spans)
            assert (layout.slice_of[tokens] == part).all()
            words.append(set(tokens.tolist()))
            seen += len(tokens)
        assert sum(map(len, words)) == len(set().union(*words))
    assert seen == corpus.tokens
    loads = np.bincount(sliced(word_counts(corpus), 3), word_counts(corpus), 3)
    assert loads.max() < 1.1 * loads.min()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_corpus_on_disk_is_streamed_and_learned(sampler: str, tmp_path: Path) -> None:
    counts, topics = generated()
    model = LDA(TOPICS, **options(sampler, memory=200_000, directory=tmp_path, workers=2, random_state=1))
    model.fit(counts)
    assert {path.name for path in tmp_path.iterdir()} >= ({"words", "pairs"} if sampler == "warp" else {"topics"})
    np.testing.assert_array_equal(np.asarray(model.word_topic_.sum(axis=1)).ravel(), counts.sum(axis=0).A1)
    assert model.perplexity(counts) < 25
    if sampler == "warp":
        kept = LDA(TOPICS, **options(sampler, random_state=1)).fit(counts)
        np.testing.assert_array_equal(kept.word_topic_.toarray(), model.word_topic_.toarray())
    assert topics.shape == (TOPICS, WORDS)


def test_blocks_are_small_and_keep_their_topics(tmp_path: Path) -> None:
    counts, _ = generated(100)
    corpus = read_corpus(counts, directory=tmp_path)
    layout = laid_out(corpus, 2, 64_000, word_counts(corpus))
    sizes = []
    for block in blocks_of(layout):
        block.topics[:] = block.first
        sizes.append(len(block.words))
    assert len(sizes) > 3
    assert max(sizes) <= 1000
    assert sum(sizes) == corpus.tokens
    for block in blocks_of(layout):
        assert (block.topics == block.first).all()


def test_it_is_an_estimator() -> None:
    counts, _ = generated(60)
    model = LDA(4, sampler="light", max_iter=5, workers=2)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert repr(model) == "LDA(max_iter=5, n_components=4, sampler='light', workers=2)"
    assert model.set_params(n_components=3) is model
    pipeline = make_pipeline(FunctionTransformer(accept_sparse=True), model)
    shares_of = pipeline.fit_transform(counts)
    assert shares_of.shape == (60, 3)
    np.testing.assert_allclose(shares_of.sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(pipeline.transform(counts.toarray()), shares_of)
    assert model.components_.shape == (3, WORDS)
    assert model.components_.sum() == pytest.approx(counts.sum() + WORDS, rel=1e-6)
    assert model.n_features_in_ == WORDS
    with pytest.raises(ValueError, match="Invalid parameter 'topics'"):
        model.set_params(topics=3)


def test_auto_takes_the_cheapest_and_says_what_it_measured() -> None:
    counts, _ = generated(60)
    told: list[Sweep] = []
    model = LDA(4, max_iter=3, evaluate_every=2, observer=told.append).fit(counts)
    assert set(model.trial_seconds_) == set(SAMPLERS)
    assert [item.number for item in told] == [1, 2, 3]
    assert [item.likelihood is None for item in told] == [True, False, False]
    assert told[0].sampler == model.sampler_
    assert model.sampler_ in SAMPLERS
    small = LDA(4, max_iter=1, memory=100).fit(counts)
    assert small.sampler_ == "warp"  # the others' table does not fit


def test_held_out_words_are_judged_by_given_ones() -> None:
    counts, _ = generated(200)
    model = LDA(TOPICS, **options("gibbs")).fit(counts[50:])
    given = counts[:50].copy()
    given.data = given.data // 2
    wanted = counts[:50] - given
    empty = scipy.sparse.csr_matrix(wanted.shape, dtype=np.int64)
    assert model.perplexity(wanted, given=given) < 0.8 * model.perplexity(wanted, given=empty)
    assert model.score(wanted) == pytest.approx(-np.log(model.perplexity(wanted)))
    with pytest.raises(ValueError, match="given has 49 documents: expected 50"):
        model.score(wanted, given=given[:49])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_components": 0}, "n_components=0: expected a whole number from 1"),
        ({"workers": 65}, "workers=65: expected a whole number from 1 to 64"),
        ({"sampler": "vb"}, "sampler='vb': expected auto, gibbs, light, warp"),
        ({"doc_topic_prior": -1.0}, "doc_topic_prior=-1.0: expected a number above 0"),
        ({"max_iter": 2.5}, "max_iter=2.5: expected a whole number"),
    ],
)
def test_options_out_of_range_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LDA(**wrong).fit(generated(10)[0])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(MemoryError, match=r"40 words by 10 topics needs .* use sampler='warp'"):
        LDA(10, sampler="gibbs", memory="1KB").fit(generated(10)[0])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        _ = LDA().transform(generated(10)[0])
    model = LDA(3, max_iter=1, sampler="warp").fit(generated(10)[0])
    with pytest.raises(ValueError, match="X has 39 features, but LDA is expecting 40"):
        model.transform(np.zeros((2, 39), np.int64))


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("sampler", [*SAMPLERS, "auto"])
def test_a_fit_that_is_interrupted_resumes_to_the_same_numbers(sampler: str, on_disk: bool, tmp_path: Path) -> None:
    counts, _ = generated(80)
    file = tmp_path / "lda.npz"

    def stop(sweep: Sweep) -> None:
        if sweep.number == 8:
            raise KeyboardInterrupt

    def model(name: str, **more: object) -> LDA:
        place = {"directory": tmp_path / name, "memory": 100_000} if on_disk else {}
        every = options(sampler, workers=2, random_state=1, max_iter=12, evaluate_every=5)
        return LDA(TOPICS, **every | place | more)

    with pytest.raises(KeyboardInterrupt):
        model("first", checkpoint=file, checkpoint_every=3, observer=stop).fit(counts)
    seen: list[int] = []
    resumed = model("second", checkpoint=file, resume=True, observer=lambda sweep: seen.append(sweep.number)).fit(
        counts
    )
    assert seen == [7, 8, 9, 10, 11, 12]
    whole = model("third").set_params(sampler=resumed.sampler_).fit(counts)
    np.testing.assert_array_equal(resumed.word_topic_.toarray(), whole.word_topic_.toarray())
    assert resumed.likelihoods_ == whole.likelihoods_
    assert resumed.n_iter_ == 12
    again = model("fourth", checkpoint=file, resume=True, max_iter=12).fit(counts)  # nothing is left to do
    np.testing.assert_array_equal(again.word_topic_.toarray(), whole.word_topic_.toarray())


def test_checkpoints_of_other_fits_are_refused(tmp_path: Path) -> None:
    counts, _ = generated(20)
    file = tmp_path / "lda.npz"
    model = LDA(3, sampler="gibbs", max_iter=2, checkpoint=file).fit(counts)
    resumed = clone(model).set_params(resume=True)
    for change, words in (
        ({"n_components": 4}, "of n_components 3: expected 4"),
        ({"sampler": "light"}, "of sampler gibbs: "),
    ):
        with pytest.raises(LoopCheckpointError, match=words):
            clone(resumed).set_params(**change).fit(counts)
    other = counts.tolil()
    other[0, 0] += 1
    with pytest.raises(LoopCheckpointError, match="expected"):
        resumed.fit(other.tocsr())
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(LoopCheckpointError, match="no whole checkpoint"):
        resumed.fit(counts)
    gl.save(file, a=gl.array(np.zeros(3)))
    with pytest.raises(LoopCheckpointError, match="of other things than LDA"):
        resumed.fit(counts)
    assert clone(model).set_params(checkpoint=tmp_path / "none.npz", resume=True).fit(counts).n_iter_ == 2
    with pytest.raises(ValueError, match="give checkpoint=FILE"):
        LDA(3, resume=True).fit(counts)
    with pytest.raises(OSError, match="No such file"):
        clone(model).set_params(checkpoint=tmp_path / "no folder" / "c.npz").fit(counts)
