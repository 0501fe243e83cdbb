"""`girih gnn`: a graph is shown, written, learned and judged at the shell; bad input is one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from girih import gnn
from girih.cli.main import main

TRAIN = ["gnn", "train", "karate", "--hidden", "8", "--epochs", "6", "--every", "3"]


def said(capsys: pytest.CaptureFixture, *arguments: str, code: int = 0) -> str:
    assert main([*arguments]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_info(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n0 1\n1 1\n3 4\n")
    path = str(tmp_path / "graph.npz")
    text = said(capsys, "gnn", "info", str(tmp_path / "edges.txt"), "-o", path)
    assert "5 vertices, 3 edges (an edge without its reverse is there)" in text
    assert "neighbours of a vertex: 0 to 2, 0.6 on average; 3 have none, 1 read themselves" in text
    assert "components: 3" in text
    assert "mended: 1 duplicate edge dropped" in text
    assert gnn.load(path).edges == 3
    numbers = json.loads(said(capsys, "gnn", "info", path, "--json"))
    assert (numbers["vertices"], numbers["components"], numbers["self_loops"]) == (5, 3, 1)
    options = ("--undirected", "--self-loops", "drop", "--vertices", "6")
    numbers = json.loads(said(capsys, "gnn", "info", str(tmp_path / "edges.txt"), "--json", *options))
    assert (numbers["vertices"], numbers["edges"], numbers["directed"]) == (6, 4, False)
    text = said(capsys, "gnn", "info", "karate")
    assert "classes: 4, of 13, 12, 4, 5 vertices\nsplit: 4 for train, 30 for test" in text


def test_training_and_inference(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    model, kept, classes = (str(tmp_path / name) for name in ("karate.pt", "checkpoint", "classes.csv"))
    lines = said(capsys, *TRAIN, "-o", model, "--save", kept).splitlines()
    assert lines[0].startswith("one device: a step takes")
    assert [line.split()[1] for line in lines[1:3]] == ["3", "6"]
    text = said(capsys, "gnn", "infer", "karate", "--weights", model, "-o", classes)
    assert text.splitlines()[2].split(", ")[1] == f"test {lines[2].split()[-1]}"  # as training said of its last epoch
    rows = Path(classes).read_text().splitlines()
    assert rows[0] == "vertex,class"
    assert len(rows) == 35
    outputs = str(tmp_path / "outputs.npy")
    said(capsys, "gnn", "infer", "karate", "--weights", model, "-o", outputs)
    assert np.load(outputs).argmax(1).tolist() == [int(row.split(",")[1]) for row in rows[1:]]
    more = json.loads(said(capsys, *TRAIN, "--resume", kept, "--json"))
    assert [row["epoch"] for row in more["epochs"]] == [9, 12]
    again = json.loads(said(capsys, *TRAIN, "--weights", model, "--json"))
    assert again["epochs"][0]["loss"] < json.loads(said(capsys, *TRAIN, "--json"))["epochs"][0]["loss"]


@pytest.mark.parametrize("network", ["sage", "gat", "gin", "commnet", "residual-gcn"])
def test_every_network_is_written_and_read(capsys: pytest.CaptureFixture, tmp_path: Path, network: str) -> None:
    options = ["--heads", "2"] if network == "gat" else []
    model = str(tmp_path / "network.pt")
    said(capsys, *TRAIN, "--network", network, *options, "-o", model)
    assert "right: train" in said(capsys, "gnn", "infer", "karate", "--weights", model)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("info nowhere.npz", "nowhere.npz: there is no such file; expected an .npz file"),
        ("info edges.txt", "edges.txt:2: no edge in 'x y'"),
        ("info karate --epochs 3", "girih gnn info takes no --epochs"),
        ("train karate --pieces 3", "girih gnn train takes no --pieces"),
        ("train karate --heads 2", "--heads is for --network gat, got gcn"),
        ("train karate --network gat --heads 3", "hidden=64 does not divide into heads=3"),
        ("train grid:rows=3,columns=3", "grid has no features to learn: give --features FILE"),
        ("train karate -o nowhere/model.pt", "there is no folder nowhere"),
        ("infer karate", "girih gnn infer needs --weights FILE"),
        ("infer karate --weights nowhere.pt", "there is no file nowhere.pt: girih gnn train -o FILE writes one"),
        ("infer karate --weights edges.txt", "edges.txt is damaged, or no network of girih gnn train"),
        ("infer karate --weights other.pt", "other.pt is no network of girih gnn train"),
        ("infer karate --weights other.pt -o x.txt", "expected .npy, for the outputs, or .csv"),
    ],
)
def test_bad_input(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("edges.txt").write_text("0 1\nx y\n")
    torch.save({"a": 1}, "other.pt")
    error = said(capsys, "gnn", *arguments.split(), code=2)
    assert says in error
    assert len([line for line in error.splitlines() if line.startswith("girih gnn:")]) == 1


def test_a_network_for_other_features_is_refused(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    model = str(tmp_path / "karate.pt")
    said(capsys, *TRAIN, "-o", model)
    error = said(capsys, "gnn", "infer", "community:vertices=20,features=3", "--weights", model, code=2)
    assert "reads 34 features of each vertex, community has 3" in error


def test_partition(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    path = str(tmp_path / "pieces.npy")
    text = said(
        capsys, "gnn", "partition", "grid:rows=20,columns=10", "--pieces", "4", "--cost", "vertices", "-o", path
    )
    assert "4 pieces" in text
    assert np.bincount(np.load(path)).tolist() == [50, 50, 50, 50]
    numbers = json.loads(said(capsys, "gnn", "partition", "karate", "--order", "given,bfs", "--json"))
    assert sum(numbers["vertices"]) == 34
    assert numbers["cost"] >= numbers["bound"] > 0
    assert "no order 'best'" in said(capsys, "gnn", "partition", "karate", "--order", "best", code=2)
    assert "nowhere.json" in said(capsys, "gnn", "partition", "karate", "--cost", "nowhere.json", code=2)
