"""What a loop changes between two steps of `girih.fit` is taken up as PyTorch does, or refused with what to do."""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from changed_programs import AROUND, CHANGES, WITHOUT_EFFECT, Program
from torch.nn.functional import embedding, mse_loss

import girih
from girih.run.errors import WorkerError

X, Y = (torch.randn(12, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for size in (5, 3))
Change = Callable[[Any, Any], Any]


def setting(dropout: float = 0.0) -> tuple[Any, Any]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(5, 8), torch.nn.Dropout(dropout), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)]
    model = torch.nn.Sequential(*layers).double()
    model[0].bias.requires_grad_(False)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def adam(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


@torch.no_grad()
def averaged(model: Any, optimizer: Any) -> None:
    for parameter in model.parameters():
        parameter.lerp_(torch.ones_like(parameter), 0.1)


def behind_autograd(model: Any, optimizer: Any) -> None:
    for parameter in model.parameters():
        parameter.data.clamp_(-0.1, 0.1)  # which counts no version


def other_memory(model: Any, optimizer: Any) -> None:
    model[3].bias.data = torch.ones_like(model[3].bias)


def loaded(model: Any, optimizer: Any) -> None:
    model.load_state_dict(
        {key: item * 0.5 for key, item in model.state_dict().items() if item.is_floating_point()}, False
    )


def evaluated(model: Any, optimizer: Any) -> None:
    model.eval()(X)
    model.train()


def statistics(model: Any, optimizer: Any) -> None:
    with torch.no_grad():
        model(X)  # in training mode: batch norm notes what it sees


def state_loaded(model: Any, optimizer: Any) -> None:
    optimizer.load_state_dict(setting()[1].state_dict() if type(optimizer) is torch.optim.SGD else
                              adam(setting()[0]).state_dict())  # fmt: skip


def state_written(model: Any, optimizer: Any) -> None:
    for kept in optimizer.state.values():
        for key in kept.keys() & {"momentum_buffer", "exp_avg"}:
            kept[key].zero_()


def state_replaced(model: Any, optimizer: Any) -> None:
    optimizer.state = defaultdict(dict)


def in_group(**options: Any) -> Change:
    return lambda model, optimizer: optimizer.param_groups[0].update(options)


def stepped(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    mse_loss(model(X), Y).backward()
    optimizer.step()


TAKEN = {
    "averaged": averaged, "behind autograd": behind_autograd, "other memory": other_memory, "loaded": loaded,
    "evaluated": evaluated, "statistics": statistics, "optimizer state loaded": state_loaded,
    "optimizer state written": state_written, "optimizer state replaced": state_replaced,
    "optimizer state cleared": lambda model, optimizer: optimizer.state.clear(),
    "rate": in_group(lr=0.001), "decay": in_group(weight_decay=0.3),
    "an ordinary step": stepped,
}  # fmt: skip


WAYS = [(name, kind) for name in TAKEN for kind in ("sgd", "adam", "by itself")]


@pytest.mark.parametrize(("name", "kind"), WAYS)
def test_what_is_changed_holds_from_the_next_step_on(name: str, kind: str) -> None:
    """By `train.module`; or in the model by itself, whose weights are those of earlier steps until then."""
    change, losses = TAKEN[name], []
    for plain in (True, False):
        model, optimizer = setting()
        optimizer = optimizer if kind == "sgd" else adam(model)
        losses.append([])
        with nullcontext() if plain else girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
            for number in range(5):
                if number in (2, 4):
                    change(model if plain or kind == "by itself" else train.module, optimizer)
                if plain:
                    optimizer.zero_grad()
                    loss = mse_loss(model(X), Y)
                    loss.backward()
                    optimizer.step()
                losses[-1].append(loss.item() if plain else train(X, Y))
        losses[-1] += [float(item.double().sum()) for item in model.state_dict().values()]
    assert losses[1] == pytest.approx(losses[0], rel=1e-9, abs=1e-11)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda model, optimizer: model[0].bias.requires_grad_(True),
            r"requires_grad of 0.bias was False and is True",
        ),
        (lambda model, optimizer: model.eval(), r"model.training was True and is False"),
        (in_group(momentum=0.0), r"momentum of the optimizer's group 0 was 0.9 and is 0.0"),
        (in_group(nesterov=True), r"nesterov of the optimizer's group 0 was False and is True"),
        (
            lambda model, optimizer: setattr(model, "3", torch.nn.Linear(8, 3).double()),
            "the parts of the model changed",
        ),
        (lambda model, optimizer: optimizer.add_param_group({"params": [torch.nn.Parameter(X[0])]}), "group 1"),
    ],
)
def test_what_needs_another_plan_is_refused_and_can_be_undone(change: Change, words: str) -> None:
    model, optimizer = setting()
    with girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
        before = [train(X, Y), train(X, Y)]
        change(train.module, optimizer)
        for _ in range(2):
            with pytest.raises(girih.PlanError, match=f"{words}.*close"):
                train(X, Y)
        assert train.run.steps == 2
    after = model.state_dict()  # given back all the same
    model, optimizer = setting()
    with girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
        assert [train(X, Y), train(X, Y)] == before
        model.eval()
        model.train()  # which is as before
        assert train(X, Y) < before[0]
    if after.keys() == model.state_dict().keys():
        assert any(not item.equal(model.state_dict()[key]) for key, item in after.items())


