"""Rules in TASO's protobuf: read as they were written; what is damaged is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from taso_files import encoded

from girih.rewrite.prove import prove
from girih.rewrite.rules.rule import Rule, RuleError, parse
from girih.workshop.files import read_rules
from girih.workshop.taso import decoded

TEXTS = [
    "(mm(x, a), mm(x, b)) == (split(mm(x, cat(a, b, dim=1)), dim=1)[0], split(mm(x, cat(a, b, dim=1)), dim=1)[1])",
    "mm(a, mm(b, c)) == mm(mm(a, b), c)",
    "t(mm(a, b)) == mm(t(b), t(a))",
    "convolution(x, add(a, b), stride=2, padding=p) "
    "== add(convolution(x, a, stride=2, padding=p), convolution(x, b, stride=2, padding=p))",
    "(relu(split(x, dim=1)[0]), relu(split(x, dim=1)[1])) == (split(relu(x), dim=1)[0], split(relu(x), dim=1)[1])",
    "mm(a, b) == mm(b, a)",
]
FILE = encoded([parse(text) for text in TEXTS])


def test_rules_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "graph_subst.pb"
    path.write_bytes(FILE)
    rules = read_rules(path)
    assert [prove(rule).word for rule in rules] == ["proved"] * 5 + ["refuted"]
    assert str(Rule(rules[1].source, rules[1].target)) == "mm(i1, mm(i2, i3)) == mm(mm(i1, i2), i3)"
    assert decoded(encoded(rules[1:4])) == tuple(
        Rule(rule.source, rule.target, rule.shapes, f"rule_{number}") for number, rule in enumerate(rules[1:4], 1)
    )


def test_googles_library_reads_what_is_written(tmp_path: Path) -> None:
    pool = pytest.importorskip("google.protobuf.descriptor_pool").DescriptorPool()
    pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    factory = pytest.importorskip("google.protobuf.message_factory")
    messages = {
        "Parameter": "key value", "Tensor": "opId tsId", "MapOutput": "srcOpId dstOpId srcTsId dstTsId",
        "Operator": "type *input:Tensor *para:Parameter",
        "Rule": "*srcOp:Operator *dstOp:Operator *mappedOutput:MapOutput",
        "RuleCollection": "*rule:Rule",
    }  # fmt: skip
    file = pb2.FileDescriptorProto(name="rules.proto", package="GraphSubst", syntax="proto2")
    for name, fields in messages.items():
        item = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(), 1):
            label, kind = (3, field.partition(":")[2]) if field.startswith("*") else (2, "")
            added = item.field.add(name=field.strip("*").partition(":")[0], number=number, label=label, type=5)
            if kind:
                added.type, added.type_name = 11, f".GraphSubst.{kind}"
    pool.Add(file)
    collection = factory.GetMessageClass(pool.FindMessageTypeByName("GraphSubst.RuleCollection"))()
    collection.ParseFromString(FILE)
    assert [len(rule.srcOp) for rule in collection.rule] == [2, 2, 2, 2, 3, 1]
    assert decoded(collection.SerializeToString()) == decoded(FILE)


@given(st.binary(max_size=200))
def test_any_bytes_are_rules_or_told(data: bytes) -> None:
    assert "\n" not in _told(data)


def _told(data: bytes) -> str:
    try:
        decoded(data)
    except RuleError as error:
        return str(error)
    return ""


@given(st.integers(1, len(FILE) - 1), st.integers(0, 255))
def test_damaged_files_are_rules_or_told(place: int, byte: int) -> None:
    for data in (FILE[:place], FILE[:place] + bytes([byte]) + FILE[place + 1 :]):
        assert "\n" not in _told(data)


def test_what_has_no_meaning_here_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rules.pb"
    path.write_bytes(FILE.replace(b"\x08\x12", b"\x08\x63"))  # operator 18, a product, becomes 99
    with pytest.raises(
        RuleError, match=r"rules.pb is no text, and no rules in TASO's protobuf: rule 1: operator type 99"
    ):
        read_rules(path)
    with pytest.raises(RuleError, match="has no name in TASO's format"):
        encoded([parse("exp(a) == exp(a)")])
