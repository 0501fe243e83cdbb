"""scikit-learn itself on girih arrays: its estimators of the array API standard compute where the arrays are.

python examples/arrays/scikit_learn.py [--rows 100000]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # which scikit-learn asks for, before SciPy is imported

import numpy
from sklearn import config_context
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import girih
import girih.array as np


def data(rows: int, seed: int = 0) -> tuple[numpy.ndarray, numpy.ndarray]:
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(rows, 12)) * numpy.arange(1, 13)
    return x, x @ numpy.linspace(-1, 1, 12) + 5 * random.normal(size=rows)


def main(argv: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args(argv)
    x, y = map(np.asarray, data(options.rows))
    with config_context(array_api_dispatch=True):
        regression = make_pipeline(StandardScaler(), Ridge(solver="svd")).fit(x, y)
        predicted = regression.predict(x)
        classes = LinearDiscriminantAnalysis().fit(x, y > 0).predict(x)
        r2, accuracy = r2_score(y, predicted), accuracy_score(y > 0, classes)
    print(f"Ridge predicts a {type(predicted).__name__}, R² {r2:.4f}; the sign is found in {accuracy:.1%} of the rows")
    return r2, accuracy


if __name__ == "__main__":
    with girih.cluster(workers=2, backend="threads"):
        main()