def test_numbers_go_into_the_plan_and_masks_go_on() -> None:
    """A dropout's share is a constant of the plan: other workers go on, at the same step."""
    losses = []
    for share in (0.5, 0.2):
        model, optimizer = setting(0.5)
        with girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
            own = [train(X, Y), train(X, Y)]
            model[1].p = share
            own += [train(X, Y), train(X, Y)]
            assert train.run.steps == 4
        losses.append(own)
    assert losses[0][:2] == losses[1][:2]
    assert losses[0][2] != losses[1][2]


def test_on_processes_too() -> None:
    losses = []
    for change in (in_group(weight_decay=0.3), averaged, None):
        model, optimizer = setting()
        with girih.fit(model, mse_loss, optimizer, (X, Y), machine="local:2") as train:
            losses.append([train(X, Y)])
            if change is not None:
                change(train.module, optimizer)
            losses[-1] += [train(X, Y), train(X, Y)]
    assert losses[0][0] == losses[1][0] == losses[2][0]
    assert len({own[2] for own in losses}) == 3


@pytest.mark.parametrize("memory", [None, "3KB"])
def test_looking_changes_no_bit(memory: str | None) -> None:
    losses = []
    for looks in (False, True):
        model, optimizer = setting(0.3)
        optimizer = adam(model)
        with girih.fit(model, mse_loss, optimizer, (X, Y), memory=memory) as train:
            losses.append([])
            for _ in range(4):
                losses[-1].append(train(X, Y))
                if looks:
                    assert train.module is model
                    optimizer.state_dict()
    assert losses[0] == losses[1]


def test_who_reads_by_pytorch_gets_the_weights_of_now() -> None:
    model, optimizer = setting()
    with girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
        train(X, Y)
        assert all(item.equal(model.state_dict()[key]) for key, item in train.state_dict().items())
        train(X, Y)
        now = train.state_dict()
        assert all(item.equal(now[f"3.{key}"]) for key, item in model[3].state_dict().items())
        train(X, Y)
        model.eval()(X)
        assert train.state_dict()["0.weight"].equal(model[0].weight)
        model.train()
        train(X, Y)
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        assert all(train.state_dict()["0.weight"].equal(twin[0].weight) for twin in copies)
        assert {type(tensor) for twin in copies for tensor in twin.parameters()} == {torch.nn.Parameter}
        twin = copy.deepcopy(train.module)
        train(X, Y)
        assert not twin.state_dict()["0.weight"].equal(train.state_dict()["0.weight"])  # no longer of the run
    assert not any(module._forward_pre_hooks or module._state_dict_pre_hooks for module in model.modules())


