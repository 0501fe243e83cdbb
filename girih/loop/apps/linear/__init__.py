"""Linear models and factorisations by serial loops of SGD that run in parallel."""

from girih.loop.apps.linear.factorisation import MatrixFactorisation
from girih.loop.apps.linear.regressions import MultinomialLogisticRegression, SparseLogisticRegression

__all__ = ["MatrixFactorisation", "MultinomialLogisticRegression", "SparseLogisticRegression"]
