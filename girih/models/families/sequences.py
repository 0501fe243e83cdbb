"""Families of models that read sequences: recurrent networks and transformers."""

from __future__ import annotations

from collections.abc import Callable

from girih.models.batches import BatchDescription, TensorDescription
from girih.models.families.family import (
    FLEXFLOW,
    SWAPADVISOR,
    TENSORFLOWMEM,
    TOFU,
    ModelFamily,
    Options,
    Preset,
    constant,
    heads_of,
    sized_by_heads,
    tiny,
)


def _rnn_default(options: Options) -> int:
    """Tofu takes 512, and 128 "in order to fit RNN-10-8K in memory"."""
    return 128 if (options["layers"], options["hidden"]) == (10, 8192) else 512


def _rnn_batch(options: Options, batch: int) -> BatchDescription:
    return {
        "vectors": TensorDescription((batch, options["steps"], options["input"])),
        "targets": TensorDescription((batch, options["steps"]), below=options["vocabulary"]),
    }


def _vector_batch(options: Options, batch: int) -> BatchDescription:
    return {
        "images": TensorDescription((batch, options["steps"], options["hidden"])),
        "labels": TensorDescription((batch,), below=options["classes"]),
    }


def _text_batch(options: Options, batch: int) -> BatchDescription:
    return {
        "tokens": TensorDescription((batch, options["steps"]), below=options["vocabulary"]),
        "labels": TensorDescription((batch,), below=options["classes"]),
    }


def _words(*names: str, length: str = "sequence") -> Callable[[Options, int], BatchDescription]:
    """Batches of words under these names, `[batch, length]` each; the model's option `length` says how many."""

    def describe(options: Options, batch: int) -> BatchDescription:
        return dict.fromkeys(names, TensorDescription((batch, options[length]), below=options["vocabulary"]))

    return describe


