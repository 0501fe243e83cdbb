"""What words of memory tell of a model: each change that counts, and none that does not."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from girih.capture import Inference
from girih.capture.torch.settings import Settings
from girih.capture.torch.weights import Weights
from girih.inference.calls import call_of
from girih.inference.quick import way, words
from girih.inference.quick.way import NO, Watch, model_way, quick_way
from girih.inference.quick.words import Words, form_of, of_dictionaries, of_lists, of_references, of_sets, of_tensors


def of(tensors: list[torch.Tensor]) -> Words:
    found = of_tensors(tensors)
    assert found is not None
    return Words([found[0]], [], [found[1]], found[2])


def plain() -> torch.Tensor:
    return torch.arange(24.0).reshape(2, 3, 4)


def slid(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat((torch.zeros(1), tensor.flatten()))[1:].view(tensor.shape)


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "in place": lambda x: x.add_(1),
    "in place, of another part": lambda x: x[0, 0].zero_(),
    "by .data": lambda x: x.data.mul_(2),
    "by NumPy": lambda x: x.numpy(force=True).__imul__(2),
    "by a view": lambda x: x.view(-1)[12].fill_(0),
    "other data": lambda x: setattr(x, "data", plain() + 1),
    "equal data elsewhere": lambda x: setattr(x, "data", plain()),
    "turned": lambda x: setattr(x, "data", x.data.transpose(0, 1)),
    "of another form": lambda x: setattr(x, "data", x.data.view(4, 3, 2)),
    "of fewer dimensions": lambda x: setattr(x, "data", x.data.view(24)),
    "of another type": lambda x: setattr(x, "data", x.data.view(torch.bfloat16 if x.requires_grad else torch.int32)),
    "negated": lambda x: setattr(x, "data", torch._neg_view(x.data)),
    "at another place": lambda x: setattr(x, "data", slid(x.data)),
    "resized": lambda x: x.data.resize_(100),
    "no memory": lambda x: x.untyped_storage().resize_(0),
    "swapped": lambda x: torch.utils.swap_tensors(x, type(x)(plain() + 1)),
    "another class": lambda x: setattr(x, "__class__", type("Other", (type(x),), {})),
}


@pytest.mark.parametrize("kind", [torch.Tensor, nn.Parameter])
@pytest.mark.parametrize("name", WRITES)
def test_what_is_done_to_a_tensor_shows_in_its_words(name: str, kind: type[torch.Tensor]) -> None:
    tensor, other = plain(), nn.Parameter(torch.ones(5))
    tensor = nn.Parameter(tensor) if kind is nn.Parameter else tensor
    found = of_tensors([other, tensor])
    assert found is not None
    known = Words([found[0]], [of_references([(other, type(other)), (tensor, type(tensor))])], [found[1]], found[2])
    assert known.same()
    with torch.no_grad():
        WRITES[name](tensor)
    assert not known.same()


def test_what_is_read_of_a_tensor_does_not_show() -> None:
    tensors = [plain(), torch.tensor(3), torch.ones((), dtype=torch.bfloat16), torch.zeros(0), torch.ones(3).t(),
               torch.ones(2, 1, 2, 1, 2), torch.rand(7)[3:], torch.zeros(3, dtype=torch.bool)]  # fmt: skip
    weights = [nn.Parameter(torch.rand(size)) for size in ((), (3,), (3, 4), (2, 3, 4, 5))]
    known = of([*tensors, *weights])
    kept = [tensor.detach() for tensor in tensors]
    (sum(weight.sum() for weight in weights) * plain().sum()).backward()
    weights[0].requires_grad_(False)
    views, arrays = [tensor[...] for tensor in tensors], [weight.data.numpy() for weight in weights]
    del views, arrays, kept
    gc.collect()
    assert known.same()
    assert known.now() == known.known


def test_a_write_into_each_of_many_tensors_shows() -> None:
    tensors = [torch.rand(size) for size in ((), (1,), (3,), (64,), (3, 5), (4, 3, 3, 3), (2, 2, 2, 2, 2))]
    tensors += [torch.rand(100)[part : part + 3] for part in range(4)]
    tensors += [torch.ones(5, dtype=kind) for kind in (torch.bfloat16, torch.int8, torch.int64, torch.bool)]
    for tensor in tensors:
        known = of(tensors)
        (tensor.data.logical_not_() if tensor.dtype is torch.bool else tensor.data.add_(1))
        assert not known.same()
        known = of(tensors)
        tensor.zero_()
        assert not known.same()


def test_numbers_of_inference_mode_are_compared() -> None:
    with torch.inference_mode():
        tensor = plain()
    known = of([tensor])
    assert known.same()
    with torch.inference_mode():
        tensor.add_(1)
    assert not known.same()


def test_words_are_not_known_of_tensors_that_keep_sizes_elsewhere() -> None:
    assert of_tensors([torch.zeros([1] * 5)]) is not None
    assert of_tensors([torch.zeros([1] * 6)]) is None


def test_words_behind_are_not_read_where_they_may_be_gone() -> None:
    """A tensor that was swapped for another, which is gone, and memory that was given back: nothing is read there."""
    tensor, huge = plain(), torch.zeros(1 << 24)
    known = of([tensor, huge])
    torch.utils.swap_tensors(tensor, torch.ones(2))
    assert known.now() is None
    known = of([huge])
    huge.untyped_storage().resize_(0)
    gc.collect()
    assert known.now() is None


def test_each_change_of_a_dictionary_shows() -> None:
    if words._place_in_dictionary() is None:
        pytest.skip("this version of Python counts the changes of dictionaries elsewhere")
    ordinary, ordered, empty = {"a": 1, "b": 2}, OrderedDict(a=1), dict[str, int]()
    every: list[dict[str, int]] = [ordinary, ordered, empty]
    found = of_dictionaries(every)
    known = Words(counted=[found], keep=every)
    for change in (
        lambda: ordinary.update(a=3),
        lambda: ordinary.pop("b"),
        lambda: ordered.update(b=1),
        lambda: ordered.popitem(),
        lambda: empty.setdefault("c", 1),
        lambda: empty.clear(),
    ):
        assert known.same()
        change()
        assert not known.same()
        known.known = known.now() or known.known


class Old:
    pass


class New(Old):
    pass


def test_another_class_shows() -> None:
    some = Old()
    known = Words([of_references([(some, Old)])], keep=some)
    assert known.same()
    some.__class__ = New
    assert not known.same()


def test_other_items_of_a_list_show() -> None:
    items, other = [Old(), 1000, "a"], Old()
    changes: list[Callable[[], object]] = [
        lambda: items.__setitem__(1, other),
        lambda: items.append(3),
        lambda: items.reverse(),
        lambda: items.clear(),
        lambda: items.extend(range(1000, 3000)),
    ]
    for change in changes:
        found = of_lists([items])
        assert found is not None
        known = Words([found[0]], behind=[found[1]], keep=items)
        assert known.same()
        change()
        assert not known.same()


MISSING: dict[str, Callable[[Any], None]] = {
    "of_attributes": lambda objects: None,
    "of_dictionaries": lambda mappings: None,
    "of_references": lambda pairs: None,
    "of_lists": lambda lists: None,
    "of_sets": lambda sets: None,
    "of_tensors": lambda tensors: None,
}


def test_other_items_of_a_set_show() -> None:
    changes: list[Callable[[set[int]], object]] = [
        lambda items: items.add(3),
        lambda items: items.remove(1),
        lambda items: items.update(range(99)),
    ]
    for change in changes:
        items = {1, 2}
        known = Words(counted=[of_sets([items])], keep=items)
        assert known.same()
        change(items)
        assert not known.same()
    assert of_sets([set(range(99))]) is None


class Listed(nn.Sequential):
    """A list, a set and a class of the user's, a variable of a function around it."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.scales, self.names = [1.0, 2.0], {"a"}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scales[0]