READS = {
    "a parameter": lambda model, optimizer: model[0].weight.norm(),
    "an element": lambda model, optimizer: model[3].weight[1, 2],
    "all of them": lambda model, optimizer: torch.nn.utils.parameters_to_vector(model.parameters()),
    "of a group": lambda model, optimizer: optimizer.param_groups[0]["params"][2] * 2,
    "several at once": lambda model, optimizer: torch._foreach_norm([*model.parameters()])[0],
    "a buffer": lambda model, optimizer: model[2].running_mean + 0,
    "data": lambda model, optimizer: model[3].bias.data.clone(),
    "by NumPy": lambda model, optimizer: torch.from_numpy(model[3].bias.detach().numpy().copy()),
    "a copy": lambda model, optimizer: copy.deepcopy(model[3].weight),
    "momentum": lambda model, optimizer: optimizer.state[model[3].weight]["momentum_buffer"].sum(),
    "an average": lambda model, optimizer: averaged_over(model).module[0].weight,
}


def averaged_over(model: Any) -> Any:
    average = torch.optim.swa_utils.AveragedModel(setting()[0])
    average.update_parameters(model)
    return average


@pytest.mark.parametrize("name", READS)
def test_who_reads_a_tensor_by_itself_gets_the_numbers_of_now(name: str) -> None:
    seen: list[list[torch.Tensor]] = []
    for plain in (True, False):
        model, optimizer = setting()
        seen.append([])
        with nullcontext() if plain else girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
            for _ in range(3):
                stepped(model, optimizer) if plain else train(X, Y)
                seen[-1].append(READS[name](model, optimizer).detach().clone())
            kinds = {type(tensor) for tensor in (*model.parameters(), *model.buffers(), seen[-1][-1])}
            assert kinds == {torch.nn.Parameter, torch.Tensor}
    for theirs, own in zip(*seen, strict=True):
        torch.testing.assert_close(own, theirs)


def test_forms_are_asked_for_without_weights_and_the_classes_come_back() -> None:
    model, optimizer = setting()
    with girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
        train(X, Y)
        optimizer.zero_grad()
        assert sum(item.numel() for item in model.parameters() if item.requires_grad) == 83
        assert not train._fresh  # nothing was sent for that
        assert isinstance(model[0].weight, torch.nn.Parameter)
    assert {type(item) for item in model.parameters()} == {torch.nn.Parameter}


def test_a_write_around_pytorch_is_told_once() -> None:
    """What shares memory with a weight of before is a name for it, at which nobody looks."""
    model, optimizer = setting()
    alias = model[0].weight.detach()
    with girih.fit(model, mse_loss, optimizer, (X, Y)) as train:
        train(X, Y)
        alias.mul_(0.5)
        with pytest.raises(girih.PlanError, match=r"0.weight.*the weights of step 0.*at step 1.*`train.module` first"):
            train(X, Y)
        now = train.state_dict()
        assert now["0.weight"].equal(train.module[0].weight)
        train(X, Y)
        alias.mul_(0.5)
        with pytest.raises(girih.PlanError, match="changed while"):
            _ = train.module
        train(train.module and X, Y)  # told once
        alias.mul_(0.5)
        ended = train.state_dict()
        with pytest.raises(girih.PlanError, match="that is lost"):
            train.close()
    assert all(item.equal(model.state_dict()[key]) for key, item in ended.items())


@pytest.mark.parametrize("write", [
    lambda target, model: target.load_state_dict(model.state_dict()),
    lambda target, model: target[3].bias.data.mul_(0.9),
    lambda target, model: target[2].running_mean.add_(1.0),
])  # fmt: skip
def test_a_network_that_is_no_part_of_the_model_must_not_change(write: Change) -> None:
    """A target network, a teacher: its weights are constants of the plan, and were those of before without a word."""
    (model, optimizer), (target, _) = setting(), setting()
    target.eval()

    def step(model: Any, batch: Any) -> Any:
        return mse_loss(model(batch[0]), target(batch[0]).detach())

    with girih.fit(model, step=step, optimizer=optimizer, batch=(X, Y)) as train:
        assert train((X, Y)) != train((X, Y))
        write(target, model)
        with pytest.raises(girih.PlanError, match=r"target\.\S+ changed, which is no part of the model.*close"):
            train((X, Y))
        assert train.run.steps == 2


