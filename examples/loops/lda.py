"""Topics of a collection of documents: latent Dirichlet allocation by sampling, on as many threads as are given.

    python examples/loops/lda.py [docword.txt [vocab.txt]]

Reads UCI's bag-of-words files (`document word count` on each line, numbers from 1); without one, it draws notes of a
help desk from six subjects. Prints the most frequent words of each topic, and what held-out words cost.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import scipy.sparse

from girih.loop.apps.lda import LDA, Sweep, read_corpus

SUBJECTS = (
    "password login account locked reset email token expired user sign",
    "printer paper jam toner tray print queue driver scan page",
    "network wifi cable router slow connection vpn signal drops office",
    "invoice payment refund card charge receipt order price tax billing",
    "laptop battery screen keyboard charger broken heat fan repair warranty",
    "delivery parcel address courier late tracking box returned shipping customs",
)
COMMON = "please help since today tried again works problem still question"


def made_up(documents: int = 3000, length: int = 40) -> tuple[scipy.sparse.csr_matrix, list[str]]:
    """(counts of words in notes, the words): a note is about one or two subjects."""
    draw = np.random.default_rng(0)
    subjects = [subject.split() for subject in SUBJECTS]
    words = sorted({*COMMON.split(), *(word for subject in subjects for word in subject)})
    number = {word: at for at, word in enumerate(words)}
    table = np.zeros((documents, len(words)), np.int32)
    for note in range(documents):
        shares = draw.dirichlet(np.full(len(subjects), 0.1))
        for subject in draw.choice(len(subjects), length, p=shares):
            chosen = COMMON.split() if draw.random() < 0.2 else subjects[subject]
            table[note, number[chosen[int(len(chosen) * draw.random() ** 1.5)]]] += 1
    return scipy.sparse.csr_matrix(table), words


def top_words(model: LDA, words: list[str], count: int = 6) -> list[str]:
    """The most frequent words of each topic, as one line each."""
    order = np.argsort(-model.components_, axis=1)[:, :count]
    return [" ".join(words[word] for word in row) for row in order]


def main(path: str | None = None, names: str | None = None, topics: int | None = None) -> tuple[LDA, list[str]]:
    if path is None:
        counts, words = made_up()
        topics = topics or len(SUBJECTS)
    else:
        corpus = read_corpus(path)
        shape = (corpus.documents, corpus.vocabulary)
        counts = scipy.sparse.csr_matrix((np.ones(corpus.tokens, np.int32), corpus.words, corpus.starts), shape=shape)
        words = Path(names).read_text().split() if names else [str(word + 1) for word in range(corpus.vocabulary)]
        topics = topics or 50
    kept = max(1, counts.shape[0] // 10)

    def show(sweep: Sweep) -> None:
        if sweep.likelihood is not None:
            speed = sweep.tokens / sweep.seconds / 1e6
            print(
                f"sweep {sweep.number} ({sweep.sampler}): {sweep.likelihood:.3f} for each token, {speed:.1f} M tokens/s"
            )

    # A chain may stay where two subjects share a topic: the likeliest of some is taken. A sampler that is named, not
    # chosen by what was measured, gives the same result again.
    chains = [
        LDA(topics, doc_topic_prior=0.1, topic_word_prior=0.05, max_iter=60, evaluate_every=30, workers=2,
            sampler="warp", random_state=seed, observer=show).fit(counts[kept:])
        for seed in range(4)
    ]  # fmt: skip
    model = max(chains, key=lambda chain: chain.likelihoods_[-1][1])
    lines = top_words(model, words)
    for number, line in enumerate(lines):
        print(f"topic {number}: {line}")
    print(f"perplexity of {kept} documents kept back: {model.perplexity(counts[:kept]):.1f}")
    return model, lines


if __name__ == "__main__":
    main(*sys.argv[1:3])
