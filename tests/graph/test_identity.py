"""Keys by identity: equal things are told apart, and none is lost while its key lives."""

from __future__ import annotations

from girih.graph.graph import Same


def test_one_thing_is_one_key_and_an_equal_one_is_another() -> None:
    one, two = [1, 2], [1, 2]
    assert Same(one) == Same(one)
    assert len({Same(one): 0, Same(two): 1, Same(one): 2}) == 2
    assert Same(one) != one


def test_a_key_keeps_its_thing_alive() -> None:
    keys = [Same([number]) for number in range(1000)]
    assert len(set(keys)) == 1000
    assert [key.item for key in keys] == [[number] for number in range(1000)]
