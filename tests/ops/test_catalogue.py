"""Every description is checked against PyTorch, which Tofu could not do (§9: "an open research problem").

For random shapes and attributes of each described operator: the description, evaluated index by index, is PyTorch's
result; every strategy that is derived from it, computed by PyTorch piece by piece, gives the whole; and partial sums
of what it is linear in add up to the whole.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checking import check_divisions, check_order, check_passing, check_reference, make_case, results_of, to_torch
from counts import LONG
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import SAMPLES
from torch.utils._pytree import tree_leaves

from girih.kernels.evaluate import call
from girih.kernels.own import KERNELS
from girih.ops.catalogue import catalogue
from girih.ops.core_aten import CORE, VERSION
from girih.ops.coverage import core_operators, count, coverage, standard, tagged_operators
from girih.ops.derive.divisions import is_elementwise, is_opaque
from girih.ops.derive.reference import evaluate
from girih.ops.language import DescriptionError
from girih.run.worker.compute import looks_at_operand

UNDESCRIBED = {"aten.native_dropout", "aten.nonzero", "aten.rand", "aten.randn", "aten.randperm"}


def cases(operator: str, number: int = 5):
    for seed in range(number):
        sample = SAMPLES[operator](np.random.default_rng(seed))
        for result in results_of(operator):
            yield make_case(operator, sample, result)


def test_every_described_operator_has_a_sample() -> None:
    assert set(SAMPLES) == set(catalogue())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("operator", sorted(catalogue()))
def test_description_is_what_pytorch_computes(operator: str) -> None:
    @settings(max_examples=6 if LONG else 3, deadline=None, derandomize=True, database=None)
    @given(st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        rng = np.random.default_rng(seed)
        sample = SAMPLES[operator](rng)
        for result in results_of(operator):
            case = make_case(operator, sample, result)
            check_reference(case)
            check_divisions(case, rng)
            check_passing(case, rng)
            check_order(case, rng)

    check()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_shares_memory_is_described_as_a_view() -> None:
    """Else a result is written over what other steps still read. What as_strided makes, a worker copies."""

    def memory(tensors: list[torch.Tensor]) -> set[int]:
        return {item.untyped_storage().data_ptr() for item in tensors if item.numel()}

    shares = set()
    for operator in catalogue():
        for seed in range(3 if operator.startswith("aten.") else 0):
            arguments = {key: to_torch(value) for key, value in SAMPLES[operator](np.random.default_rng(seed)).items()}
            given, made = ([item for item in tree_leaves(tree) if isinstance(item, torch.Tensor)]
                           for tree in (arguments, call(operator, arguments)))  # fmt: skip
            if memory(given) & memory(made):
                shares.add(operator)
    assert shares - {name for name, item in catalogue().items() if item.view} == {"aten.as_strided"}
    assert looks_at_operand("aten.as_strided")


def test_nearly_all_core_operators_are_described() -> None:
    core, own = standard()
    assert set(core.undescribed) == UNDESCRIBED  # random by order of drawing, or of a shape that depends on data
    assert core.described / core.total > 0.95
    assert not own.undescribed
    assert str(core).startswith(f"core ATen operators: {core.described} of {core.total} described (97.")
    assert "makes no tensor" in core_operators().values()


def test_operators_that_are_counted_are_those_that_there_are() -> None:
    """They are counted without loading torch."""
    tagged = tagged_operators()
    assert core_operators() == (CORE if torch.__version__.startswith(f"{VERSION}.") else tagged)
    if torch.__version__.startswith(f"{VERSION}."):
        assert tagged == CORE
    assert {name for name in catalogue() if name.startswith("girih.")} == set(KERNELS)


def test_what_pages_say_is_what_shapes_say() -> None:
    """The counts of `coverage`, made without shapes, against what is derived from samples."""
    said = coverage("all", catalogue())
    described = {operator: [case.description for case in cases(operator, 5 if LONG else 2)] for operator in SAMPLES}
    derived = count("all", [(operator, item) for operator, items in described.items() for item in items])
    assert set(derived.opaque) <= set(said.opaque)
    assert set(derived.reducing) <= set(said.reducing)
    assert not derived.undescribed
    assert len(derived.reducing) > 40
    for operator in said.elementwise:
        assert all(map(is_elementwise, described[operator])), operator


def test_opaque_operators_have_no_reference() -> None:
    case = next(cases("aten.cumsum"))
    assert is_opaque(case.description)
    with pytest.raises(DescriptionError, match=r"aten\.cumsum is opaque"):
        evaluate(case.description, [tensor.numpy() for tensor in case.tensors])


def test_coverage_names_what_is_missing() -> None:
    found = coverage("two", ["aten.mm", "aten.unheard_of"])
    assert (found.described, found.total, found.undescribed) == (1, 2, ("aten.unheard_of",))
    assert "not described: aten.unheard_of" in str(found)
    assert count("one", [("aten.sort", None)]).undescribed == ("aten.sort",)