def _speech_batch(options: Options, batch: int) -> BatchDescription:
    """A letter in four frames: those of 20 ms, and 12 letters a second."""
    return {
        "frames": TensorDescription((batch, options["steps"], options["features"])),
        "letters": TensorDescription((batch, max(1, options["steps"] // 4)), below=options["letters"]),
    }


def _bert_batch(options: Options, batch: int) -> BatchDescription:
    shape = (batch, options["sequence"])
    return {
        "tokens": TensorDescription(shape, below=options["vocabulary"]),
        "segments": TensorDescription(shape, below=options["segments"]),
        "targets": TensorDescription(shape, below=options["vocabulary"], ignored=0.85),
    }


def _transformer_options(layers: int = 6, width: int = 512) -> Options:
    return {**sized_by_heads(layers, width), "hidden": 4 * width}


def _llama_options(layers: int, width: int) -> Options:
    """The proportions of Llama-3-8B: heads of 128, four to a key-value head, a network of 3.5 widths."""
    heads = heads_of(width, 128)
    kv_heads = heads // 4 if heads % 4 == 0 else heads
    return {"layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "hidden": width * 7 // 2}


SEQUENCE_FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        name="rnn",
        pattern="rnn-LAYERS-HIDDEN",
        examples=("rnn-6-4k", "rnn-8-8k", "rnn-10-8k"),
        description="LSTM unrolled for 20 steps (k is 1024)",
        source=TOFU,
        describe_batch=_rnn_batch,
        step="predict_each_step",
        default_batch=_rnn_default,
        presets=(tiny("rnn", layers=2, hidden=32, steps=4, input=16, vocabulary=16),),
    ),
    ModelFamily(
        name="brnn",
        pattern="brnn-LAYERS-HIDDEN",
        examples=("brnn-4-8k",),
        description="bidirectional LSTM unrolled for 20 steps (k is 1024)",
        source=SWAPADVISOR,
        describe_batch=_rnn_batch,
        step="predict_each_step",
        default_batch=constant(128),
        presets=(tiny("brnn", layers=2, hidden=32, steps=4, input=16, vocabulary=16),),
    ),
    ModelFamily(
        name="rnntc",
        pattern="rnntc[-LAYERS[-HIDDEN[-STEPS]]]",
        examples=("rnntc", "rnntc-4-1k-40"),
        description="text classification: LSTM of 4 layers of 1024, unrolled for 40 steps",
        source=FLEXFLOW,
        describe_batch=_text_batch,
        step="classify_text",
        presets=(tiny("rnntc", layers=2, hidden=16, steps=4, vocabulary=32, classes=4),),
    ),
    ModelFamily(
        name="rnnlm",
        pattern="rnnlm[-LAYERS[-HIDDEN[-STEPS]]]",
        examples=("rnnlm", "rnnlm-2-2k-2"),
        description="language model: LSTM of 2 layers of 2048, unrolled for 40 steps",
        source=FLEXFLOW,
        describe_batch=_words("tokens", "targets", length="steps"),
        step="predict_each_word",
        presets=(tiny("rnnlm", layers=2, hidden=16, steps=4, vocabulary=32),),
    ),
    ModelFamily(
        name="nasrnn",
        pattern="nasrnn[-HIDDEN[-STEPS]]",
        examples=("nasrnn", "nasrnn-1k-20"),
        description="NasRNN: a cell that a search has found, of 512, unrolled for 5 steps",
        source="Zoph, Le 2017, arXiv:1611.01578",
        describe_batch=_vector_batch,
        presets=(tiny("nasrnn", hidden=16, steps=3, classes=16),),
    ),
    ModelFamily(
        name="nmt",
        pattern="nmt[-LAYERS[-HIDDEN[-STEPS]]]",
        examples=("nmt", "nmt-2-1k-10"),
        description="translation: LSTM encoder and decoder of 2 layers of 1024 each, attention, 40 steps",
        source=FLEXFLOW,
        describe_batch=_words("source", "tokens", "targets", length="steps"),
        step="translate",
        presets=(tiny("nmt", layers=2, hidden=16, steps=4, vocabulary=32),),
    ),
    ModelFamily(
        name="deepspeech",
        pattern="deepspeech[-STEPS]",
        examples=("deepspeech", "deepspeech-800"),
        description="Mozilla's Deep Speech: LSTM of 2048 unrolled for 165 steps, dense layers around it, CTC loss",
        source=f"Hannun et al. 2014, arXiv:1412.5567; {TENSORFLOWMEM}",
        build="deep_speech",
        describe_batch=_speech_batch,
        step="transcribe",
        default_batch=constant(128),
        presets=(tiny("deepspeech", steps=8, hidden=16, features=12, letters=6),),
    ),
    ModelFamily(
        name="gpt",
        pattern="gpt-LAYERS-WIDTH",
        examples=("gpt-12-1024", "gpt2", "gpt2-xl"),
        description="GPT-2, heads of 64, sequences of 1024",
        source="Radford et al. 2019",
        configure=sized_by_heads,
        describe_batch=_words("tokens", "targets"),
        step="predict_next_token",
        default_batch=constant(8),
        presets=(
            Preset("gpt2", sized_by_heads(12, 768)),
            Preset("gpt2-medium", sized_by_heads(24, 1024)),
            Preset("gpt2-large", sized_by_heads(36, 1280)),
            Preset("gpt2-xl", sized_by_heads(48, 1600)),
            tiny("gpt", layers=2, width=32, heads=4, sequence=16, vocabulary=64),
        ),
    ),
    ModelFamily(
        name="llama",
        pattern="llama-LAYERS-WIDTH",
        examples=("llama-8b", "llama-32-4096"),
        description="Llama 3, heads of 128, four to a key-value head, sequences of 2048",
        source="Llama Team 2024, arXiv:2407.21783",
        configure=_llama_options,
        describe_batch=_words("tokens", "targets"),
        step="predict_next_token",
        default_batch=constant(8),
        presets=(
            Preset("llama-8b", _llama_options(32, 4096)),
            tiny("llama", layers=2, width=32, heads=4, kv_heads=2, hidden=64, vocabulary=64, sequence=16),
        ),
    ),
    ModelFamily(
        name="bert",
        pattern="bert-LAYERS-WIDTH",
        examples=("bert-12-768", "bert-24-1024"),
        description="BERT with its masked-token head, heads of 64, sequences of 512",
        source="Devlin, Chang, Lee, Toutanova 2018, arXiv:1810.04805",
        configure=sized_by_heads,
        describe_batch=_bert_batch,
        step="fill_masked_tokens",
        default_batch=constant(32),
        presets=(tiny("bert", layers=2, width=32, heads=4, sequence=16, vocabulary=64),),
    ),
    ModelFamily(
        name="transformer",
        pattern="transformer[-LAYERS-WIDTH]",
        examples=("transformer", "transformer-6-1024"),
        description="the first Transformer: encoder and decoder of 6 layers of 512, heads of 64, sentences of 256",
        source="Vaswani et al. 2017, arXiv:1706.03762",
        configure=_transformer_options,
        describe_batch=_words("source", "tokens", "targets"),
        step="translate_sentences",
        default_batch=constant(44),  # 11,264 words: the most that TensorFlowMem's table 6.5 has without its techniques
        presets=(tiny("transformer", layers=1, width=32, heads=4, hidden=64, sequence=8, vocabulary=64),),
    ),
    ModelFamily(
        name="moe",
        pattern="moe-EXPERTS[-HIDDEN]",
        examples=("moe-12", "moe-32-2048", "moe-48"),
        description="Transformer with EXPERTS networks in each layer, words sent by dense products",
        source=TENSORFLOWMEM,
        describe_batch=_words("source", "tokens", "targets"),
        step="translate_sentences",
        default_batch=constant(8),
        presets=(tiny("moe", experts=4, layers=1, width=32, heads=4, hidden=64, sequence=8, vocabulary=64),),
    ),
    ModelFamily(
        name="sparse-moe",
        pattern="sparse-moe-EXPERTS[-HIDDEN]",
        examples=("sparse-moe-48", "sparse-moe-400"),
        description="the same, words gathered by index",
        source=TENSORFLOWMEM,
        build="moe",
        configure=lambda experts, hidden=4096: {"experts": experts, "hidden": hidden, "sparse": True},
        describe_batch=_words("source", "tokens", "targets"),
        step="translate_sentences",
        default_batch=constant(8),
        presets=(
            tiny(
                "sparse-moe", experts=4, sparse=True, layers=1, width=32, heads=4, hidden=64, sequence=8, vocabulary=64
            ),
        ),
    ),
)
