"""Parameter counts: of released models, and of Tofu's Table 2."""

import pytest
import torch

from girih.models import bert, example, inception_v3, names, nasnet

GIB = 2**30

# Wang, Huang, Li 2019, Table 2: weights, gradients and history. For 8 layers of 6K the paper prints 28.5;
# its neighbours 18.6 and 32.1 lie 13.5 apart for four layers, so half-way is 25.4: a misprint of 25.5.
TABLE_2 = {
    **{f"rnn-{layers}-4k": size for layers, size in ((6, 8.4), (8, 11.4), (10, 14.4))},
    **{f"rnn-{layers}-6k": size for layers, size in ((6, 18.6), (8, 25.5), (10, 32.1))},
    **{f"rnn-{layers}-8k": size for layers, size in ((6, 33.0), (8, 45.3), (10, 57.0))},
    **{f"wresnet-{depth}-4": size for depth, size in ((50, 4.2), (101, 7.8), (152, 10.5))},
    **{f"wresnet-{depth}-6": size for depth, size in ((50, 9.6), (101, 17.1), (152, 23.4))},
    **{f"wresnet-{depth}-8": size for depth, size in ((50, 17.1), (101, 30.6), (152, 41.7))},
    **{f"wresnet-{depth}-10": size for depth, size in ((50, 26.7), (101, 47.7), (152, 65.1))},
}

# Wei 2019, tables 6.1, 6.7, 6.8, 6.10, 6.13 and 6.14: parameters, in the unit of the last digit that the paper prints.
TENSORFLOWMEM = {
    "transformer": (61, 1e6),
    "resnet-152": (60, 1e6),
    "moe-12": (66, 1e7),
    "moe-48": (25, 1e8),
    "moe-52": (27, 1e8),
    "moe-56": (29, 1e8),
    "moe-160": (81, 1e8),
    "moe-200": (101, 1e8),
    "sparse-moe-400": (202, 1e8),
    "deepspeech": (47, 1e6),
}


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lenet", 61_706),
        ("alexnet", 61_100_840),
        ("resnet-50", 25_557_032),
        ("resnet-101", 44_549_160),
        ("resnet-152", 60_192_808),
        ("inception", 23_834_568),
        ("inception4", 42_679_816),
        ("resnext-50", 25_028_904),
        ("resnext-50-branches", 25_028_904),
        ("vgg", 143_667_240),
        ("squeezenet", 1_235_496),
        ("densenet", 7_978_856),
        ("nasrnn", 16 * 512 * 512 + 512 * 1000 + 1000),
        ("vit-b", 86_567_656),
        ("vit-l", 304_326_632),
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("llama-8b", 8_030_261_248),
        ("dlrm", 540_677_217),
    ],
)
def test_parameter_count(name: str, expected: int) -> None:
    assert parameters(example(name).module) == expected


def test_parameter_count_with_options() -> None:
    with torch.device("meta"):
        assert parameters(inception_v3(auxiliary=True)) == 27_161_264
        assert parameters(nasnet(4, 44, stem=32)) == 5_289_978
        assert parameters(nasnet(6, 168)) == 88_753_150
        # BertForMaskedLM of bert-base-uncased: no pooler, output layer tied, its bias counted once.
        assert parameters(bert(12, 768, 12)) == 109_514_298
    tied, untied = (parameters(example("gpt2", tied=tied).module) for tied in (True, False))
    assert untied - tied == 50257 * 768


@pytest.mark.parametrize(("name", "size"), TABLE_2.items(), ids=TABLE_2)
def test_tofu_table_2(name: str, size: float) -> None:
    total = 3 * 4 * parameters(example(name).module)
    assert total / GIB == pytest.approx(size, rel=0.03)


@pytest.mark.parametrize(("name", "expected"), TENSORFLOWMEM.items(), ids=TENSORFLOWMEM)
def test_tensorflowmem_tables(name: str, expected: tuple[int, float]) -> None:
    size, unit = expected
    assert round(parameters(example(name).module) / unit) == size


@pytest.mark.parametrize(("name", "expected"), [("resnet-504", 172e6), ("resnet-1001", 385e6), ("resnet-1916", 697e6)])
def test_deep_resnets_are_about_as_large_as_tensorflowmems(name: str, expected: float) -> None:
    """Table 6.7. How many blocks the other stages have, the paper does not tell; ours are those of ResNet-152."""
    assert parameters(example(name).module) == pytest.approx(expected, rel=0.12)


def test_both_networks_of_the_gan_are_held_and_one_is_trained() -> None:
    """Table 6.1 has 17 million; the authors' code for 64×64 images makes 16."""
    critic, generator = (example(name).module for name in ("wgan-critic", "wgan-generator"))
    assert parameters(critic) == parameters(generator) == 16_032_324
    trained = [sum(item.numel() for item in each.parameters() if item.requires_grad) for each in (critic, generator)]
    assert sum(trained) == parameters(critic)


@pytest.mark.parametrize("name", [name for family in names() for name in family.examples])
def test_default_batch_describes_what_the_model_takes(name: str) -> None:
    shown = example(name)
    assert all(tensor.device.type == "meta" for tensor in shown.module.parameters())
    tensors, _ = torch.utils._pytree.tree_flatten(shown.inputs)
    assert {tensor.shape[0] for tensor in tensors} == {shown.batch}
    assert {tensor.device.type for tensor in tensors} == {"meta"}