@pytest.mark.parametrize("missing", ["", *MISSING])
def test_what_has_no_words_is_asked_for(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in versions of Python and PyTorch in which these are elsewhere."""
    if missing:
        monkeypatch.setattr(way, missing, MISSING[missing])
    changes: list[Callable[[Any], object]] = [
        lambda model: model[0].weight.data.mul_(2),
        lambda model: setattr(model[1], "running_mean", torch.ones(4)),
        lambda model: model[0].register_forward_hook(lambda *_: None),
        lambda model: model.scales.__setitem__(0, 3.0),
        lambda model: model.names.add("b"),
        lambda model: setattr(model, "__class__", nn.Sequential),
        lambda model: setattr(model[0], "__dict__", vars(nn.Linear(3, 4))),
        lambda model: monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x),
        lambda model: monkeypatch.setattr(Listed, "forward", lambda self, x: x),
        lambda model: nn.modules.module.register_module_forward_hook(lambda *_: None),
    ]
    for change in changes:
        model = Listed().eval()
        watch = Watch(Settings(Inference(model)), Weights(model))
        assert watch.words.same()
        assert all(ask() for ask in watch.rest)
        assert len(watch.rest) >= (missing != "")
        handle = change(model)
        assert not (watch.words.same() and all(ask() for ask in watch.rest))
        if isinstance(handle, RemovableHandle):
            handle.remove()


@pytest.fixture(params=[True, False])
def in_c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways as they are compiled, and as Python has them where there is no compiler."""
    if not request.param:
        monkeypatch.setattr(way, "_native", lambda: None)
    elif way._native() is None:
        pytest.skip("there is no C compiler, or no header of Python's")


def way_of(model: nn.Module, run: Callable[..., Any], *batch: Any) -> tuple[Callable[..., Any], Watch]:
    settings = Settings(Inference(model))
    watch = Watch(settings, Weights(model))
    return quick_way(settings, watch, [(call_of(batch, {}), run)], None), watch


class Kept(Listed):
    def __init__(self) -> None:
        super().__init__()
        self.kept = nn.Parameter(plain())


TOUCHES: dict[str, Callable[[Any], object]] = {
    "a buffer moved": lambda model: setattr(model[1], "running_mean", torch.zeros(4).clone()),
    "a buffer written": lambda model: model[1].running_var.mul_(2),
    "a state loaded": lambda model: model.load_state_dict(Kept().state_dict()),
    "training": lambda model: model.train(),
    "training of a part": lambda model: model[1].train(),
    "another part": lambda model: model.__setitem__(0, nn.Linear(3, 4)),
    "a part more": lambda model: model.append(nn.Tanh()),
    "a hook": lambda model: model[0].register_forward_hook(lambda *_: None),
    "a hook before": lambda model: model.register_forward_pre_hook(lambda *_: None),
    "a hook by hand": lambda model: model[1]._forward_hooks.__setitem__(0, print),
    "an item of a list": lambda model: model.scales.__setitem__(0, 3.0),
    "an option": lambda model: setattr(model[1], "eps", 0.5),
    "in double": lambda model: model.double(),
    "other attributes": lambda model: setattr(model[1], "__dict__", vars(Kept()[1].eval())),
}


@pytest.mark.usefixtures("in_c")
def test_a_quick_way_answers_until_the_model_is_touched() -> None:
    x = torch.rand(2, 3)
    writes = {name: change for name, change in WRITES.items() if name != "another class"}  # which holds the same
    for name, change in (*TOUCHES.items(), *writes.items()):
        model = Kept().eval()
        answer, watch = way_of(model, lambda x: ("answered", x), x)
        for _ in range(2):
            assert answer(x) == ("answered", x)
        with torch.no_grad():
            change(model if name in TOUCHES else model.kept)
        for _ in range(2):
            assert answer(x) is NO, name
        now = watch.words.now()
        assert (now is None) or now != watch.words.known, name


@pytest.mark.usefixtures("in_c")
def test_a_quick_way_answers_its_own_call_alone() -> None:
    """Of other sizes, types, counts, keywords and surroundings none; strides and gradients make no difference."""
    x, model = torch.rand(2, 3), Listed().eval()

    def run(x: torch.Tensor) -> Any:
        return x.sum(), False

    run.directly = lambda x: (x.sum(), True)  # type: ignore[attr-defined]
    answer, watch = way_of(model, run, x)
    strided = torch.rand(3, 2).t(), nn.Parameter(x), torch.rand(2, 6)[:, ::2], torch.rand(2, 3, requires_grad=True)
    for number, same in enumerate((torch.rand(2, 3), torch.rand(3, 3)[1:], torch.rand(2, 3).detach(), *strided)):
        result, quickest = answer(same)
        torch.testing.assert_close(result, same.detach().sum())
        assert quickest == (number < 3) or same.requires_grad
        assert not result.requires_grad
        assert torch.is_grad_enabled()
    others = [torch.rand(3, 3), torch.rand(1, 2, 3), torch.rand(6), x.double(), x.int(), x.to("meta"), x.to_sparse()]
    assert all(answer(other) is NO for other in (*others, x.tolist()))
    assert answer() is answer(x, x) is NO
    assert answer(x=x) is NO
    assert answer(x) is not NO
    with torch.autocast("cpu"):
        assert answer(x) is NO
    with torch.device("meta"):
        assert answer(x) is NO
    torch.set_default_dtype(torch.float64)
    try:
        assert answer(x) is NO
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        assert answer(x) is not NO
        assert not torch.is_grad_enabled()
    watch.words.forget()
    assert answer(x) is NO


@pytest.mark.usefixtures("in_c")
def test_a_quick_way_leaves_errors_to_the_long_way() -> None:
    x, model, errors = torch.rand(2, 3), Listed().eval(), [ValueError(), KeyboardInterrupt()]

    def run(x: torch.Tensor) -> None:
        raise errors[0]

    answer, _ = way_of(model, run, x)
    assert answer(x) is NO
    assert torch.is_grad_enabled()
    del errors[0]
    with pytest.raises(KeyboardInterrupt):
        answer(x)
    assert torch.is_grad_enabled()


@pytest.mark.usefixtures("in_c")
def test_a_model_that_answers_itself_is_asked_while_it_evaluates() -> None:
    model, hooks = nn.Sequential(nn.Linear(3, 4), nn.Dropout()).eval(), (OrderedDict[int, Any](),)
    answer = model_way(model, hooks)
    x = torch.rand(2, 3)

    def is_answered() -> bool:
        result = answer(x)
        assert torch.is_grad_enabled()
        assert result is NO or (torch.equal(result, model(x)) and not result.requires_grad)
        assert (answer(input=x) is NO) == (result is NO)
        return result is not NO

    assert is_answered()
    for touch, back in (
        (lambda: model[1].train(), model.eval),
        (lambda: hooks[0].update({0: print}), hooks[0].clear),
        (lambda: setattr(model[1], "__dict__", vars(nn.Dropout())), model.eval),
    ):
        touch()
        assert not is_answered()
        assert not is_answered()
        back()
        assert is_answered()
    with torch.no_grad():
        model[0].weight.mul_(2)  # which the model itself reads
    assert is_answered()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        answer(torch.rand(2, 2))
    assert torch.is_grad_enabled()


@pytest.mark.usefixtures("in_c")
def test_a_quick_way_goes_when_nobody_has_it() -> None:
    """It is in a circle with what it runs, which holds whatever was made for the model."""

    def used() -> weakref.ref[nn.Module]:
        x, model, circle = torch.rand(2, 3), Listed().eval(), list[Any]()
        circle.append(way_of(model, lambda x: circle, x)[0])
        assert circle[0](x) is circle
        return weakref.ref(model)

    model = used()
    gc.collect()
    assert model() is None


def test_the_form_of_a_tensor_shows_what_it_is() -> None:
    """It is shared by tensors of one type, dtype, device, layout, sizes and strides alone."""
    x = torch.rand(4, 4)[:2, :3]
    if form_of(x) is None:
        pytest.skip("in this version of PyTorch it is elsewhere")
    assert form_of(x) == form_of(torch.rand(2, 4)[:, :3])
    differing = [
        torch.rand(2, 3), torch.rand(4, 2).t()[:, :3], torch.rand(4, 4)[:1, :3], torch.rand(4, 4)[:2, :2], x[None],
        torch.rand(4, 4).double()[:2, :3], torch.rand(4, 4).half()[:2, :3], torch.rand(4, 4).bfloat16()[:2, :3],
        torch.rand(4, 4).to("meta")[:2, :3], torch._neg_view(torch.rand(4, 4))[:2, :3], torch.rand(2, 3).to_sparse(),
        torch.ones(4, 4, dtype=torch.int32)[:2, :3], torch.rand(12), nn.Parameter(x),
    ]  # fmt: skip
    assert form_of(x) not in {form_of(tensor) for tensor in differing}
