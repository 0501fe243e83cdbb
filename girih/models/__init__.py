"""Architectures of the papers and of today, as ordinary PyTorch modules. Loads torch.

mlp, classic (LeNet, AlexNet), resnet, inception     images and vectors
rnn (and the LSTM cell), recurrent, nmt              unrolled LSTMs
gpt, llama, bert                                     transformers
dlrm, candle                                         tables and features
attention, layers                                    what they share
batches, steps                                       data and losses
family, {image,sequence,feature}_families, families, catalogue    names for all of it
"""

from girih.models.bert import bert
from girih.models.candle import candle_uno
from girih.models.catalogue import Example, example, names, random_batch, tiny_names
from girih.models.classic import alexnet, lenet
from girih.models.dlrm import dlrm, dlrm_criteo
from girih.models.family import ModelFamily
from girih.models.gpt import gpt
from girih.models.inception import inception_v3
from girih.models.llama import llama
from girih.models.mlp import mlp
from girih.models.nmt import nmt
from girih.models.recurrent import rnnlm, rnntc
from girih.models.resnet import resnet, wide_resnet
from girih.models.rnn import rnn

__all__ = [
    "Example",
    "ModelFamily",
    "alexnet",
    "bert",
    "candle_uno",
    "dlrm",
    "dlrm_criteo",
    "example",
    "gpt",
    "inception_v3",
    "lenet",
    "llama",
    "mlp",
    "names",
    "nmt",
    "random_batch",
    "resnet",
    "rnn",
    "rnnlm",
    "rnntc",
    "tiny_names",
    "wide_resnet",
]