def test_a_plan_is_not_started_with_other_numbers_than_it_was_made_with() -> None:
    model, optimizer = setting()
    step = girih.TrainingStep(model, loss=mse_loss, optimizer=optimizer)
    plan = girih.plan(step, (X, Y), machine="local:1", compare=())
    optimizer.param_groups[0]["weight_decay"] = 0.5
    with pytest.raises(girih.PlanError, match=r"weight_decay of .* was 0.01 and is 0.5 .*plan again"):
        plan.start(backend="threads")
    optimizer.param_groups[0].update(weight_decay=0.01, lr=1.0)
    plan.start(backend="threads").close()


class Tokens(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = torch.nn.Embedding(11, 8), torch.nn.Embedding(6, 8)
        self.last = torch.nn.Linear(8, 11)

    def forward(self, tokens):
        return self.last(self.table(tokens) + self.places(torch.arange(tokens.shape[1])))


def next_token(model, batch):
    labels = torch.nn.functional.pad(batch["tokens"], (0, 1), value=-100)[:, 1:]
    return torch.nn.functional.cross_entropy(model(batch["tokens"]).flatten(0, 1), labels.flatten()) * batch["scale"]


TOKENS = torch.arange(24).reshape(4, 6) % 11


@pytest.mark.parametrize("parts", [1, 2])
def test_a_batch_is_as_it_was_planned_or_refused(parts: int) -> None:
    torch.manual_seed(0)
    model = Tokens()
    step = girih.TrainingStep(
        model, step=next_token, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), micro_batches=parts
    )
    good = {"tokens": TOKENS, "scale": 1.0}
    with girih.plan(step, good, machine="local:1", compare=()).start(backend="threads") as run:
        first = run.step(good)
        for change, words in (
            ({"tokens": TOKENS[:2]}, r"int64\[2, 6\].*made for int64\[4, 6\].*drop_last"),
            ({"tokens": TOKENS.int()}, "is int32"),
            ({"tokens": TOKENS.double()}, "is float64"),
            ({"tokens": TOKENS.to("meta")}, "meta device"),
            ({"tokens": TOKENS.to_sparse()}, "to_dense"),
            ({"tokens": TOKENS + 1}, r"'tokens' has the number 11: expected from 0 to 10"),
            ({"tokens": TOKENS - 1}, r"has the number -1"),
            ({"tokens": {"x": TOKENS}}, r"no tensor at \['tokens'\]"),
            ({"mask": TOKENS}, r"a tensor, \[4, 6\] at 'mask', where the plan was made with nothing"),
            ({"flag": True}, "True at 'flag'"),
            ({"scale": 2.0}, "constant of a plan"),
        ):
            with pytest.raises(girih.PlanError, match=words):
                run.step({**good, **change})
        assert run.steps == 1
        wide = TOKENS.T.contiguous().T  # other strides
        assert run.step({"scale": 1.0, "tokens": wide}) < first


class Rows(torch.nn.Module):
    """Rows of a table, by one of the ways to look them up."""

    def __init__(self, look_up) -> None:
        super().__init__()
        self.look_up, self.table = look_up, torch.nn.Parameter(torch.randn(7, 4, dtype=torch.float64))

    def forward(self, numbers):
        return self.look_up(self.table, numbers)


