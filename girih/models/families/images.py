"""Families of models that look at images, whole or as vectors."""

from __future__ import annotations

from girih.models.batches import BatchDescription, TensorDescription, images
from girih.models.families.family import (
    SWAPADVISOR,
    SWAPADVISOR_BATCH,
    TENSORFLOWMEM,
    TOFU,
    ModelFamily,
    Options,
    Preset,
    constant,
    sized_by_heads,
    tiny,
)


def _mlp_batch(options: Options, batch: int) -> BatchDescription:
    sizes = options["sizes"]
    return {
        "images": TensorDescription((batch, sizes[0])),
        "labels": TensorDescription((batch,), below=sizes[-1]),
    }


def _wide_resnet_default(options: Options) -> int:
    """What Tofu fits: 8 for WResNet-152-10; otherwise the 128 of its ideal baseline."""
    return 8 if (options["depth"], options["width"]) == (152, 10) else 128


def _wgan_batch(options: Options, batch: int) -> BatchDescription:
    return {"noise": TensorDescription((batch, options["numbers"]))}


def _critic_batch(options: Options, batch: int) -> BatchDescription:
    size = 4 * 2 ** (len(options["levels"]) - 1)
    images = TensorDescription((batch, 3, size, size))
    return {"images": images, "mixing": TensorDescription((batch,)), **_wgan_batch(options, batch)}


