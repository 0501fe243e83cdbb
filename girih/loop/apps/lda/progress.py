"""How far a fit is, and its checkpoints: one file, as `gl.save` writes (girih/loop/checkpoint.py).

A checkpoint has the topics of all tokens (for "warp" their proposals too); counts are made anew from them, and random
numbers follow from the seed and the number of a sweep, so that the sweeps that follow give the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from girih.loop.apps.checks import same_fit
from girih.loop.apps.lda.corpora import Corpus
from girih.loop.apps.lda.schedule import Cells, Model, Passes
from girih.loop.checkpoint import LoopCheckpointError, checksum, read, write


@dataclass
class LdaProgress:
    """sweeps: that are done. likelihoods: (sweep, log p(words, topics) for each token) where it was asked for."""

    sweeps: int = 0
    likelihoods: list[tuple[int, float]] = field(default_factory=list)


def save(path: str | Path, state: Cells | Passes, identity: dict[str, Any], progress: LdaProgress) -> None:
    """Write a checkpoint; one that was there before is kept until this one is whole."""
    others = {"identity": identity, "sweeps": progress.sweeps, "likelihoods": progress.likelihoods}
    write(path, {"topics": state.assigned}, {"lda": others})


def saved_sampler(path: str | Path) -> str:
    """The sampler that wrote a checkpoint."""
    return str(_head(path, read(path)[1])["identity"]["sampler"])


def restore(path: str | Path, state: Cells | Passes, identity: dict[str, Any]) -> LdaProgress:
    """Put a checkpoint's topics into a state that was just started.

    Raises:
        LoopCheckpointError: it is damaged, or of another corpus or other options, which are named.
    """
    arrays, others = read(path)
    head = _head(path, others)
    same_fit(path, head["identity"], identity)
    state.assign(arrays["topics"])
    return LdaProgress(head["sweeps"], [(sweep, value) for sweep, value in head["likelihoods"]])


def _head(path: str | Path, others: dict[str, Any]) -> dict[str, Any]:
    if "lda" not in others:
        raise LoopCheckpointError(f"{path} is a checkpoint of other things than LDA")
    head: dict[str, Any] = others["lda"]
    return head


def identity_of(corpus: Corpus, model: Model, state: Cells | Passes) -> dict[str, Any]:
    """What must be equal for sweeps to give the same numbers: options, the corpus, and how it is divided."""
    words = 0
    for first in range(0, corpus.tokens, 1 << 22):
        words = checksum(corpus.words[first : first + (1 << 22)], words)
    own = {
        "sampler": state.sampler,
        "n_components": model.topics,
        "doc_topic_prior": model.alpha,
        "topic_word_prior": model.beta,
        "random_state": model.seed,
        "vocabulary": corpus.vocabulary,
        "documents": corpus.documents,
        "tokens": corpus.tokens,
        "corpus (checksum)": checksum(corpus.starts, words),
    }
    if isinstance(state, Cells):
        blocks = np.array(state.layout.blocks, np.int64)
        own |= {"workers": model.workers, "cycles": model.cycles, "blocks (checksum)": checksum(blocks)}
    return own
