"""Rules that are generated: as many as before, each proved, and none twice."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from girih.rewrite.prove import Proved, check, prove
from girih.rewrite.rules.rule import Expression, Rule, RuleError, Variable, operators, parse, walk
from girih.workshop.files import read_rules, write_rules
from girih.workshop.generate import Generated, Generation
from girih.workshop.generate.candidates import FALSE, GENERAL, OPEN, SPECIAL, Answer, Candidate, Counts, Pruner
from girih.workshop.generate.table import TermTable
from girih.workshop.generate.vocabulary import CONSTANTS, MATRICES, inputs, symbols_of, templates

SMALL = ("mm", "add", "t", "relu", "cat(dim=1)", "split(dim=1)")
INPUTS = "a[3, 3], b[3, 3], c[3, 3]"


@pytest.fixture(scope="module")
def small() -> Generated:
    return Generation(SMALL, 3, inputs=INPUTS).generate()


def test_the_counts_of_each_stage_are_as_they_were(small: Generated) -> None:
    counts = [
        (item.size, item.terms, item.initial, item.renamed, item.unshared, item.unimplied) for item in small.counts
    ]
    assert counts == [(1, 85, 12, 4, 4, 3), (2, 597, 198, 45, 31, 16), (3, 10536, 4179, 809, 211, 19)]
    words = [item.word for item in small.verdicts]
    assert (words.count("proved"), words.count("open"), words.count("refuted")) == (31, 0, 0)


def test_counts_get_smaller_with_each_stage(small: Generated) -> None:
    for item in small.counts:
        assert item.terms >= item.initial >= item.renamed >= item.unshared >= item.unimplied >= 0


def test_what_is_known_of_matrices_is_found(small: Generated) -> None:
    texts = {str(Rule(rule.source, rule.target)) for rule in small.rules}
    assert {
        "mm(mm(a, b), c) == mm(a, mm(b, c))",
        "add(mm(a, b), mm(a, c)) == mm(a, add(b, c))",
        "cat(mm(a, b), mm(a, c), dim=1) == mm(a, cat(b, c, dim=1))",
        "mm(a, eye(n=n)) == a",
        "t(t(a)) == a",
        "(mm(a, b), mm(a, c)) == (split(mm(a, cat(b, c, dim=1)), dim=1)[0], split(mm(a, cat(b, c, dim=1)), dim=1)[1])",
    } <= texts


def test_every_rule_is_proved_by_a_proof_that_can_be_replayed(small: Generated) -> None:
    for item in (*small.verdicts, *small.joined):
        if isinstance(item, Proved):
            assert check(item.proof) == item.forms
    assert all(operators(rule.source) <= 3 and operators(rule.target) <= 3 for rule in small.rules)


def test_no_two_rules_are_equal_under_renaming(small: Generated) -> None:
    names = [_renamed(rule) for rule in small.rules]
    assert len(set(names)) == len(names)
    assert not set(names) & {_renamed(rule.reverse) for rule in small.rules} - {
        _renamed(rule) for rule in small.rules if _renamed(rule) == _renamed(rule.reverse)
    }


def _renamed(rule: Rule) -> str:
    names = {
        item.name: f"v{number}"
        for number, item in enumerate(item for item in walk((*rule.source, *rule.target)) if isinstance(item, Variable))
    }
    return f"{[_put(item, names) for item in rule.source]} == {[_put(item, names) for item in rule.target]}"


def _put(item: Expression, names: dict[str, str]) -> str:
    if isinstance(item, Variable):
        return names[item.name]
    return f"{item.operator}{item.attributes}{item.result}({', '.join(_put(one, names) for one in item.arguments)})"


def at_random(rule: Candidate) -> str:
    return FALSE if len(str(rule)) % 5 == 1 else (GENERAL, OPEN, SPECIAL, FALSE)[len(str(rule)) % 4]


def pruned(
    ahead: int, doubtful: bool, verdict: Callable[[Candidate], str]
) -> tuple[list[Candidate], list[Candidate], list[Counts]]:
    """Rules, as they come and as they are kept."""
    table = TermTable(inputs(INPUTS), templates(SMALL))
    pruner, found = Pruner(table), []

    asked: Counter[Candidate] = Counter()

    def judge(rule: Candidate) -> Answer:
        """Some answers are known at once, others when it is asked again."""
        asked[rule] += 1
        known = len(str(rule)) % 5 == 1 or asked[rule] > 1
        return verdict(rule) if known else lambda: verdict(rule)

    for size in (1, 2, 3):
        found += pruner.prune(table.extend(), size, judge, ahead, doubtful=doubtful and size == 3)
    return found, pruner.kept, pruner.counts


@pytest.mark.parametrize("doubtful", [False, True])
@pytest.mark.parametrize("ahead", [2, 7])
def test_candidates_that_are_looked_for_ahead_make_the_same_rules(ahead: int, doubtful: bool) -> None:
    """Some of them turn out to be false, or special: what was pruned by them comes back."""
    expected = pruned(1, doubtful, at_random)
    assert expected[0] == expected[1]
    assert (
        10
        < sum(item.unproved for item in expected[2])
        < sum(item.unimplied + item.unproved for item in expected[2]) - 10
    )
    assert pruned(ahead, doubtful, at_random) == expected


def test_what_would_follow_from_open_candidates_is_not_judged_where_that_is_wanted() -> None:
    def verdict(rule: Candidate) -> str:
        return GENERAL if rule.size < 3 or len(str(rule)) % 3 == 0 else OPEN

    every, some = pruned(1, False, verdict), pruned(1, True, verdict)
    judged = [counts[2].unimplied + counts[2].unproved for *_, counts in (every, some)]
    assert 0 < judged[1] < judged[0] / 2
    assert {verdict(rule) for rule in some[1]} == {GENERAL}
    assert [rule for rule in every[1] if rule.size < 3] == [rule for rule in some[1] if rule.size < 3]


def test_what_was_taken_back_is_looked_at_again() -> None:
    table = TermTable(inputs(INPUTS), templates(SMALL))
    pruner, levels = Pruner(table), [table.extend(), table.extend()]
    pruner._enter(levels[0])
    state = pruner._state(levels[1], 2)
    ways = np.unique(state.template).tolist()

    def left() -> list[list[int]]:
        state.flatten()
        return [state.of_template(way).tolist() for way in ways]

    before, saved = left(), state.saved()
    state.ground(np.arange(len(state.rows)))
    assert not any(left())
    state.restore(saved)
    assert left() == before


def test_other_processes_find_the_same() -> None:
    """They hash words otherwise, so that hashes must not travel."""
    term = parse("mm(a, mm(b, c)) == a").source[0]
    assert hash(term)
    assert "_hash" not in vars(pickle.loads(pickle.dumps(term)))
    options = Generation(("add", "t"), 4, inputs="a[3, 3]", constants=())
    assert replace(options, processes=1).generate() == options.generate()


# ------------------------------------------------------------------------------------------------ operators and files


def test_operators_join_by_being_named() -> None:
    found = Generation(("exp", "mul", "add", "sum.dim_IntList"), 3, inputs="a[3, 3], b[3, 3]", constants=()).generate()
    texts = {str(Rule(rule.source, rule.target)) for rule in found.rules}
    assert "mul(exp(a), exp(b)) == exp(add(a, b))" in texts
    assert all(isinstance(prove(rule), Proved) for rule in found.rules)


def test_an_activation_is_not_linear() -> None:
    found = Generation(("relu", "add"), 3, inputs="a[3, 3], b[3, 3]").generate()
    assert not any("add(relu(a), relu(b))" in str(rule) for rule in found.rules)


def test_rules_are_written_and_read_again(small: Generated, tmp_path: object) -> None:
    path = tmp_path / "rules.txt"  # type: ignore[operator]
    write_rules(path, small.rules, "generated")
    assert read_rules(path) == small.rules


@pytest.mark.parametrize("name", ["moon", "unfold", "cat(dim=1", ""])
def test_what_is_no_operator_is_told(name: str) -> None:
    with pytest.raises(RuleError):
        templates((name,))


def test_sizes_and_inputs_have_bounds() -> None:
    with pytest.raises(RuleError, match="1 to 5 operators"):
        Generation(SMALL, 6).generate()
    with pytest.raises(RuleError, match="numbers for sizes"):
        inputs("a[m, n]")
    assert Generation(SMALL, 3, limit=4, inputs=INPUTS).generate().verdicts[4:] == ()


def test_constants_stand_where_their_shape_fits() -> None:
    found = {item.constant.partition("[")[0] for item in inputs(MATRICES, CONSTANTS) if item.constant}
    assert found == {"eye", "ones"}
    assert symbols_of(CONSTANTS[3], (2, 2, 3, 3)) == {"c": 2, "p": 1}
    assert symbols_of(CONSTANTS[3], (2, 2, 4, 4)) is None
    assert symbols_of(CONSTANTS[0], (3, 4)) is None
    assert parse("mm(a, eye(n=3)) == a").source


def test_a_number_stands_for_each_dimension_of_a_window_and_inputs_are_a_text() -> None:
    one, two = (templates((f"avg_pool2d(kernel_size={size})",)) for size in ("2", "[2, 2]"))
    assert one == two
    assert Generation(("avg_pool2d(kernel_size=2)",), 2).generate().rules == ()
    for wrong, says in ((3, "inputs are a text, as 'a"), (("a[3]",), "inputs are a text"), ("x", "declare none")):
        with pytest.raises(RuleError, match=says):
            Generation(("relu",), 2, inputs=wrong).generate()  # type: ignore[arg-type]
