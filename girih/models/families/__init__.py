"""Models by name: how names are read, and what each model is trained on."""

from __future__ import annotations

from girih.models.families.family import ModelFamily
from girih.models.families.features import FEATURE_FAMILIES
from girih.models.families.images import IMAGE_FAMILIES
from girih.models.families.sequences import SEQUENCE_FAMILIES

FAMILIES: tuple[ModelFamily, ...] = (*IMAGE_FAMILIES, *SEQUENCE_FAMILIES, *FEATURE_FAMILIES)


def names() -> tuple[ModelFamily, ...]:
    """Every family, with its pattern, examples, description and source."""
    return FAMILIES


def tiny_names() -> tuple[str, ...]:
    """The names of the smallest configurations, one for each family."""
    return tuple(f"{family.name}-tiny" for family in FAMILIES)
