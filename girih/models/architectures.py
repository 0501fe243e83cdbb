"""The functions that build the architectures. Loads torch."""

from girih.models.networks.candle import candle_uno
from girih.models.networks.dlrm import dlrm, dlrm_criteo
from girih.models.networks.images.classic import alexnet, lenet
from girih.models.networks.images.feedforward import densenet, squeezenet, vgg
from girih.models.networks.images.inception import inception_v3, inception_v4
from girih.models.networks.images.nasnet import nasnet
from girih.models.networks.images.resnet import resnet, resnext, wide_resnet
from girih.models.networks.images.vit import vit
from girih.models.networks.images.wgan import wgan_critic, wgan_generator
from girih.models.networks.mlp import mlp
from girih.models.networks.sequences.bert import bert
from girih.models.networks.sequences.gpt import gpt
from girih.models.networks.sequences.llama import llama
from girih.models.networks.sequences.nasrnn import nasrnn
from girih.models.networks.sequences.nmt import nmt
from girih.models.networks.sequences.rnn import brnn, rnn, rnnlm, rnntc
from girih.models.networks.sequences.speech import deep_speech
from girih.models.networks.sequences.transformer import moe, transformer
