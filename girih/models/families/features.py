"""Families of models whose samples are rows of features."""

from __future__ import annotations

from girih.models.batches import BatchDescription, TensorDescription
from girih.models.families.family import FLEXFLOW, ModelFamily, Options, constant, tiny


def _dlrm_batch(options: Options, batch: int) -> BatchDescription:
    return {
        "dense": TensorDescription((batch, options["dense"])),
        "indices": tuple(TensorDescription((batch, options["lookups"]), below=rows) for rows in options["rows"]),
        "clicks": TensorDescription((batch,), below=2, floating=True),
    }


def _candle_batch(options: Options, batch: int) -> BatchDescription:
    return {
        "cell": TensorDescription((batch, options["cell"])),
        "drugs": tuple(TensorDescription((batch, size)) for size in options["drugs"]),
        "responses": TensorDescription((batch,), below=2, floating=True),
    }


FEATURE_FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        name="dlrm",
        pattern="dlrm",
        description="recommendation model with the 26 tables of Criteo Kaggle",
        source="Naumov et al. 2019, arXiv:1906.00091",
        describe_batch=_dlrm_batch,
        step="predict_click",
        default_batch=constant(2048),
        presets=(tiny("dlrm", rows=(64, 32, 16), width=8, dense=8, bottom=(32, 16), top=(32, 16), lookups=2),),
    ),
    ModelFamily(
        name="dlrm-criteo",
        pattern="dlrm-criteo",
        description="recommendation model of wider networks, tables of width 64, vectors concatenated",
        source=FLEXFLOW,
        describe_batch=_dlrm_batch,
        step="predict_click",
        presets=(tiny("dlrm-criteo", rows=(64, 32, 16), width=8, dense=8, bottom=(32, 32), top=(32, 32), lookups=1),),
    ),
    ModelFamily(
        name="candle-uno",
        pattern="candle-uno",
        description="a tumour cell's response to a drug: three bottom networks, concatenated, and a top one",
        source=FLEXFLOW,
        describe_batch=_candle_batch,
        step="predict_response",
        presets=(tiny("candle-uno", cell=16, drugs=(32, 24), bottom=(32, 32, 32), top=(32, 32, 32)),),
    ),
)