LOOK_UPS = {
    "index": lambda table, i: table[i],
    "index of two": lambda table, i: table[i, i % 4],
    "index_select": lambda table, i: table.index_select(0, i),
    "gather": lambda table, i: table.gather(0, i[:, None].expand(-1, 4)),
    "scatter": lambda table, i: torch.zeros_like(table[:, 0]).scatter(0, i, 2.0)[:, None] * table,
    "index_add": lambda table, i: torch.zeros_like(table).index_add(0, i, table[:6]),
    "index_put": lambda table, i: torch.zeros_like(table).index_put((i,), table[:6], accumulate=True),
    "embedding of what is computed": lambda table, i: embedding(i.view(2, 3) + 0, table * 2),
    "index that depends on the table": lambda table, i: table[torch.where(table[:6, 0] > 99, 0, i)],
    "embedding that depends on the table": lambda table, i: embedding(torch.where(table[:6, 0] > 99, 0, i), table),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_rows_are_looked_up_as_pytorch_has_it_or_refused(name: str) -> None:
    torch.manual_seed(0)
    model, good = Rows(LOOK_UPS[name]), torch.tensor([0, 1, 2, 3, 2, 1])
    step = girih.TrainingStep(
        model, step=lambda model, batch: model(batch).square().sum(), optimizer=torch.optim.SGD(model.parameters())
    )
    plan = girih.plan(step, good, machine="local:1", compare=())
    for number in (6, -1, -7, 7, -8, 9):
        numbers = good.index_fill(0, torch.tensor(3), number)
        try:
            expected = model(numbers).square().sum().item()
        except (IndexError, RuntimeError):
            expected = None
        with plan.start(backend="threads") as run:
            if expected is not None:
                assert run.step(numbers) == pytest.approx(expected)
            else:
                with pytest.raises((girih.PlanError, WorkerError), match=f"number {number}|IndexError"):
                    run.step(numbers)


def test_labels_that_are_none_are_refused_but_for_those_that_are_ignored() -> None:
    model = torch.nn.Linear(5, 7).double()
    labels = torch.arange(12) % 7
    with girih.fit(model, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters()), (X, labels)) as train:
        for wrong in (7, -1):
            with pytest.raises(girih.PlanError, match=f"'1' has the number {wrong}: expected from 0 to 6 or -100"):
                train(X, labels.masked_fill(labels == 3, wrong))
        assert train(X, labels.masked_fill(labels == 3, -100)) > 0
        with pytest.raises(girih.PlanError, match="'2', where the plan was made with nothing"):
            train(X, labels, X)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, -1, 3, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_that_are_ignored_are_never_refused_and_others_are(reduction: str, ignored: int, weighted: bool) -> None:
    weight = torch.arange(1.0, 8.0, dtype=torch.float64) if weighted else None
    each = torch.nn.CrossEntropyLoss(weight, ignore_index=ignored, reduction=reduction)
    model, labels = torch.nn.Linear(5, 7).double(), (torch.arange(12) % 7).masked_fill(torch.arange(12) < 3, ignored)
    expected = each(model(X), labels).sum().item()

    def loss(output, classes):
        return each(output, classes).sum()

    with girih.fit(model, loss, torch.optim.SGD(model.parameters()), (X, labels)) as train:
        for wrong in {7, 9, -1, -2} - {ignored}:
            with pytest.raises(girih.PlanError, match=f"the number {wrong}: expected from 0 to 6"):
                train(X, labels.masked_fill(labels == 4, wrong))
        assert train(X, labels) == pytest.approx(expected)


def test_a_step_under_another_autocast_is_refused() -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(2, 4), torch.tensor([0, 1])
    with girih.fit(model, torch.nn.functional.cross_entropy, optimizer, batch) as train:
        train(*batch)
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(girih.PlanError, match=r"autocast of torch was None"):
            train(*batch)
        train(*batch)
        with train.plan.start(backend="threads") as run:
            run.step(*batch)
            with torch.autocast("cpu", torch.bfloat16), pytest.raises(girih.PlanError, match=r"under torch\.autocast"):
                run.step(*batch)
            run.step(*batch)


@pytest.mark.parametrize("part", [torch.nn.Identity(), torch.nn.Linear(8, 4).double()])
def test_what_is_replaced_while_its_weights_are_stale_is_told(part: torch.nn.Module) -> None:
    model, optimizer = setting()
    train = girih.fit(model, mse_loss, optimizer, (X, Y))
    train(X, Y)
    model[3] = part
    with pytest.raises(girih.PlanError, match=r"3\.weight"):
        train(X, Y)
    train.close()
    assert train.run is None


