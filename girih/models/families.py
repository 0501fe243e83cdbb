"""The families that the catalogue knows: how each reads its name, builds its module and describes its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from girih.models.batches import BatchDescription, TensorDescription, images, next_tokens
from girih.models.bert import bert
from girih.models.classic import alexnet, lenet
from girih.models.dlrm import dlrm
from girih.models.gpt import gpt
from girih.models.inception import inception_v3
from girih.models.llama import llama
from girih.models.mlp import mlp
from girih.models.resnet import wide_resnet
from girih.models.rnn import rnn
from girih.models.steps import (
    Step,
    classify,
    fill_masked_tokens,
    predict_click,
    predict_each_step,
    predict_next_token,
)

Options = Mapping[str, Any]

TINY_BATCH = 8
TOFU = "Wang, Huang, Li, EuroSys 2019 (Tofu), section 7"


@dataclass(frozen=True)
class Preset:
    """A whole name and the options it stands for; `batch` overrules the family's."""

    name: str
    options: Options
    batch: int | None = None


@dataclass(frozen=True)
class ModelFamily:
    """Names of one kind of model.

    `pattern` is for people: capitals are numbers, brackets what may be left out. `configure` takes the name's
    numbers and returns options of `build`; options left open are those of its signature.
    """

    name: str
    pattern: str
    examples: tuple[str, ...]
    description: str
    source: str
    build: Callable[..., nn.Module] = field(repr=False)
    configure: Callable[..., Options] = field(repr=False)
    describe_batch: Callable[[Options, int], BatchDescription] = field(repr=False)
    step: Step = field(repr=False)
    default_batch: Callable[[Options], int] = field(repr=False)
    presets: tuple[Preset, ...] = field(repr=False)


def _tiny(family: str, **options: Any) -> Preset:
    """The family's smallest sensible model, for tests: ten steps in a second or a few on one CPU."""
    return Preset(f"{family}-tiny", options, TINY_BATCH)


def _constant(batch: int) -> Callable[[Options], int]:
    return lambda options: batch


def _no_numbers() -> Options:
    return {}


def _image_batch(options: Options, batch: int) -> BatchDescription:
    return images(batch, 3, options["image"], options["classes"])


def _token_batch(options: Options, batch: int) -> BatchDescription:
    return next_tokens(batch, options["sequence"], options["vocabulary"])


def _mlp_options(*sizes: int) -> Options:
    return {"sizes": sizes or (784, 512, 512, 10)}


def _mlp_batch(options: Options, batch: int) -> BatchDescription:
    sizes = options["sizes"]
    return {
        "images": TensorDescription((batch, sizes[0])),
        "labels": TensorDescription((batch,), below=sizes[-1]),
    }


def _lenet_batch(options: Options, batch: int) -> BatchDescription:
    return images(batch, 1, 32, options["classes"])


def _wide_resnet_options(depth: int, width: int, image: int = 224) -> Options:
    return {"depth": depth, "width": width, "image": image}


def _wide_resnet_default(options: Options) -> int:
    """What Tofu fits: 8 for WResNet-152-10; otherwise the 128 of its ideal baseline."""
    return 8 if (options["depth"], options["width"]) == (152, 10) else 128


def _rnn_options(layers: int, hidden: int) -> Options:
    return {"layers": layers, "hidden": hidden}


def _rnn_default(options: Options) -> int:
    """Tofu takes 512, and 128 "in order to fit RNN-10-8K in memory"."""
    return 128 if (options["layers"], options["hidden"]) == (10, 8192) else 512


def _rnn_batch(options: Options, batch: int) -> BatchDescription:
    return {
        "vectors": TensorDescription((batch, options["steps"], options["input"])),
        "targets": TensorDescription((batch, options["steps"]), below=options["vocabulary"]),
    }


def _heads(width: int, head_width: int) -> int:
    if width % head_width:
        raise ValueError(f"the width must be a multiple of {head_width}, the width of a head; got {width}")
    return width // head_width


def _gpt_options(layers: int, width: int) -> Options:
    return {"layers": layers, "width": width, "heads": _heads(width, 64)}


