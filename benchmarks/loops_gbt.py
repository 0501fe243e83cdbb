"""Gradient-boosted trees: seconds of training against LightGBM and scikit-learn's HistGradientBoostingClassifier.

A million rows of 28 features (`--quick`: 50,000), generated like HIGGS: some are kinematic (skewed, positive), some
derived from products of others; 100 trees (`--quick`: 20) of depth 6 and at most 64 leaves, a learning rate of 0.1,
255 bins, on 2 threads. The same rows and 200,000 more to test on go to each. Runs alternate, medians are shown, CPU
seconds beside wall time; binning is part of each. The AUC of all three stands beside.

Floors: at most `--floor` times the wall time of the fastest peer, and an AUC at most 0.002 below the best.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, clock, median, note, repeats_option, since

ROWS, FEATURES, TREES, DEPTH, THREADS = 1_000_000, 28, 100, 6, 2
NEAR = 0.002


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, 28) float32, classes: 21 measured features, 7 masses that follow from them."""
    draw = np.random.default_rng(0)
    x = np.empty((count, FEATURES), np.float32)
    momenta = draw.gamma(3, 1 / 3, (count, 7)).astype(np.float32)
    angles = draw.uniform(-1.7, 1.7, (count, 7)).astype(np.float32)
    others = draw.standard_normal((count, 7)).astype(np.float32)
    x[:, :7], x[:, 7:14], x[:, 14:21] = momenta, angles, others
    for k in range(7):
        a, b = k, (k + 1) % 7
        x[:, 21 + k] = np.sqrt(2 * momenta[:, a] * momenta[:, b] * (np.cosh(others[:, a]) - np.cos(angles[:, b])))
    score = 0.9 * np.log(x[:, 21] + 0.1) - 0.7 * np.abs(x[:, 22] - 1.2) + 0.5 * np.sin(2 * x[:, 7]) * x[:, 0]
    score += 0.4 * x[:, 14] + 0.3 * np.maximum(x[:, 15], 0) * x[:, 1] - 0.4 * (x[:, 23] > 2)
    score += 0.2 * x[:, 24] * x[:, 16] / (1 + x[:, 25])
    y = score - np.median(score) + draw.logistic(0, 0.6, count) > 0
    return x, y.astype(np.int64)


def models(trees: int) -> dict[str, Any]:
    import lightgbm
    from sklearn.ensemble import HistGradientBoostingClassifier

    from girih.loop.apps.trees import GradientBoostedTrees

    leaves = 2**DEPTH
    return {
        "girih": lambda: GradientBoostedTrees(trees, 0.1, max_depth=DEPTH, n_jobs=THREADS, random_state=0),
        "LightGBM": lambda: lightgbm.LGBMClassifier(
            n_estimators=trees, learning_rate=0.1, max_depth=DEPTH, num_leaves=leaves, n_jobs=THREADS, verbose=-1
        ),
        "scikit-learn": lambda: HistGradientBoostingClassifier(
            max_iter=trees, learning_rate=0.1, max_depth=DEPTH, max_leaf_nodes=leaves, early_stopping=False
        ),
    }


def measure(options: argparse.Namespace) -> Report:
    from sklearn.metrics import roc_auc_score
    from threadpoolctl import threadpool_limits

    count, trees = (50_000, 20) if options.quick else (ROWS, TREES)
    x, y = rows(count + count // 5)
    kinds = models(trees)
    kinds["girih"]().set_params(n_estimators=2).fit(x[:2000], y[:2000])  # compiles
    taken: dict[str, list[Any]] = {name: [] for name in kinds}
    quality: dict[str, float] = {}
    with threadpool_limits(THREADS):  # scikit-learn's threads are OpenMP's
        for _ in range(1 if options.quick else options.repeats):
            for name, kind in kinds.items():
                model = kind()
                began = clock()
                model.fit(x[:count], y[:count])
                taken[name].append(since(began))
                if name not in quality:
                    probability = model.booster_.predict(x[count:]) if name == "LightGBM" else model.predict_proba(
                        x[count:]
                    )[:, 1]  # fmt: skip
                    quality[name] = float(roc_auc_score(y[count:], probability))
                note({"model": name, "CPU / wall s": str(taken[name][-1]), "AUC": quality[name]})
    middle = {name: median(found) for name, found in taken.items()}
    best = min((name for name in kinds if name != "girih"), key=lambda name: middle[name].wall)
    table: list[Row] = [
        {
            "model": name,
            "seconds": f"{middle[name]}",
            "wall": round(middle[name].wall / middle[best].wall, 2),
            "cpu": round(middle[name].cpu / middle[best].cpu, 2),
            "auc": round(quality[name], 4),
        }
        for name in kinds
    ]
    ratio = middle["girih"].wall / middle[best].wall
    misses = []
    if ratio > options.floor:
        misses.append(f"{ratio:.2f} × the time of {best}")
    if quality["girih"] < max(quality.values()) - NEAR:
        misses.append(f"an AUC of {quality['girih']:.4f}, the best is {max(quality.values()):.4f}")
    return Report(
        f"{trees} trees of depth {DEPTH} on {count:,} × {FEATURES} rows, {THREADS} threads",
        (("model", "model"), ("CPU / wall s", "seconds"), (f"wall / {best}", "wall"), (f"CPU / {best}", "cpu"),
         ("AUC", "auc")),
        tuple(table),
        f"{ratio:.2f} × the time of {best}, AUC {quality['girih']:.4f}",
        tuple(misses),
    )  # fmt: skip


BENCHMARK = Benchmark(
    "loops_gbt", __doc__ or "", measure, 3.0, "times the fastest peer's wall time, at most", repeats_option
)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.main())
