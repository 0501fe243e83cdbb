"""Latent Dirichlet allocation: `LDA`, an estimator, and `read_corpus` (guide: docs/lda.md)."""

from girih.loop.apps.lda.corpora import Corpus, read_corpus
from girih.loop.apps.lda.estimator import LDA, Sweep

__all__ = ["LDA", "Corpus", "Sweep", "read_corpus"]
