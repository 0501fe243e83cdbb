"""Architectures of the papers and of today, as ordinary PyTorch modules. Loads torch.

mlp, classic (LeNet, AlexNet), resnet, inception, rnn, gpt, llama, bert, dlrm    the modules
attention, layers                                                                what they share
batches, steps                                                                   data and losses
families, catalogue                                                              names for all of it
"""

from girih.models.bert import bert
from girih.models.catalogue import Example, example, names, random_batch, tiny_names
from girih.models.classic import alexnet, lenet
from girih.models.dlrm import dlrm
from girih.models.families import ModelFamily
from girih.models.gpt import gpt
from girih.models.inception import inception_v3
from girih.models.llama import llama
from girih.models.mlp import mlp
from girih.models.resnet import resnet, wide_resnet
from girih.models.rnn import rnn

__all__ = [
    "Example",
    "ModelFamily",
    "alexnet",
    "bert",
    "dlrm",
    "example",
    "gpt",
    "inception_v3",
    "lenet",
    "llama",
    "mlp",
    "names",
    "random_batch",
    "resnet",
    "rnn",
    "tiny_names",
    "wide_resnet",
]