IMAGE_FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        name="mlp",
        pattern="mlp[-SIZE-SIZE…]",
        examples=("mlp", "mlp-512-512-10"),
        description="linear layers with ReLU between them",
        configure=lambda *sizes: {"sizes": sizes or (784, 512, 512, 10)},
        describe_batch=_mlp_batch,
        default_batch=constant(128),
        presets=(tiny("mlp", sizes=(32, 64, 64, 16)),),
    ),
    ModelFamily(
        name="lenet",
        pattern="lenet",
        description="LeNet-5 on 32×32 grey images",
        source="LeCun, Bottou, Bengio, Haffner 1998",
        describe_batch=lambda options, batch: images(batch, 1, 32, options["classes"]),
        presets=(tiny("lenet"),),
    ),
    ModelFamily(
        name="alexnet",
        pattern="alexnet",
        description="AlexNet, one tower, on ImageNet",
        source="Krizhevsky 2014, arXiv:1404.5997",
        default_batch=constant(256),  # FlexFlow's, "which has a much smaller model"
        presets=(tiny("alexnet", image=64, classes=16, channels=(8, 16, 32, 16, 16), hidden=64),),
    ),
    ModelFamily(
        name="resnet",
        pattern="resnet-DEPTH[-IMAGE]",
        examples=("resnet-50", "resnet-101", "resnet-152", "resnet-1001"),
        description="bottleneck ResNet on ImageNet",
        source="He, Zhang, Ren, Sun 2015, arXiv:1512.03385",
        build="wide_resnet",
        presets=(tiny("resnet", depth=14, blocks=(1, 1, 1, 1), channels=8, image=32, classes=16),),
    ),
    ModelFamily(
        name="wresnet",
        pattern="wresnet-DEPTH-WIDTH[-IMAGE]",
        examples=("wresnet-50-4", "wresnet-101-8", "wresnet-152-10", "wresnet-50-2-32"),
        description="bottleneck ResNet with every convolution widened by WIDTH",
        source=TOFU,
        build="wide_resnet",
        default_batch=_wide_resnet_default,
        presets=(tiny("wresnet", depth=14, blocks=(1, 1, 1, 1), width=2, channels=8, image=32, classes=16),),
    ),
    ModelFamily(
        name="resnext",
        pattern="resnext-DEPTH[-IMAGE]",
        examples=("resnext-50",),
        description="ResNeXt of 32 groups of 4 channels on ImageNet",
        source="Xie et al. 2017, arXiv:1611.05431",
        presets=(
            Preset("resnext-50-branches", {"depth": 50, "branches": True}),
            tiny("resnext", blocks=(1, 1), groups=4, size=2, channels=8, branches=True, image=32, classes=16),
        ),
    ),
    ModelFamily(
        name="vgg",
        pattern="vgg[-IMAGE]",
        description="VGG-19 on ImageNet",
        source="Simonyan, Zisserman 2014, arXiv:1409.1556",
        presets=(tiny("vgg", stages=((8, 1), (16, 2)), image=32, hidden=32, classes=16),),
    ),
    ModelFamily(
        name="squeezenet",
        pattern="squeezenet[-IMAGE]",
        description="SqueezeNet 1.1 on ImageNet",
        source="Iandola et al. 2016, arXiv:1602.07360",
        presets=(tiny("squeezenet", fires=((4, 8), None, (4, 8)), channels=8, image=32, classes=16),),
    ),
    ModelFamily(
        name="densenet",
        pattern="densenet[-IMAGE]",
        description="DenseNet-121 on ImageNet",
        source="Huang, Liu, van der Maaten, Weinberger 2017, arXiv:1608.06993",
        presets=(tiny("densenet", blocks=(2, 2), growth=4, image=32, classes=16),),
    ),
    ModelFamily(
        name="inception",
        pattern="inception[-IMAGE]",
        description="Inception-v3 on ImageNet",
        source="Szegedy et al. 2015, arXiv:1512.00567",
        build="inception_v3",
        presets=(tiny("inception", image=75, classes=16, scale=1 / 16),),
    ),
    ModelFamily(
        name="inception4",
        pattern="inception4[-WIDTH[-IMAGE]]",
        examples=("inception4", "inception4-4"),
        description="Inception-v4 on ImageNet, every convolution widened by WIDTH",
        source=f"Szegedy et al. 2016, arXiv:1602.07261; widened by {SWAPADVISOR}",
        build="inception_v4",
        default_batch=constant(SWAPADVISOR_BATCH),
        presets=(tiny("inception4", image=75, classes=16, width=1 / 16),),
    ),
    ModelFamily(
        name="nasnet",
        pattern="nasnet-REPEATS[-FILTERS[-IMAGE]]",
        examples=("nasnet-4-44", "nasnet-25"),
        description="NASNet-A, stages of REPEATS normal cells, FILTERS channels in the first",
        source=f"Zoph et al. 2018, arXiv:1707.07012; deepened by {SWAPADVISOR}",
        default_batch=constant(SWAPADVISOR_BATCH),
        presets=(tiny("nasnet", repeats=1, filters=8, image=32, classes=16, stem=4),),
    ),
    ModelFamily(
        name="vit",
        pattern="vit-LAYERS-WIDTH",
        examples=("vit-b", "vit-l", "vit-24-1024"),
        description="Vision Transformer with patches of 16×16, heads of 64, on ImageNet",
        source="Dosovitskiy et al. 2020, arXiv:2010.11929",
        configure=sized_by_heads,
        presets=(
            Preset("vit-b", sized_by_heads(12, 768)),
            Preset("vit-l", sized_by_heads(24, 1024)),
            tiny("vit", layers=2, width=32, heads=4, image=16, patch=4, classes=16),
        ),
    ),
    ModelFamily(
        name="wgan-critic",
        pattern="wgan-critic[-WIDTH]",
        description="WGAN-GP on 64×64 images while it trains the critic, with the penalty on its slope",
        source=f"Gulrajani et al. 2017, arXiv:1704.00028; {TENSORFLOWMEM}",
        describe_batch=_critic_batch,
        step="criticise",
        default_batch=constant(64),
        presets=(tiny("wgan-critic", width=4, levels=(2, 1), numbers=8),),
    ),
    ModelFamily(
        name="wgan-generator",
        pattern="wgan-generator[-WIDTH]",
        description="WGAN-GP on 64×64 images while it trains the generator",
        source=f"Gulrajani et al. 2017, arXiv:1704.00028; {TENSORFLOWMEM}",
        describe_batch=_wgan_batch,
        step="please_critic",
        default_batch=constant(64),
        presets=(tiny("wgan-generator", width=4, levels=(2, 1), numbers=8),),
    ),
)
