"""Models of `transformers` train under girih.fit as they come, beside the same loop in plain PyTorch.

What: 40 models in small random configurations, made of their config classes (nothing is downloaded): decoders,
encoders, encoder-decoders, vision, speech, mixtures of experts, state spaces, text with pictures.
How: examples of several lengths go through a tokenizer or feature extractor and a data collator into a DataLoader,
whose last batch is short; each loop makes six steps, in two epochs, with the model's own loss and AdamW, once by
PyTorch and once by `girih.fit`, in float32. Dropout is off, since the two draw other numbers.
Floor: how many models must have PyTorch's losses to 1e-5, relative; each of the others has to be refused with its line.
"""

from __future__ import annotations

import argparse
import copy
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import Benchmark, Report, Row, clock, note, since

TOLERANCE = 1e-5
WORDS, LENGTHS, BATCH, EXAMPLES = 64, (6, 9, 12, 8, 11, 7, 10, 12, 5, 9), 4, 10
LINE = re.compile(r"[\w/.-]+\.py:\d+")


@dataclass(frozen=True)
class Case:
    """A model. config: of its configuration class, and its options; head: the class that makes a model of it. data: one
    of DATA."""

    kind: str
    config: str
    head: str
    data: str
    options: Mapping[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------ configurations

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {"vocab_size": WORDS, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**SIZES, **TEXT, "num_key_value_heads": 2}
DRY = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ENCODER = {**SIZES, **TEXT, **DRY}
OLD = {**TEXT, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0, "embd_pdrop": 0}
PICTURE = {**SIZES, **DRY, "image_size": 16, "patch_size": 4}
TWO = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
TWO |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "dropout": 0.0}
TWO |= {**TEXT, "decoder_start_token_id": 1}
SOUND = {**SIZES, "vocab_size": 32, "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2)}
SOUND |= {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "layerdrop": 0.0, "feat_proj_dropout": 0.0}
SOUND |= {"hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "final_dropout": 0.0}
SOUND |= {"apply_spec_augment": False}
EXPERTS = {**DECODER, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1]}

CAUSAL, CLASSES = "AutoModelForCausalLM", "AutoModelForSequenceClassification"
PAIRS, PICTURES = "AutoModelForSeq2SeqLM", "AutoModelForImageClassification"
SOUNDS = "AutoModelForAudioClassification"


def _decoder(config: str, **options: Any) -> Case:
    return Case("decoder", config, CAUSAL, "causal", options or DECODER)


CASES = {
    "gpt2": _decoder("GPT2Config", **OLD, attn_pdrop=0),
    "llama": _decoder("LlamaConfig"),
    "bert": Case("encoder", "BertConfig", CLASSES, "classes", ENCODER),
    "t5": Case("both", "T5Config", PAIRS, "pairs", {
        **TEXT, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0,
        "decoder_start_token_id": 0,
    }),
    "vit": Case("vision", "ViTConfig", PICTURES, "pictures", PICTURE),
    "wav2vec2": Case("speech", "Wav2Vec2Config", SOUNDS, "waves", SOUND),
    "mixtral": _decoder("MixtralConfig", **DECODER, num_local_experts=4),
    "wav2vec2-ctc": Case("speech", "Wav2Vec2Config", "AutoModelForCTC", "spoken", SOUND),
    "mistral": _decoder("MistralConfig", **DECODER, sliding_window=8),
    "qwen2": _decoder("Qwen2Config"),
    "qwen3": _decoder("Qwen3Config", **DECODER, head_dim=8),
    "qwen3-moe": _decoder("Qwen3MoeConfig", **EXPERTS),
    "gemma2": _decoder("Gemma2Config", **DECODER, head_dim=8),
    "phi3": _decoder("Phi3Config"),
    "opt": _decoder("OPTConfig", **TEXT, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48,
                    dropout=0.0, word_embed_proj_dim=32),
    "gpt-neox": _decoder("GPTNeoXConfig", **SIZES, **TEXT),
    "gpt-j": _decoder("GPTJConfig", **OLD, rotary_dim=4, attn_pdrop=0),
    "bloom": _decoder("BloomConfig", **TEXT, hidden_size=32, n_layer=2, n_head=4),
    "falcon": _decoder("FalconConfig", **TEXT, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "stablelm": _decoder("StableLmConfig"),
    "starcoder2": _decoder("Starcoder2Config", **DECODER, residual_dropout=0.0, embedding_dropout=0.0),
    "olmo2": _decoder("Olmo2Config"),
    "mamba": _decoder("MambaConfig", **TEXT, hidden_size=32, num_hidden_layers=2, state_size=4),
    "bert-mlm": Case("encoder", "BertConfig", "AutoModelForMaskedLM", "masked", ENCODER),
    "bert-tokens": Case("encoder", "BertConfig", "AutoModelForTokenClassification", "tokens", ENCODER),
    "roberta": Case("encoder", "RobertaConfig", CLASSES, "classes", ENCODER),
    "distilbert": Case("encoder", "DistilBertConfig", CLASSES, "classes", {
        **TEXT, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "dropout": 0.0, "attention_dropout": 0.0,
        "seq_classif_dropout": 0.0,
    }),
    "electra": Case("encoder", "ElectraConfig", CLASSES, "classes", {**ENCODER, "embedding_size": 16}),
    "albert": Case("encoder", "AlbertConfig", CLASSES, "classes", {
        **ENCODER, "embedding_size": 16, "classifier_dropout_prob": 0.0,
    }),
    "modernbert": Case("encoder", "ModernBertConfig", CLASSES, "classes", {
        **SIZES, **TEXT, "cls_token_id": 1, "sep_token_id": 2,
    }),
    "deberta-v2": Case("encoder", "DebertaV2Config", CLASSES, "classes", {
        **ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
    }),
    "bart": Case("both", "BartConfig", PAIRS, "pairs", TWO),
    "pegasus": Case("both", "PegasusConfig", PAIRS, "pairs", TWO),
    "whisper": Case("both", "WhisperConfig", "AutoModelForSpeechSeq2Seq", "dictated", {
        **{key: item for key, item in TWO.items() if key != "max_position_embeddings"},
        "num_mel_bins": 8, "max_source_positions": 50, "max_target_positions": 16,
    }),
    "beit": Case("vision", "BeitConfig", PICTURES, "pictures", {**PICTURE, "drop_path_rate": 0.0}),
    "swin": Case("vision", "SwinConfig", PICTURES, "large pictures", {
        **DRY, "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2],
        "window_size": 4, "drop_path_rate": 0.0,
    }),
    "resnet": Case("vision", "ResNetConfig", PICTURES, "large pictures", {
        **STAGES, "embedding_size": 8, "layer_type": "basic",
    }),
    "convnext": Case("vision", "ConvNextConfig", PICTURES, "large pictures", {**STAGES, "num_stages": 2}),
    "dinov2": Case("vision", "Dinov2Config", PICTURES, "pictures", {
        **{key: item for key, item in PICTURE.items() if key != "intermediate_size"}, "drop_path_rate": 0.0,
    }),
    "clip": Case("text and pictures", "CLIPConfig", "CLIPModel", "captions", {
        "text_config": {**SIZES, **TEXT}, "vision_config": {**SIZES, "image_size": 16, "patch_size": 4},
        "projection_dim": 16,
    }),
}  # fmt: skip
"""The quick form takes the first of them."""

QUICK = 8


# --------------------------------------------------------------------------------------------------------- data


def _tokenizer() -> Any:
    """Words are numbers: "w7" has the number 7."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "w0", "bos_token": "w1", "eos_token": "w2", "unk_token": "w3", "mask_token": "w4"}
    words = Tokenizer(WordLevel({f"w{number}": number for number in range(WORDS)}, unk_token="w3"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def _texts(seed: int = 0) -> list[str]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    numbers = [torch.randint(5, WORDS, (length,), generator=generator).tolist() for length in LENGTHS]
    return [" ".join(f"w{number}" for number in row) for row in numbers]


def _encoded(**more: Callable[[int, Any], Any]) -> list[dict[str, Any]]:
    """Texts by the tokenizer, with what is made of their number and themselves."""
    tokenizer = _tokenizer()
    found = []
    for number, text in enumerate(_texts()):
        encoded = dict(tokenizer(text))
        found.append({**encoded, **{name: make(number, encoded) for name, make in more.items()}})
    return found


def _causal() -> tuple[Any, Any]:
    from transformers import DataCollatorForLanguageModeling

    return _encoded(), DataCollatorForLanguageModeling(_tokenizer(), mlm=False, pad_to_multiple_of=12)


def _classes() -> tuple[Any, Any]:
    from transformers import DataCollatorWithPadding

    return _encoded(labels=lambda number, _: number % 2), DataCollatorWithPadding(_tokenizer(), pad_to_multiple_of=12)


def _masked() -> tuple[Any, Any]:
    from transformers import DataCollatorForLanguageModeling

    return _encoded(), DataCollatorForLanguageModeling(_tokenizer(), mlm_probability=0.3, pad_to_multiple_of=12)


def _tokens() -> tuple[Any, Any]:
    from transformers import DataCollatorForTokenClassification

    labelled = _encoded(labels=lambda _, encoded: [number % 2 for number in encoded["input_ids"]])
    return labelled, DataCollatorForTokenClassification(_tokenizer(), pad_to_multiple_of=12)


def _pairs() -> tuple[Any, Any]:
    from transformers import DataCollatorForSeq2Seq

    labelled = _encoded(labels=lambda _, encoded: encoded["input_ids"][::-1])
    return labelled, DataCollatorForSeq2Seq(_tokenizer(), pad_to_multiple_of=12)


def _noise(*shape: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for _ in range(EXAMPLES)]


def _pictures(size: int) -> tuple[Any, Any]:
    from transformers import DefaultDataCollator

    return [{"pixel_values": picture, "label": number % 2} for number, picture in enumerate(_noise(3, size, size))], (
        DefaultDataCollator()
    )


def _waves(labels: Callable[[int], Any]) -> tuple[Any, Any]:
    import torch
    from transformers import Wav2Vec2FeatureExtractor

    extractor = Wav2Vec2FeatureExtractor()

    def collate(examples: list[tuple[int, Any]]) -> Any:
        batch = extractor(
            [wave.numpy() for _, wave in examples], sampling_rate=16000, return_tensors="pt", padding=True
        )
        batch["labels"] = torch.tensor([labels(number) for number, _ in examples])
        return batch

    return list(enumerate(_noise(800))), collate


def _dictated() -> tuple[Any, Any]:
    import torch
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=8, chunk_length=1)

    def collate(examples: list[tuple[int, Any]]) -> Any:
        batch = extractor([wave.numpy() for _, wave in examples], sampling_rate=16000, return_tensors="pt")
        batch["labels"] = torch.tensor([[5 + (number + place) % 50 for place in range(6)] for number, _ in examples])
        return batch

    return list(enumerate(_noise(8000))), collate


def _captions() -> tuple[Any, Any]:
    import torch

    tokenizer, texts = _tokenizer(), _texts()

    def collate(examples: list[tuple[int, Any]]) -> Any:
        words = [texts[number] + " w2" for number, _ in examples]
        batch = tokenizer(words, padding="max_length", truncation=True, max_length=14, return_tensors="pt")
        batch["pixel_values"] = torch.stack([picture for _, picture in examples])
        batch["return_loss"] = True
        return batch

    return list(enumerate(_noise(3, 16, 16))), collate


DATA: dict[str, Callable[[], tuple[Any, Any]]] = {
    "causal": _causal,
    "classes": _classes,
    "masked": _masked,
    "tokens": _tokens,
    "pairs": _pairs,
    "pictures": lambda: _pictures(16),
    "large pictures": lambda: _pictures(32),
    "waves": lambda: _waves(lambda number: number % 2),
    "spoken": lambda: _waves(lambda number: [1 + (number + place) % 30 for place in range(6)]),
    "dictated": _dictated,
    "captions": _captions,
}


def batches_of(case: Case) -> list[Any]:
    """Two epochs of a loader, whose last batch is short."""
    import torch

    examples, collate = DATA[case.data]()
    loader = torch.utils.data.DataLoader(examples, batch_size=BATCH, collate_fn=collate)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # of masks that a collator draws
        return [batch for _ in range(2) for batch in loader]


def model_of(case: Case) -> Any:
    import torch
    import transformers

    config = getattr(transformers, case.config)(**case.options)
    head = getattr(transformers, case.head)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return (head.from_config(config) if case.head.startswith("Auto") else head(config)).train()


# ---------------------------------------------------------------------------------------------------- training


def _plainly(model: Any, batches: list[Any]) -> list[float]:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _by_girih(model: Any, batches: list[Any]) -> list[float]:
    import torch

    import girih

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with girih.fit(model, optimizer=optimizer, batch=batches[0]) as train:
        return [train(**batch) for batch in batches]


def compare(name: str) -> Row:
    case = CASES[name]
    model, batches = model_of(case), batches_of(case)
    twin = copy.deepcopy(model)
    plain = _plainly(twin, batches)
    row: Row = {"model": name, "kind": case.kind, "class": type(model).__name__, "loss": plain[-1]}
    began = clock()
    try:
        own = _by_girih(model, batches)
    except Exception as error:
        row |= {"verdict": "refused", "difference": None, "words": f"{type(error).__name__}: {error}"}
    else:
        difference = max(abs(a - b) / abs(b) for a, b in zip(own, plain, strict=True))
        row |= {"verdict": "trains" if difference <= TOLERANCE else "differs", "difference": difference, "words": ""}
    return row | {"cpu": round(since(began).cpu, 2)}


def measure(options: argparse.Namespace) -> Report:
    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    names = options.models or (list(CASES)[:QUICK] if options.quick else list(CASES))
    if unknown := [name for name in names if name not in CASES]:
        raise ValueError(f"no model {unknown[0]!r}: there are {', '.join(CASES)}")
    rows = []
    for name in names:
        rows.append(compare(name))
        note(rows[-1])
    train = [row for row in rows if row["verdict"] == "trains"]
    misses = [
        f"{row['model']} {row['verdict']} {row['difference'] or ''}: {row['words'][:200]}"
        for row in rows
        if row["verdict"] == "differs" or (row["verdict"] == "refused" and not LINE.search(row["words"]))
    ]
    wanted = min(options.floor, len(rows))
    if len(train) < wanted:
        refused = ", ".join(row["model"] for row in rows if row["verdict"] != "trains")
        misses.append(f"{len(train)} of {len(rows)} models train as in PyTorch, floor {wanted:g} ({refused})")
    columns = (
        ("model", "model"),
        ("kind", "kind"),
        ("class", "class"),
        ("", "verdict"),
        ("losses differ by", "difference"),
        ("last loss", "loss"),
        ("CPU s to plan and train", "cpu"),
    )
    return Report(
        f"Six steps by girih.fit beside PyTorch's, transformers {transformers.__version__}",
        columns,
        tuple(rows),
        f"{len(train)} of {len(rows)} models train as in PyTorch (largest difference "
        f"{max((row['difference'] for row in train), default=0.0):.1e}), {len(rows) - len(train)} are refused by line",
        tuple(misses),
        tuple(f"{row['model']}: {row['words'][:300]}" for row in rows if row["words"]),
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these (default: all 40; --quick: seven)")


BENCHMARK = Benchmark(
    "hf_models", __doc__ or "", measure, 38, "models that must train as in PyTorch", _options, quick_floor=QUICK - 1
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
