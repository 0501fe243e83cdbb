"""What commands print does not depend on how busy the cores are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from girih.report import progress


@pytest.fixture(autouse=True, scope="package")
def no_progress_after_a_while() -> Iterator[None]:
    """Nothing is told of a command that takes long: on busy cores any does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "SECONDS_BETWEEN_LINES", float("inf"))
        yield
