"""Architectures of the papers and of today, as ordinary PyTorch modules. Torch is loaded when one is built.

mlp, classic (LeNet, AlexNet), resnet, inception,
resnext, nasnet, feedforward, wgan                   images and vectors
rnn (and the LSTM cell), recurrent, nasrnn, nmt, speech    unrolled recurrent cells
gpt, llama, bert, transformer (and its experts)      transformers
dlrm, candle                                         tables and features
attention, layers                                    what they share
batches, steps                                       data and losses
family, {image,sequence,feature}_families, families, catalogue    names for all of it
architectures                                        all of them, for what this module gives
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from girih.models.families.family import ModelFamily
from girih.models.families.listed import names, tiny_names

if TYPE_CHECKING:
    from girih.models.architectures import (
        alexnet,
        bert,
        candle_uno,
        deep_speech,
        densenet,
        dlrm,
        dlrm_criteo,
        gpt,
        inception_v3,
        lenet,
        llama,
        mlp,
        moe,
        nasrnn,
        nmt,
        resnet,
        resnext,
        rnn,
        rnnlm,
        rnntc,
        squeezenet,
        transformer,
        vgg,
        wgan_critic,
        wgan_generator,
        wide_resnet,
    )
    from girih.models.catalogue import Example, example, random_batch

__all__ = [
    "Example",
    "ModelFamily",
    "alexnet",
    "bert",
    "candle_uno",
    "deep_speech",
    "densenet",
    "dlrm",
    "dlrm_criteo",
    "example",
    "gpt",
    "inception_v3",
    "lenet",
    "llama",
    "mlp",
    "moe",
    "names",
    "nasrnn",
    "nmt",
    "random_batch",
    "resnet",
    "resnext",
    "rnn",
    "rnnlm",
    "rnntc",
    "squeezenet",
    "tiny_names",
    "transformer",
    "vgg",
    "wgan_critic",
    "wgan_generator",
    "wide_resnet",
]


def __getattr__(name: str) -> Any:
    """All architectures at once: a function `gpt` then hides the module `girih.models.networks.sequences.gpt`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from girih.models import architectures, catalogue

    globals().update({item: getattr(architectures, item) for item in architectures.__all__})
    globals().update({item: getattr(catalogue, item) for item in ("Example", "example", "random_batch")})
    return globals()[name]
