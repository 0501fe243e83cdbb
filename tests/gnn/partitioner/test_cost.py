"""The learned cost: it finds the weights behind times, says how well, is kept in a file, and holds for other graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.cost import CostModel, Layer
from girih.gnn.partitioner.features import Access, Features
from girih.store.sealed import StoredError

LAYERS = (Layer(10, 4), Layer(4, 3, back=True))
ACCESS = Access(line=4, caches=(400,))
TRUE = np.array([[3e-6, 0, 2e-7, 0, 1e-7, 5e-7, 1e-5], [1e-6, 4e-7, 0, 0, 0, 1e-6, 2e-5]])


def skewed(seed: int, vertices: int = 60, edges: int = 400) -> Adjacency:
    """Vertices of which the first read most."""
    random = np.random.default_rng(seed)
    ends = (random.random((2, edges)) ** 2 * vertices).astype(np.int64)
    return Adjacency.of_edges(ends[0], ends[1], vertices)


def taken(known: Features, cuts: list[int], noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """What the layers take where `TRUE` is the truth."""
    random = np.random.default_rng(seed)
    times = [
        np.column_stack([known.between(cuts, layer.reading), np.diff(cuts) > 0]) @ weights
        for layer, weights in zip(LAYERS, TRUE, strict=True)
    ]
    return np.array(times) * (1 + noise * random.standard_normal((len(LAYERS), len(cuts) - 1)))


def taught(noise: float = 0.0, graphs: int = 30) -> CostModel:
    model = CostModel(LAYERS, ACCESS)
    for seed in range(graphs):
        known = model.features(skewed(seed))
        cuts = [0, *sorted(np.random.default_rng(seed).integers(1, 60, 3).tolist()), 60]
        model = model.learned(known, cuts, taken(known, cuts, noise, seed))
    return model


@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.01), (0.05, 0.06)])
def test_times_of_unseen_graphs_are_predicted(noise: float, most: float) -> None:
    model = taught(noise)
    known = model.features(skewed(1000, 80, 900))
    cuts = [0, 7, 30, 30, 80]
    told, truth = model.seconds(known, cuts), taken(known, cuts)
    assert told == pytest.approx(truth, rel=most)
    assert (told[:, 2] == 0).all()  # a piece without vertices
    for quality in model.tested(known, cuts, truth):
        assert quality.samples == 3
        assert quality.error <= most
        assert quality.r2 > 0.99


def test_what_was_predicted_before_it_was_learned_is_summed_up() -> None:
    model = taught(0.05)
    assert model.samples >= 2 * 29 * 3  # some cuts coincide
    for quality in model.quality():
        assert 0.02 < quality.error < 0.12
        assert 0.9 < quality.r2 <= 1
    assert "nothing predicted yet" in str(CostModel(LAYERS, ACCESS))
    assert "mean error" in str(model)


def test_no_weight_is_negative_so_that_costs_ascend() -> None:
    """Times that fall with the edges, which no such model has."""
    model = CostModel(LAYERS, ACCESS)
    for seed in range(10):
        known = model.features(skewed(seed))
        sizes = np.diff(known.of((10, False))[[0, 10, 60], 1])
        model = model.learned(known, [0, 10, 60], np.tile(1 / sizes, (2, 1)))
    assert (model.weights >= 0).all()
    assert (np.diff(model.running(known)) >= 0).all()


def test_a_first_epoch_sets_the_scale_and_keeps_the_guessed_shape() -> None:
    """Of one piece: as many samples as layers, and more weights than samples."""
    model = CostModel(LAYERS, ACCESS)
    graph = skewed(0)
    known = model.features(graph)
    before = model.running(known)
    after = model.learned(known, [0, 60], model.seconds(known, [0, 60]) * 7).running(known)
    assert after == pytest.approx(7 * before, rel=1e-3)


def test_what_was_learned_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "cost.json")
    model = taught(0.05, 5)
    model.save(path)
    again = CostModel.load(path)
    assert (again.layers, again.access, again.samples) == (model.layers, model.access, model.samples)
    assert (again.weights == model.weights).all()
    known = model.features(skewed(3))
    times = taken(known, [0, 20, 60])
    assert (again.learned(known, [0, 20, 60], times).weights == model.learned(known, [0, 20, 60], times).weights).all()


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    taught(0, 2).save(str(path))
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"line":4', b'"line":5'))
    with pytest.raises(StoredError, match=r"cost\.json is damaged"):
        CostModel.load(str(path))
    path.write_bytes(b"{}")
    with pytest.raises(StoredError, match=r"cost\.json is no cost of graph layers"):
        CostModel.load(str(path))
    with pytest.raises(OSError, match="none"):
        CostModel.load(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (np.ones((2, 3)), r"expected \(2, 2\)"),
        (np.array([[1.0, 0.0], [1.0, 1.0]]), "seconds above 0"),
        (np.array([[1.0, np.nan], [1.0, 1.0]]), "seconds above 0"),
    ],
)
def test_times_that_are_none_are_refused(times: np.ndarray, words: str) -> None:
    model = CostModel(LAYERS, ACCESS)
    known = model.features(skewed(0))
    with pytest.raises(ValueError, match=words):
        model.learned(known, [0, 30, 60], times)


def test_layers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        CostModel(())
    with pytest.raises(ValueError, match="at least one value that is gathered"):
        Layer(0, 4)
