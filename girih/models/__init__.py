"""Architectures of the papers and of today, as ordinary PyTorch modules. Torch is loaded when one is built.

networks/images        vectors and images: LeNet, AlexNet, VGG, ResNets, Inception, NASNet, WGAN-GP, …
networks/sequences     recurrent networks and transformers
networks               tables and features (DLRM, Candle Uno), the MLP, what several share
architectures          the functions that build them all, which this module gives
batches, steps         what they are trained on, and their losses
families, catalogue    names for all of it
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from girih.models.families import names, tiny_names
from girih.models.families.family import ModelFamily

if TYPE_CHECKING:
    from girih.models.architectures import *  # noqa: F403
    from girih.models.catalogue import Example, example, random_batch

__all__ = ["Example", "ModelFamily", "example", "names", "random_batch", "tiny_names"]


def __getattr__(name: str) -> Any:
    """An architecture, or what the catalogue gives, loaded when it is first asked for."""
    if not name.startswith("_"):
        module = import_module(f"girih.models.{'catalogue' if name in __all__ else 'architectures'}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
