"""All architectures. Loads torch."""

from girih.models.bert import bert
from girih.models.candle import candle_uno
from girih.models.classic import alexnet, lenet
from girih.models.dlrm import dlrm, dlrm_criteo
from girih.models.gpt import gpt
from girih.models.inception import inception_v3
from girih.models.llama import llama
from girih.models.mlp import mlp
from girih.models.nmt import nmt
from girih.models.recurrent import rnnlm, rnntc
from girih.models.resnet import resnet, wide_resnet
from girih.models.rnn import rnn

__all__ = [
    "alexnet",
    "bert",
    "candle_uno",
    "dlrm",
    "dlrm_criteo",
    "gpt",
    "inception_v3",
    "lenet",
    "llama",
    "mlp",
    "nmt",
    "resnet",
    "rnn",
    "rnnlm",
    "rnntc",
    "wide_resnet",
]