def _llama_options(layers: int, width: int) -> Options:
    """The proportions of Llama-3-8B: heads of 128, four to a key-value head, a network of 3.5 widths."""
    heads = _heads(width, 128)
    kv_heads = heads // 4 if heads % 4 == 0 else heads
    return {"layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "hidden": width * 7 // 2}


def _bert_batch(options: Options, batch: int) -> BatchDescription:
    shape = (batch, options["sequence"])
    return {
        "tokens": TensorDescription(shape, below=options["vocabulary"]),
        "segments": TensorDescription(shape, below=options["segments"]),
        "targets": TensorDescription(shape, below=options["vocabulary"], ignored=0.85),
    }


def _dlrm_batch(options: Options, batch: int) -> BatchDescription:
    return {
        "dense": TensorDescription((batch, options["dense"])),
        "indices": tuple(TensorDescription((batch, options["lookups"]), below=rows) for rows in options["rows"]),
        "clicks": TensorDescription((batch,), below=2, floating=True),
    }


FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        name="mlp",
        pattern="mlp[-SIZE-SIZE…]",
        examples=("mlp", "mlp-512-512-10"),
        description="linear layers with ReLU between them",
        source="",
        build=mlp,
        configure=_mlp_options,
        describe_batch=_mlp_batch,
        step=classify,
        default_batch=_constant(128),
        presets=(_tiny("mlp", sizes=(32, 64, 64, 16)),),
    ),
    ModelFamily(
        name="lenet",
        pattern="lenet",
        examples=("lenet",),
        description="LeNet-5 on 32×32 grey images",
        source="LeCun, Bottou, Bengio, Haffner 1998",
        build=lenet,
        configure=_no_numbers,
        describe_batch=_lenet_batch,
        step=classify,
        default_batch=_constant(128),
        presets=(_tiny("lenet"),),
    ),
    ModelFamily(
        name="alexnet",
        pattern="alexnet",
        examples=("alexnet",),
        description="AlexNet, one tower, on ImageNet",
        source="Krizhevsky 2014, arXiv:1404.5997",
        build=alexnet,
        configure=_no_numbers,
        describe_batch=_image_batch,
        step=classify,
        default_batch=_constant(128),
        presets=(_tiny("alexnet", image=64, classes=16, channels=(8, 16, 32, 16, 16), hidden=64),),
    ),
    ModelFamily(
        name="resnet",
        pattern="resnet-DEPTH[-IMAGE]",
        examples=("resnet-50", "resnet-101", "resnet-152"),
        description="bottleneck ResNet on ImageNet",
        source="He, Zhang, Ren, Sun 2015, arXiv:1512.03385",
        build=wide_resnet,
        configure=lambda depth, image=224: {"depth": depth, "image": image},
        describe_batch=_image_batch,
        step=classify,
        default_batch=_constant(128),
        presets=(_tiny("resnet", depth=14, blocks=(1, 1, 1, 1), channels=8, image=32, classes=16),),
    ),
    ModelFamily(
        name="wresnet",
        pattern="wresnet-DEPTH-WIDTH[-IMAGE]",
        examples=("wresnet-50-4", "wresnet-101-8", "wresnet-152-10", "wresnet-50-2-32"),
        description="bottleneck ResNet with every convolution widened by WIDTH",
        source=TOFU,
        build=wide_resnet,
        configure=_wide_resnet_options,
        describe_batch=_image_batch,
        step=classify,
        default_batch=_wide_resnet_default,
        presets=(_tiny("wresnet", depth=14, blocks=(1, 1, 1, 1), width=2, channels=8, image=32, classes=16),),
    ),
    ModelFamily(
        name="inception",
        pattern="inception[-IMAGE]",
        examples=("inception",),
        description="Inception-v3 on ImageNet",
        source="Szegedy et al. 2015, arXiv:1512.00567",
        build=inception_v3,
        configure=lambda image=299: {"image": image},
        describe_batch=_image_batch,
        step=classify,
        default_batch=_constant(128),
        presets=(_tiny("inception", image=75, classes=16, scale=1 / 16),),
    ),
    ModelFamily(
        name="rnn",
        pattern="rnn-LAYERS-HIDDEN",
        examples=("rnn-6-4k", "rnn-8-8k", "rnn-10-8k"),
        description="LSTM unrolled for 20 steps (k is 1024)",
        source=TOFU,
        build=rnn,
        configure=_rnn_options,
        describe_batch=_rnn_batch,
        step=predict_each_step,
        default_batch=_rnn_default,
        presets=(_tiny("rnn", layers=2, hidden=32, steps=4, input=16, vocabulary=16),),
    ),
    ModelFamily(
        name="gpt",
        pattern="gpt-LAYERS-WIDTH",
        examples=("gpt-12-1024", "gpt2", "gpt2-xl"),
        description="GPT-2, heads of 64, sequences of 1024",
        source="Radford et al. 2019",
        build=gpt,
        configure=_gpt_options,
        describe_batch=_token_batch,
        step=predict_next_token,
        default_batch=_constant(8),
        presets=(
            Preset("gpt2", _gpt_options(12, 768)),
            Preset("gpt2-medium", _gpt_options(24, 1024)),
            Preset("gpt2-large", _gpt_options(36, 1280)),
            Preset("gpt2-xl", _gpt_options(48, 1600)),
            _tiny("gpt", layers=2, width=32, heads=4, sequence=16, vocabulary=64),
        ),
    ),
    ModelFamily(
        name="llama",
        pattern="llama-LAYERS-WIDTH",
        examples=("llama-8b", "llama-32-4096"),
        description="Llama 3, heads of 128, four to a key-value head, sequences of 2048",
        source="Llama Team 2024, arXiv:2407.21783",
        build=llama,
        configure=_llama_options,
        describe_batch=_token_batch,
        step=predict_next_token,
        default_batch=_constant(8),
        presets=(
            Preset("llama-8b", _llama_options(32, 4096)),
            _tiny("llama", layers=2, width=32, heads=4, kv_heads=2, hidden=64, vocabulary=64, sequence=16),
        ),
    ),
    ModelFamily(
        name="bert",
        pattern="bert-LAYERS-WIDTH",
        examples=("bert-12-768", "bert-24-1024"),
        description="BERT with its masked-token head, heads of 64, sequences of 512",
        source="Devlin, Chang, Lee, Toutanova 2018, arXiv:1810.04805",
        build=bert,
        configure=_gpt_options,
        describe_batch=_bert_batch,
        step=fill_masked_tokens,
        default_batch=_constant(32),
        presets=(_tiny("bert", layers=2, width=32, heads=4, sequence=16, vocabulary=64),),
    ),
    ModelFamily(
        name="dlrm",
        pattern="dlrm",
        examples=("dlrm",),
        description="recommendation model with the 26 tables of Criteo Kaggle",
        source="Naumov et al. 2019, arXiv:1906.00091",
        build=dlrm,
        configure=_no_numbers,
        describe_batch=_dlrm_batch,
        step=predict_click,
        default_batch=_constant(2048),
        presets=(_tiny("dlrm", rows=(64, 32, 16), width=8, dense=8, bottom=(32, 16), top=(32, 16), lookups=2),),
    ),
)