ROWS = torch.linspace(-2.0, 2.0, 48).reshape(6, 8)
NUMBERS = {"a number", "another type", "an item of a list", "an item of a dictionary", "a number of an object"}
NUMBERS |= {"a constant of the file", "an object of the file", "a constant of the class", "a constant of another class"}
NUMBERS |= {"a buffer, replaced", "a parameter, turned"}
"""Changes with which the step has the same operators: they are taken up, around a step for this step."""


def program() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = Program()
    model.drop.p = 0.0
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def to_rows(output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (output - rows[:, : output.shape[-1]]).square().mean()


@pytest.mark.parametrize("name", [*CHANGES, *AROUND])
def test_a_program_that_is_changed_or_stands_elsewhere(name: str) -> None:
    """It makes the steps that PyTorch makes, or refuses them; what was only around a refused step is forgotten."""
    losses: list[list[float]] = []
    for plain in (True, False):
        model, optimizer = program()
        losses.append([])
        with nullcontext() if plain else girih.fit(model, to_rows, optimizer, (ROWS, ROWS)) as train:
            for number in range(4):
                here = name in AROUND and number == 2 and not (plain and name in WITHOUT_EFFECT)
                if name in CHANGES and number == 2:
                    with torch.no_grad():
                        CHANGES[name](model if plain else train.module)
                x = ROWS.to(model.first.weight.dtype)
                with AROUND[name if here else "nothing"]():
                    if plain:
                        optimizer.zero_grad()
                        loss = to_rows(model(x), x)
                        loss.backward()
                        optimizer.step()
                        losses[-1].append(loss.item())
                    elif number < 2 or name in NUMBERS | WITHOUT_EFFECT:
                        losses[-1].append(train(x, x))
                    elif here or name in CHANGES:
                        with pytest.raises(girih.PlanError):
                            train(x, x)
                    else:
                        train(x, x)
    assert losses[1] == pytest.approx(losses[0][: len(losses[1])], rel=1e-5)


@pytest.mark.parametrize("name", [*CHANGES, *AROUND])
def test_a_plan_is_not_started_for_another_program(name: str) -> None:
    model, optimizer = program()
    step = girih.TrainingStep(model, loss=to_rows, optimizer=optimizer)
    plan = girih.plan(step, (ROWS, ROWS), machine="local:1", compare=())
    with torch.no_grad():
        CHANGES.get(name, lambda model: None)(model)
    with AROUND.get(name, AROUND["nothing"])():
        if name in WITHOUT_EFFECT or name in ("a buffer, replaced", "a parameter, turned"):
            plan.start(backend="threads").close()
        else:
            with pytest.raises(girih.PlanError, match="since the step was planned"):
                plan.start(backend="threads")


def test_a_batch_that_is_one_tensor_is_named_as_the_batch() -> None:
    torch.manual_seed(0)
    model = Rows(LOOK_UPS["index"])
    step = girih.TrainingStep(
        model, step=lambda model, batch: model(batch).sum(), optimizer=torch.optim.SGD(model.parameters())
    )
    numbers = torch.tensor([0, 1, 2, 3, 2, 1])
    plan = girih.plan(step, numbers, machine="local:1", compare=())
    wrong = {
        r"^the batch has the number 7: expected": numbers + 6,
        r"^the batch is int64\[7\]; the plan was made for": torch.arange(7),
        r"^the batch is on the meta device": numbers.to("meta"),
        r"^the batch has tensors at \['x'\], and the plan was made with one tensor": {"x": numbers},
    }
    with plan.start(backend="threads") as run:
        for text, batch in wrong.items():
            with pytest.raises(girih.PlanError, match=text):
                run.step(batch)
    with pytest.raises(girih.CaptureError, match=r"^the batch is a NumPy array: make it"):
        girih.plan(step, numbers.numpy(), machine="local:1", compare=())
    with pytest.raises(girih.CaptureError, match=r"^the batch is torch\.sparse_coo: give it"):
        girih.plan(step, torch.eye(3).to_sparse(), machine="local:1", compare=())
