"""What `girih models` lists, without loading torch; a test holds it against `girih.models.names()`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelLine:
    """A family of models as it is listed: its names' pattern, examples, what it is and where it comes from."""

    name: str
    pattern: str
    examples: tuple[str, ...]
    description: str
    source: str


MODELS: tuple[ModelLine, ...] = (
    ModelLine(
        "mlp",
        "mlp[-SIZE-SIZE…]",
        ("mlp", "mlp-512-512-10"),
        "linear layers with ReLU between them",
        "",
    ),
    ModelLine(
        "lenet",
        "lenet",
        ("lenet",),
        "LeNet-5 on 32×32 grey images",
        "LeCun, Bottou, Bengio, Haffner 1998",
    ),
    ModelLine(
        "alexnet",
        "alexnet",
        ("alexnet",),
        "AlexNet, one tower, on ImageNet",
        "Krizhevsky 2014, arXiv:1404.5997",
    ),
    ModelLine(
        "resnet",
        "resnet-DEPTH[-IMAGE]",
        ("resnet-50", "resnet-101", "resnet-152"),
        "bottleneck ResNet on ImageNet",
        "He, Zhang, Ren, Sun 2015, arXiv:1512.03385",
    ),
    ModelLine(
        "wresnet",
        "wresnet-DEPTH-WIDTH[-IMAGE]",
        ("wresnet-50-4", "wresnet-101-8", "wresnet-152-10", "wresnet-50-2-32"),
        "bottleneck ResNet with every convolution widened by WIDTH",
        "Wang, Huang, Li, EuroSys 2019 (Tofu), section 7",
    ),
    ModelLine(
        "inception",
        "inception[-IMAGE]",
        ("inception",),
        "Inception-v3 on ImageNet",
        "Szegedy et al. 2015, arXiv:1512.00567",
    ),
    ModelLine(
        "rnn",
        "rnn-LAYERS-HIDDEN",
        ("rnn-6-4k", "rnn-8-8k", "rnn-10-8k"),
        "LSTM unrolled for 20 steps (k is 1024)",
        "Wang, Huang, Li, EuroSys 2019 (Tofu), section 7",
    ),
    ModelLine(
        "rnntc",
        "rnntc[-LAYERS[-HIDDEN[-STEPS]]]",
        ("rnntc", "rnntc-4-1k-40"),
        "text classification: LSTM of 4 layers of 1024, unrolled for 40 steps",
        "Jia 2020 (thesis; FlexFlow), section 3.7",
    ),
    ModelLine(
        "rnnlm",
        "rnnlm[-LAYERS[-HIDDEN[-STEPS]]]",
        ("rnnlm", "rnnlm-2-2k-2"),
        "language model: LSTM of 2 layers of 2048, unrolled for 40 steps",
        "Jia 2020 (thesis; FlexFlow), section 3.7",
    ),
    ModelLine(
        "nmt",
        "nmt[-LAYERS[-HIDDEN[-STEPS]]]",
        ("nmt", "nmt-2-1k-10"),
        "translation: LSTM encoder and decoder of 2 layers of 1024 each, attention, 40 steps",
        "Jia 2020 (thesis; FlexFlow), section 3.7",
    ),
    ModelLine(
        "gpt",
        "gpt-LAYERS-WIDTH",
        ("gpt-12-1024", "gpt2", "gpt2-xl"),
        "GPT-2, heads of 64, sequences of 1024",
        "Radford et al. 2019",
    ),
    ModelLine(
        "llama",
        "llama-LAYERS-WIDTH",
        ("llama-8b", "llama-32-4096"),
        "Llama 3, heads of 128, four to a key-value head, sequences of 2048",
        "Llama Team 2024, arXiv:2407.21783",
    ),
    ModelLine(
        "bert",
        "bert-LAYERS-WIDTH",
        ("bert-12-768", "bert-24-1024"),
        "BERT with its masked-token head, heads of 64, sequences of 512",
        "Devlin, Chang, Lee, Toutanova 2018, arXiv:1810.04805",
    ),
    ModelLine(
        "dlrm",
        "dlrm",
        ("dlrm",),
        "recommendation model with the 26 tables of Criteo Kaggle",
        "Naumov et al. 2019, arXiv:1906.00091",
    ),
    ModelLine(
        "dlrm-criteo",
        "dlrm-criteo",
        ("dlrm-criteo",),
        "recommendation model of wider networks, tables of width 64, vectors concatenated",
        "Jia 2020 (thesis; FlexFlow), section 3.7",
    ),
    ModelLine(
        "candle-uno",
        "candle-uno",
        ("candle-uno",),
        "a tumour cell's response to a drug: three bottom networks, concatenated, and a top one",
        "Jia 2020 (thesis; FlexFlow), section 3.7",
    ),
)
