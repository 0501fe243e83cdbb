"""Bad input at the shell: one line on the error stream, exit code 2, nothing printed, nothing left behind."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import forked_programs
import pytest

from girih.cli import terminal
from girih.cli.arguments import did_you_mean
from girih.cli.main import main
from girih.report import progress as progress_module

OWN = '''"""Programs that go wrong in different ways."""
import girih
import torch
import beside
from torch.nn import functional as F

def model(): return torch.nn.Linear(8, 3)

def training():
    own = model()
    step = girih.TrainingStep(own, loss=F.mse_loss, optimizer=torch.optim.SGD(own.parameters(), lr=0.1))
    return step, (torch.randn(4, 8), torch.randn(4, 3))

def raises():
    return {}["data"]

def needs(path): return path

def three(): return 1, 2, 3

def no_step(): return model(), torch.randn(4, 8)

def other_optimizer():
    own = model()
    optimizer = torch.optim.LBFGS(own.parameters())
    return girih.TrainingStep(own, loss=F.mse_loss, optimizer=optimizer), torch.randn(4, 8)

def other_model():
    return girih.TrainingStep(model(), F.mse_loss, torch.optim.SGD(model().parameters(), lr=0.1)), torch.randn(4, 8)

def wrong_shape():
    return girih.TrainingStep(model(), loss=F.mse_loss), (torch.randn(4, 9), torch.randn(4, 3))

def many_losses():
    return girih.TrainingStep(model(), step=lambda net, x: net(x)), torch.randn(4, 8)

def arrays():
    return girih.TrainingStep(model(), loss=F.mse_loss), (torch.randn(4, 8).numpy(), torch.randn(4, 3))

number = 3
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("own")
    (where / "own.py").write_text(OWN)
    (where / "beside.py").write_text("")
    (where / "imports.py").write_text("import torch\nimport nothing_of_that_name\n")
    (where / "syntax.py").write_text("def training(:\n")
    (where / "junk.json").write_bytes(b"PK\x03\x04")
    (where / "other.json").write_text("{}")
    assert main(["plan", "mlp-tiny", "--no-compare", "-o", str(where / "plan.json")]) == 0
    (where / "cut.json").write_text((where / "plan.json").read_text()[:2000])
    return where


PLAN = ["plan", "mlp-tiny", "--no-compare"]
RUN = ["run", "plan.json", "--backend", "threads", "--steps", "1"]

# What is typed in `folder`, and what the line says.
LINES: list[tuple[list[str], str]] = [
    (["plan", "gpt-tny"], "no model 'gpt-tny': did you mean gpt-tiny"),
    (["models", "wresnet"], "names of this family are wresnet-DEPTH-WIDTH"),
    (["models", "zebra"], "no model 'zebra'; names are mlp"),
    (["ops", "gtp2"], "did you mean gpt2"),
    (["plan"], "the following arguments are required: MODEL; see girih plan --help"),
    ([], "the following arguments are required: COMMAND; see girih --help"),
    (["plann", "mlp-tiny"], "no 'plann': did you mean plan?"),
    ([*PLAN, "--memry", "3"], "no argument '--memry': did you mean --memory?"),
    ([*PLAN, "--search", "exakt"], "argument --search: no 'exakt': did you mean exact?"),
    ([*PLAN, "--search", "zebra"], "no 'zebra': expected one of portfolio, exact"),
    ([*PLAN, "--objective", "byte"], "did you mean bytes?"),
    ([*PLAN, "--optimizer", "adma"], "did you mean adamax or adam or radam?"),
    ([*PLAN, "--machine", "k80cluster"], "no machine 'k80cluster': did you mean k80-cluster"),
    ([*PLAN, "--machine", "moon"], "no machine 'moon': expected local:N"),
    ([*PLAN, "--machine", "local:0"], "a machine has at least one device"),
    (["machines", "sumit"], "did you mean summit?"),
    (
        [*PLAN, "--batch", "0"],
        "argument --batch: expected a whole number of at least 1 and at most 1000000000, got '0'",
    ),
    (
        [*PLAN, "--batch", "many"],
        "argument --batch: expected a whole number of at least 1 and at most 1000000000, got 'many'",
    ),
    (["plan", "mlp-tiny@many"], "no batch 'many' in 'mlp-tiny@many': expected a whole number, as in mlp-tiny@32"),
    ([*PLAN, "--seconds", "-1"], "argument --seconds: expected seconds, more than 0 and at most a year, got '-1'"),
    ([*PLAN, "--memory", "lots"], "no amount of memory"),
    (
        [*PLAN, "--memory", "-1MB"],
        "argument --memory: '-1MB' is no amount of memory: expected a number above 0 with B, KB",
    ),
    ([*PLAN, "--seconds", "-1e3"], "argument --seconds: expected seconds, more than 0 and at most a year, got '-1e3'"),
    ([*PLAN, "--objective", "bytes", "--memory", "10B"], "cannot be met, whatever is moved out"),
    ([*PLAN, "--objective", "bytes", "--memory", "10B", "--hold", "none"], "does not fit"),
    ([*PLAN, "-o", "."], ". is a folder: give the name of a file to write"),
    ([*PLAN, "-o", "junk.json/plan.json"], "junk.json/plan.json cannot be written"),
    (["plan", "own.py"], "own.py: say which function makes the step and the batch, as own.py:training"),
    (["plan", "nowhere.py:training"], "there is no file nowhere.py"),
    (["plan", "own.txt:training"], "expected the name of a model, or file.py:function"),
    (["plan", "own.py:trainign"], "own.py has no function 'trainign': did you mean training?"),
    (["plan", "own.py:number"], "own.py has no function 'number'"),
    (["plan", "own.py:raises"], """own.py:15: `return {}["data"]` raises KeyError: 'data'"""),
    (["plan", "own.py:needs"], "own.py:needs raises TypeError: needs() missing 1 required positional argument: 'path'"),
    (["plan", "own.py:three"], "must return a girih.TrainingStep (or Inference) and a batch, got int and int and int"),
    (["plan", "own.py:no_step"], "and a batch, got Linear and Tensor"),
    (["plan", "own.py:other_optimizer"], "LBFGS computes the loss by itself"),
    (["plan", "own.py:other_model"], "is not one of the model's: make the optimizer from model.parameters()"),
    (["plan", "own.py:wrong_shape"], "fails at aten.addmm(float32[3], float32[4, 9], float32[8, 3])"),
    (["plan", "own.py:many_losses"], "the loss must be a tensor of one floating-point number, got (4, 3)"),
    (["plan", "own.py:training", "--batch", "16"], "--batch 16 is for models by name: own.py:training makes its own"),
    (["plan", "own.py:training", "--optimizer", "adamw"], "--optimizer adamw is for models by name"),
    (["plan", "own.py:arrays"], "the batch has a NumPy array at '0'"),
    (["plan", "imports.py:training"], "imports.py:2: `import nothing_of_that_name` raises ModuleNotFoundError"),
    (["plan", "syntax.py:training"], "syntax.py:1: invalid syntax: `def training(:`"),
    (["show", "missing.json"], "there is no file missing.json"),
    (["show", "junk.json"], "junk.json is no plan"),
    (["show", "other.json"], "other.json is no plan"),
    (["show", "cut.json"], "cut.json is no plan"),
    (["show", "plan.json", "--device", "9"], "no device 9: the plan has devices 0 to 1"),
    (["show", "plan.json", "--devcie", "1"], "did you mean --device?"),
    (["compare", "plan.json", "missing.json"], "there is no file missing.json"),
    (["run", "missing.json"], "there is no file missing.json"),
    ([*RUN, "--steps", "0"], "argument --steps: expected a whole number of at least 1 and at most 1000000000, got '0'"),
    ([*RUN, "--backend", "proceses"], "no 'proceses': did you mean processes?"),
    ([*RUN, "--lr", "nan"], "argument --lr: expected a number of at least 0 and at most 1e+06, got 'nan'"),
    ([*RUN, "--timeout", "0"], "argument --timeout: expected seconds, more than 0"),
    ([*RUN, "--resume", "nowhere"], "nowhere holds no checkpoint"),
    ([*RUN, "--save", "junk.json"], "junk.json exists and is no checkpoint"),
    (["checkpoint", "show", "nowhere"], "nowhere holds no checkpoint"),
    (["checkpoint", "verify", "junk.json"], "junk.json/girih.json cannot be read: Not a directory"),
    (["checkpoint", "export", "nowhere"], "export takes DIR and NEW, got 1 directories"),
    (["checkpoint", "show", "one", "two"], "show takes DIR, got 2 directories"),
    (["checkpoint", "import", "nowhere", "new"], "nowhere/.metadata cannot be read: No such file or directory"),
    (["checkpoint", "import", ".", "junk.json"], "cannot be read"),
    (["checkpoint", "import", ".", "new", "--step", "-1"], "expected a whole number from 0"),
    (["checkpoint", "improt", ".", "new"], "did you mean import?"),
    ([*RUN, "--save", "junk.json/here"], "junk.json/here cannot be written"),
]


def girih(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(("arguments", "message"), LINES, ids=[" ".join(line) for line, _ in LINES])
def test_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    code, out, err = girih(capsys, arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert err.startswith("girih")
    assert sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts) == before


def test_the_traceback_on_demand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(terminal.BadInputError) as caught:
        main(["plan", "own.py:raises", "--traceback"])
    cause = caught.value.__cause__
    assert cause is not None
    assert isinstance(cause.__cause__, KeyError)


def test_programs_import_what_lies_beside_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert girih(capsys, ["plan", f"{folder / 'own.py'}:training", "--no-compare"])[0] == 0
    assert "own" not in sys.modules


def test_workers_that_fail_are_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.chdir(folder)
    code, _, err = girih(capsys, [*RUN, "--timeout", "0.000001"])
    assert code == 1
    assert re.search(r"girih run: worker \d did not finish", err), err  # the other may have been quick enough


def test_a_pipe_sees_every_step_when_it_is_done(folder: Path) -> None:
    command = [sys.executable, "-m", "girih", "run", str(folder / "plan.json"), "--steps", "3", "--backend", "threads"]
    done = forked_programs.run(command, timeout=240)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["step", "1"], ["step", "2"], ["step", "3"]]
    assert lines[3].endswith("in 3 steps (as planned)")


def test_a_reader_may_stop_when_it_has_seen_enough(folder: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m girih show {shlex.quote(str(folder / 'plan.json'))} --graph"
    done = subprocess.run(["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Broken pipe" not in done.stderr


def test_progress_in_a_pipe_is_a_plain_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal.TerminalProgress() as progress:
        progress("search", 0.25)
    assert capsys.readouterr().err == ""  # too soon
    monkeypatch.setattr(progress_module, "SECONDS_BETWEEN_LINES", 0.0)
    with terminal.TerminalProgress() as progress:
        progress("search", 0.25)
        progress("check", 0.0)
    assert capsys.readouterr().err == "girih: search 25%\ngirih: check\n"
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with terminal.TerminalProgress() as progress:
        progress("search", 0.5)
    assert capsys.readouterr().err == ""


def test_near_names() -> None:
    assert did_you_mean("Exakt", ["exact", "greedy"]) == ": did you mean exact?"
    assert did_you_mean("row", ["row", "rows", "column"]) == ": did you mean row or rows?"
    assert did_you_mean("zebra", ["exact"]) == ""
