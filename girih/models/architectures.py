"""All architectures. Loads torch."""

from girih.models.networks.candle import candle_uno
from girih.models.networks.dlrm import dlrm, dlrm_criteo
from girih.models.networks.images.classic import alexnet, lenet
from girih.models.networks.images.feedforward import densenet, squeezenet, vgg
from girih.models.networks.images.inception import inception_v3, inception_v4
from girih.models.networks.images.nasnet import nasnet
from girih.models.networks.images.resnet import resnet, wide_resnet
from girih.models.networks.images.resnext import resnext
from girih.models.networks.images.wgan import wgan_critic, wgan_generator
from girih.models.networks.mlp import mlp
from girih.models.networks.sequences.bert import bert
from girih.models.networks.sequences.gpt import gpt
from girih.models.networks.sequences.llama import llama
from girih.models.networks.sequences.nasrnn import nasrnn
from girih.models.networks.sequences.nmt import nmt
from girih.models.networks.sequences.recurrent import rnnlm, rnntc
from girih.models.networks.sequences.rnn import brnn, rnn
from girih.models.networks.sequences.speech import deep_speech
from girih.models.networks.sequences.transformer import moe, transformer

__all__ = [
    "alexnet",
    "bert",
    "brnn",
    "candle_uno",
    "deep_speech",
    "densenet",
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
    "nasrnn",
    "nmt",
    "resnet",
    "resnext",
    "rnn",
    "rnnlm",
    "rnntc",
    "squeezenet",
    "transformer",
    "vgg",
    "wgan_critic",
    "wgan_generator",
    "wide_resnet",
]
