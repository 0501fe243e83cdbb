"""All architectures. Loads torch."""

from girih.models.networks.bert import bert
from girih.models.networks.candle import candle_uno
from girih.models.networks.classic import alexnet, lenet
from girih.models.networks.dlrm import dlrm, dlrm_criteo
from girih.models.networks.gpt import gpt
from girih.models.networks.inception import inception_v3, inception_v4
from girih.models.networks.llama import llama
from girih.models.networks.mlp import mlp
from girih.models.networks.nasnet import nasnet
from girih.models.networks.nmt import nmt
from girih.models.networks.recurrent import rnnlm, rnntc
from girih.models.networks.resnet import resnet, wide_resnet
from girih.models.networks.rnn import brnn, rnn
from girih.models.networks.speech import deep_speech
from girih.models.networks.transformer import moe, transformer
from girih.models.networks.wgan import wgan_critic, wgan_generator

__all__ = [
    "alexnet",
    "bert",
    "brnn",
    "candle_uno",
    "deep_speech",
    "dlrm",
    "dlrm_criteo",
    "gpt",
    "inception_v3",
    "inception_v4",
    "lenet",
    "llama",
    "mlp",
    "moe",
    "nasnet",
    "nmt",
    "resnet",
    "rnn",
    "rnnlm",
    "rnntc",
    "transformer",
    "wgan_critic",
    "wgan_generator",
    "wide_resnet",
]
