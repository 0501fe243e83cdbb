"""scikit-learn's own checks of estimators' conventions, of topics, factors and regressions; of trees: `test_trees.py`.

What a check is excused from is listed with the reason; one that is excused and passes is an error here.
"""

from __future__ import annotations

from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from girih.loop.apps.lda import LDA
from girih.loop.apps.linear import MatrixFactorisation, MultinomialLogisticRegression, SparseLogisticRegression

PAIRS = "predict takes pairs of a user and an item, by number, and no matrix of ratings"
EXCUSED: dict[str, dict[str, str]] = {
    "LDA": {"check_transformer_data_not_an_array": "a list is one of documents of (word, count) pairs, as gensim's"},
    "MatrixFactorisation": dict.fromkeys(
        (
            "check_dict_unchanged", "check_dtype_object", "check_estimator_sparse_array",
            "check_estimator_sparse_matrix", "check_estimators_dtypes", "check_estimators_pickle",
            "check_f_contiguous_array_estimator", "check_fit2d_predict1d", "check_fit_idempotent",
            "check_methods_sample_order_invariance", "check_methods_subset_invariance",
            "check_n_features_in_after_fitting",
        ),
        PAIRS,
    ),
}  # fmt: skip
REGRESSIONS = frozenset({
    "check_classifiers_one_label", "check_complex_data", "check_estimator_cloneable", "check_estimator_repr",
    "check_estimator_tags_renamed", "check_estimators_nan_inf", "check_estimators_unfitted",
    "check_get_params_invariance", "check_n_features_in", "check_no_attributes_set_in_init", "check_set_params",
})  # fmt: skip
"""Those that compile few loops: each shape of samples is compiled for, which takes seconds. Of the others two do not
hold, of sample weights: a sample of weight 2 is one step, and two samples are two, as in scikit-learn's own SGD."""


def failed(estimator: Any, names: frozenset[str] = frozenset()) -> tuple[dict[str, str], int]:
    """(what each check says that failed, how many were done). names: the only ones that are done."""
    found: dict[str, str] = {}
    done = 0
    for part, check in estimator_checks_generator(estimator):
        name = check.func.__name__
        if names and name not in names:
            continue
        done += 1
        try:
            check(part)
        except SkipTest:  # of what neither scikit-learn nor we have installed
            continue
        except Exception as error:
            found[name] = str(error)
    return found, done


@pytest.mark.parametrize("estimator", [LDA(3, max_iter=5, sampler="warp"), MatrixFactorisation(3, 3)])
def test_conventions(estimator: Any) -> None:
    found, done = failed(estimator)
    assert found.keys() == EXCUSED[type(estimator).__name__].keys(), found
    assert done > 40


@pytest.mark.parametrize("estimator", [SparseLogisticRegression(2), MultinomialLogisticRegression(2)])
def test_conventions_of_regressions(estimator: Any) -> None:
    found, done = failed(estimator, REGRESSIONS)
    assert not found
    assert done >= len(REGRESSIONS)


@pytest.mark.parametrize("estimator", [LDA(3, max_iter=2, sampler="warp"), MatrixFactorisation(3, 2, random_state=0)])
def test_columns_have_names(estimator: Any) -> None:
    counts = np.random.default_rng(0).integers(0, 5, (20, 6))
    name = type(estimator).__name__.lower()
    assert list(estimator.fit(counts).get_feature_names_out()) == [f"{name}{number}" for number in range(3)]
    assert (estimator.fit_transform(counts) == clone(estimator).fit(counts).transform(counts)).all()
