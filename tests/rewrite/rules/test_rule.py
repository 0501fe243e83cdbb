"""Rules as text, and back."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Rule, RuleError, Term, Variable, operators, parse

TEXTS = [
    "associative: a[m, k], b[k, n], c[n, p]: mm(a, mm(b, c)) == mm(mm(a, b), c)",
    "mm(a, mm(b, c)) == mm(mm(a, b), c)",
    "x[n, c*g, h, w], k[2*g*o, c, 3, 3]: convolution(x, k, groups=g, padding=(1, 1)) == relu(x)",
    "(mm(x, a), mm(x, b)) == (split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])",
    "x[m]: mul(x, scale=-0.5) == avg(x, ceil=False, inner=(1,), mode='same')",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_rule_is_what_its_text_says(text: str) -> None:
    rule = parse(text)
    assert str(rule) == text
    assert parse(str(rule)) == rule


def test_what_is_written_twice_is_computed_once() -> None:
    rule = parse(TEXTS[3])
    assert (operators(rule.source), operators(rule.target)) == (2, 3)
    assert rule.inputs == ("x", "a", "b")
    assert rule.reverse.source == rule.target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mm(a, b)", "one '=='"),
        ("mm(a, b) == mm(a, b) == c", "one '=='"),
        ("mm(a, b == c", "never closed"),
        ("(a, b) == a", "2 outputs on the left, 1 on the right"),
        ("a[m], a[n]: a == a", "declared twice"),
        ("a[m/2]: a == a", "no size"),
        ("a + b == b + a", "neither an input nor an operator"),
        ("mm(a, **b) == a", "by name"),
        ("one: two: three: a == a", "colons"),
        ("a[m]: b[m]: a == b", "declares inputs twice"),
        ("mm(a, 3) == a", "neither an input"),
    ],
)
def test_what_is_no_rule_is_told(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message.replace("*", r"\*")):
        parse(text)


SYMBOLS = {"m": 3, "n": 5, "k": 7}
EXTENTS = st.recursive(
    st.one_of(st.integers(-4, 9), st.sampled_from(sorted(SYMBOLS))).map(Extent.of),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] + two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] - two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] * two[1]),
    ),
    max_leaves=6,
)


@given(EXTENTS, EXTENTS)
def test_extents_are_numbers_with_names(first: Extent, second: Extent) -> None:
    one, other = first.value(SYMBOLS), second.value(SYMBOLS)
    assert (first + second).value(SYMBOLS) == one + other
    assert (first - second).value(SYMBOLS) == one - other
    assert (first * second).value(SYMBOLS) == one * other
    assert (first + second) * first == first * first + first * second
    assert eval(str(first), dict(SYMBOLS)) == one
    assert first - first == Extent()
    rule = Rule((Term("relu", (Variable("a"),)),), (Variable("a"),), (("a", (first, second)),))
    assert parse(str(rule)).shapes == rule.shapes


def test_an_extent_is_pickled_without_its_hash() -> None:
    """Strings have other hashes in another process, which would not find it among equal ones."""
    extent = Extent.of("n") * 2 + 1
    assert {extent: True}[Extent.of("n") + "n" + 1]
    again = pickle.loads(pickle.dumps(extent))
    assert again == extent
    assert set(vars(again)) == {"terms"}
