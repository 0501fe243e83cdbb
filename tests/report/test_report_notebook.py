"""A plan in a notebook: compact, without scripts, and whole."""

from __future__ import annotations

from html.parser import HTMLParser

from girih.api import Plan
from girih.report.notebook import notebook_html

VOID = {"br", "rect", "circle"}


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_fragment_is_whole_and_small(gpt: Plan) -> None:
    text = notebook_html(gpt)
    parser = _Balance()
    parser.feed(text)
    assert not parser.open
    assert not {"script", "img", "link"} & set(parser.tags)
    assert len(text) < 20_000
    assert "gpt-tiny" in text
    assert "one device" in text
    assert text.count("<svg") == 10


def test_names_are_escaped(hostile: Plan) -> None:
    text = notebook_html(hostile)
    assert "<img" not in text
    assert "</script" not in text
