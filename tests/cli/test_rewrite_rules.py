"""`girih rewrite rules`, and files of rules: generated, proved, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from taso_files import encoded

from girih.cli.main import main
from girih.rewrite.rules.rule import parse

GENERATE = ["rewrite", "rules", "--operators", "mm, add, t", "--size", "2"]


def test_rules_are_generated_listed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.txt"
    assert main([*GENERATE, "-o", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "operators"
    assert [line.split()[0] for line in lines[1:3]] == ["1", "2"]
    assert "0 refuted, 0 open and never used" in lines[3]
    assert any(line.endswith("mm(mm(a, b), c) == mm(a, mm(b, c))") for line in lines)
    assert lines[-1] == f"written to {file}"
    assert main(["rewrite", "prove", str(file)]) == 0
    assert "0 refuted, 0 open" in capsys.readouterr().out


def test_rules_are_said_in_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GENERATE, "--json", "--limit", "3"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {item["verdict"] for item in said["verdicts"]} == {"proved"}
    assert len(said["rules"]) == 3
    assert said["counts"][0]["size"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rewrite", "rules", "--operators", "moon"], "no operator 'moon' is described"),
        (["rewrite", "rules", "--operators", "mm", "--size", "6"], "1 to 5 operators a side"),
        (["rewrite", "rules", "mm(a, b) == a"], "say prove"),
        (["rewrite", "rules", "-o", "."], ". is a folder"),
        (["rewrite", "prove"], "expected a rule"),
        (["rewrite", "prove", "mm(a,"], "is no rule, and no file"),
        (["rewrite", "rules", "--operators", ","], "names none"),
        (["rewrite", "rules", "--operators", "relu(dim=1)"], "relu has no attribute 'dim'"),
        (["optimize", "mlp-tiny", "-o", "plan.json", "--search", "saturation"], "do not go with it"),
    ],
)
def test_what_cannot_be_generated_is_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize("name", ["exp", "relu", "permute", "cumsum", "embedding"])
def test_an_operator_alone_may_have_no_rules(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", "rules", "--operators", name, "--size", "1"]) == 1
    assert "0 proved" in capsys.readouterr().out


def test_reductions_join_by_their_plain_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", "rules", "--operators", "sum, t", "--size", "2"]) == 0
    first = "sum.dim_IntList(sum.dim_IntList(a, dim=(1,), keepdim=True), dim=(0,), keepdim=True)"
    second = "sum.dim_IntList(sum.dim_IntList(a, dim=(0,), keepdim=True), dim=(1,), keepdim=True)"
    said = capsys.readouterr().out
    assert f"{first} == {second}" in said or f"{second} == {first}" in said


FILES = {
    "false.txt": (b"t(t(a)) == a\nmm(a, b) == mm(b, a)\n", "refuted, so not used: mm(a, b) == mm(b, a)"),
    "false.pb": (encoded([parse("mm(a, b) == mm(b, a)")]), "refuted, so not used"),
    "damaged.pb": (encoded([parse("t(t(a)) == a")])[:-3], "the file is cut off"),
    "damaged.txt": (b"mm(a, b == c\n", "damaged.txt:1:"),
    "empty.txt": (b"# nothing\n", "has no rules"),
    "words.txt": (b"\xff\x00\x01", "is no text"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_a_rule_that_is_not_proved_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, words = FILES[name]
    file, output = tmp_path / name, tmp_path / "faster.pt2"
    file.write_bytes(data)
    assert main(["optimize", "mlp-tiny", "--rules", str(file), "-o", str(output)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert not output.exists()


def test_rules_of_a_file_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.pb"
    file.write_bytes(encoded([parse("mm(a, mm(b, c)) == mm(mm(a, b), c)")]))
    arguments = ["optimize", "mlp-tiny", "--threads", "1", "--budget", "1", "--backends", "eager"]
    assert main([*arguments, "--rules", str(file), "--store", str(tmp_path / "costs.sqlite")]) == 0
    assert "operators became" in capsys.readouterr().out


def test_a_plan_is_rewritten_by_the_rules_that_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, output = tmp_path / "mine.txt", tmp_path / "plan.json"
    file.write_text("t(t(a)) == a\n")
    assert main(["optimize", "squeezenet-tiny", "--rules", str(file), "--budget", "5", "-o", str(output)]) == 0
    capsys.readouterr()
    assert main(["rewrite", "explain", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rewrites"] == []  # girih's own find some
    assert main(["optimize", "squeezenet-tiny", "--budget", "5", "-o", str(output)]) == 0
    capsys.readouterr()
    assert main(["rewrite", "explain", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rewrites"] != []


def test_rules_behind_one_that_is_none_are_judged_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rules.txt"
    wrong = "mm(a, b, c) == mm(c, a)\nx[m, n]: relu(x) == moonify(x)\n"
    file.write_text(f"{wrong}relu(relu(x)) == relu(x)\nrelu(x) == sigmoid(x)\n")
    assert main(["rewrite", "prove", str(file)]) == 2
    told = capsys.readouterr().out
    assert "proved: x[m, n]: relu(relu(x)) == relu(x)" in told
    assert "refuted: x[m, n]: relu(x) == sigmoid(x)" in told
    assert "no rule: x[m, n]: relu(x) == moonify(x)\n  no operator 'moonify' is described" in told
    assert "1 proved, 1 refuted, 0 open, 2 no rule" in told
