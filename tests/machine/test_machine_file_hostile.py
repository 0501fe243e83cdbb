"""Machine files that are broken in every way that we can think of: a machine, or one line of a MachineError."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from test_machine_file import GOOD

from girih.machine import MachineError, machine
from girih.machine.file import MOST_TEXT, parse_machine

PIECES = (
    "[", "]", "{", "}", "{" * 300, "[" * 5000, "&a ", "*a", "*b", "<<: *a", "!!binary aGk=",
    "!!python/object:os.system {}",
    "!!bool maybe", "!!int x", "!!timestamp 2001-01-01", "2001-01-01", ".nan", ".inf", "-.inf", "nan GB/s",
    "1e400 GB/s",
    "1e-400 us", "0 us", "0", "-1", "9" * 5000, "0x10", "1_000", "٣", "true", "null", "~", "", "?", "? [a]", ": ",
    "- ",
    "---", "...", "%YAML 99.1", "%TAG ! x", "|\n  a\n  b", ">-", '"\\uD800"', '"\\UFFFFFFFF"', '"a\\nb"', "\t", "\r",
    "\x00",
    "\x85", "\u2028", "\ufeff", "#", "'", '"', "name: a", "device: V100", "count: 2", "axes: [1, 1]", "K80", "a" * 3000,
)  # fmt: skip


def mutant(number: int) -> str:
    chance = random.Random(number)
    text = GOOD
    for _ in range(chance.choice((1, 1, 2, 4))):
        lines = text.splitlines(keepends=True)
        kind = chance.randrange(6)
        at, line = chance.randrange(len(text)), chance.randrange(len(lines))
        piece = chance.choice(PIECES)
        if kind == 0:
            text = text[:at] + piece + text[at:]
        elif kind == 1:
            text = text[:at] + chr(ord(text[at]) ^ (1 << chance.randrange(7))) + text[at + 1 :]
        elif kind == 2:
            text = text[:at] + text[chance.randrange(len(text)) :]
        elif kind == 3:
            text = "".join([*lines[:line], *lines[line + 1 :]])
        elif kind == 4:
            text = "".join([*lines[: line + 1], *lines[line:]])
        else:
            key, colon, _ = lines[line].partition(":")
            text = "".join([*lines[:line], f"{key}{colon} {piece}\n", *lines[line + 1 :]])
        text = text or "x"
    return text


def refusal(text: str) -> str:
    with pytest.raises(MachineError) as caught:
        parse_machine(text, "mine.yaml")
    message = str(caught.value)
    assert len(message.splitlines()) == 1, message
    assert message.startswith("mine.yaml:")
    assert len(message) < 1000
    return message


def test_mutants_are_machines_or_one_line() -> None:
    machines = 0
    for number in range(800):
        text = mutant(number)
        try:
            found = parse_machine(text, "mine.yaml")
        except MachineError as error:
            message = str(error)
            assert len(message.splitlines()) == 1, (number, message)
            assert message.startswith("mine.yaml:"), (number, message)
            assert len(message) < 1000, (number, message)
        else:
            machines += 1
            assert found.devices >= 1
            assert found.links
            assert len(str(found).splitlines()) == 1
    assert machines > 25


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[" * 5000, "nested too deeply"),
        ("a: " + "{a: " * 5000, "nested too deeply"),
        ("device: V100\nlevels: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("name: a\x00b", "this is no YAML"),
        ('name: "\\UFFFFFFFF"', "this is no YAML"),
        (GOOD.replace("name: mine", '"na\\nme": mine'), r"mine.yaml:1: 'na\nme': unknown key"),
        (GOOD.replace("name: mine", '? [a, b]\n: "mine"'), "a key is a list or a mapping: expected a word"),
        (GOOD.replace("name: mine", 'name: "a\\nb"'), r"name: expected a text of one line, got 'a\nb'"),
        (GOOD.replace("count: 4", "count: " + "9" * 5000), "expected a whole number from 1 to 131072, got '999"),
        (GOOD.replace("count: 4", "count: 1000000000000000"), "expected a whole number from 1 to 131072"),
        (GOOD.replace("count: 4", "count: ٣"), "expected a whole number of 1 or more"),
        (GOOD.replace("[2, 3]", "[60000, 60000]"), "levels: the levels have 14400000000 devices together"),
        (GOOD.replace("[2, 3]", f"[{', '.join(['100000'] * 500)}]"), "more than 10^15 devices together"),
        (GOOD.replace("10 TFLOP/s", "1e400 TFLOP/s"), "expected between 1e-18 and 1e+30 in the basic unit"),
        (GOOD.replace("16 GiB", "1e400 GiB"), "expected between 1e-18 and 1e+30"),
        (GOOD.replace("16 GiB", "0.3 B"), "expected from 1 to 1152921504606846976 bytes, got '0.3 B'"),
        (GOOD.replace("shared: yes", "shared: !!bool maybe"), "expected true or false, got 'maybe'"),
        (GOOD.replace("12.5 GB/s", ".nan"), "expected a number with a unit"),
        (GOOD.replace("name: mine", "name: mine\n" + "a" * 900 + ": 1"), "unknown key"),
        ("device: !!python/object/apply:os.system ['touch ran']", "expected a mapping with the keys"),
    ],
)
def test_hostile_files(text: str, expected: str) -> None:
    assert expected in refusal(text)


@pytest.mark.parametrize(("old", "new"), [("7 us", "0 us"), ("0.05 ms", "0 s")])
def test_no_time_is_a_time(old: str, new: str) -> None:
    """A kernel that starts at once, a link without latency: what a simulation leaves out."""
    found = parse_machine(GOOD.replace(old, new), "mine.yaml")
    assert 0.0 in (found.device.launch_seconds, found.levels[0].latency_seconds)


def test_aliases_that_double_are_not_followed() -> None:
    """A billion laughs: each line is two of the line before."""
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    began = time.process_time()
    refusal("\n".join(lines))
    refusal("device: V100\nlevels: " + "\n".join(["&a [x]"]))
    refusal("device: V100\nlevels: &a [*a, *a]")
    assert time.process_time() - began < 5


def test_a_file_of_megabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("# nothing\n" * (MOST_TEXT // 5))
    with pytest.raises(MachineError, match="more than 262144 bytes"):
        machine(str(path))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(MachineError, match=r"Is a directory; expected a YAML file"):
        machine(str(tmp_path / "folder.yaml"))
