"""The built-in models: their modules, the shape of a sample, and the usual data set.

Nothing here imports torch until a module is made.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from paceline.workloads.datasets import DATA, sentences
from paceline.workloads.models.transformer_config import canonical, is_size, shape_of
from paceline.workloads.models.transformer_shapes import GPT2_SMALL, GPT3_XL, LLAMA2_7B, TransformerShape

IMAGENET = 1_281_167
"""number of samples in one epoch"""
USUAL = (3, 224, 224)
"""the default shape of a sample"""
WEB_TEXT = 9.0e9
"""tokens of OpenWebText; provenance: MEMORY medium"""
NETWORKS = "paceline.workloads.models.paper_networks"
DECODER = "paceline.workloads.models.decoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A model of the zoo.

    Args:
        family: name of the models with similar kernels, whose efficiencies are related.
        maker: ``module:function``.
        arguments: arguments of the function.
        shape: shape of one sample.
        number_bytes: bytes of each of its numbers: 4 for float32, 8 for the words of a text, int64 in torch.
        classes: number of classes; None if it does not classify.
        num_samples: number of samples in one epoch of its usual data set.
        data: its usual data set, in `DATA`; None if it is not there.
        size: the shape from which its table is computed; None if the table is a file in `tables/`.
    """

    family: str
    maker: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = USUAL
    number_bytes: int = 4
    classes: int | None = 1000
    num_samples: int = IMAGENET
    data: str | None = "images"
    size: TransformerShape | None = None
    provenance: str

    @property
    def tokens(self) -> bool:
        """Whether a sample is a text."""
        return self.number_bytes == 8

    def make(self) -> Any:
        """Returns the module, or the module and a sample."""
        module, _, function = self.maker.partition(":")
        return getattr(importlib.import_module(module), function)(**self.arguments)


def _derived(words: str) -> str:
    return f"DERIVED by tracing our module with torch's FLOP counter: {words}"


def _sized(shape: TransformerShape, *, tokens: float, words: str, **fields: Any) -> Known:
    """Returns a model whose table is computed; `tokens`: those of one epoch."""
    about = {"classes": None, "num_samples": max(1, int(tokens) // shape.context), "data": None, **fields}
    return Known(
        family="transformer",
        maker=f"{DECODER}:decoder",
        arguments={"shape": shape},
        shape=(shape.context,),
        number_bytes=8,
        size=shape,
        provenance=f"DERIVED from its shape by transformer_shapes: {words}",
        **about,
    )


def _on(name: str, *, flat: bool = False) -> dict[str, Any]:
    """Returns the fields that follow from a model's usual data set; `flat`: pictures are flat vectors."""
    dataset = DATA[name]
    shape = dataset.shape or ()
    return {
        "data": name,
        "shape": (math.prod(shape),) if flat else shape,
        "classes": dataset.classes,
        "num_samples": dataset.train,
    }


ZOO: dict[str, Known] = {
    "digits-mlp": Known(family="mlp", maker=f"{NETWORKS}:digits_mlp", **_on("digits", flat=True),
        provenance="ours: the smallest network that learns the digits well, so that many can be trained at once"),
    "digits-cnn": Known(family="lenet", maker=f"{NETWORKS}:digits_cnn", **_on("digits"),
        provenance="ours: a small network with convolutions whose data is bundled"),
    "mlp": Known(family="mlp", maker=f"{NETWORKS}:mlp", **_on("mnist", flat=True),
        provenance=_derived("784-512-512-10, ours")),
    "lenet": Known(family="lenet", maker=f"{NETWORKS}:lenet", **_on("mnist"),
        provenance=_derived("Caffe's LeNet for MNIST, 431 080 parameters; the model of You, Buluç, Demmel, SC'17")),
    "cifar10-full": Known(family="lenet", maker=f"{NETWORKS}:cifar10_full", **_on("cifar10"),
        provenance=_derived("Caffe's cifar10_full; of the size of Zhang et al.'s CIFAR network, 2016")),
    "small-cnn": Known(family="lenet", maker=f"{NETWORKS}:small_cnn", **_on("cifar10"),
        provenance="ours: small enough that the gradients of many workers are computed together"),
    "small-cnn-100": Known(family="lenet", maker=f"{NETWORKS}:small_cnn", arguments={"classes": 100},
        **_on("cifar100"), provenance="ours: small-cnn for 100 classes"),
    "cifar-alexnet": Known(family="alexnet", maker=f"{NETWORKS}:cifar_alexnet", **_on("cifar10"),
        provenance="INFERENCE: AlexNet's filters and widths for pictures of 32 × 32, ours. SC'17 trains AlexNet (5 "
        "convolutions, 3 dense layers) on CIFAR-10 (FOUND) but how it was fitted to them was not found, and its 249 MB "
        "are those of the model for ImageNet, which is alexnet here"),
    "alexnet": Known(family="alexnet", maker=f"{NETWORKS}:alexnet", shape=(3, 227, 227),
        provenance=_derived("AlexNet without channel groups, 62 378 344 parameters; the 249 MB of SC'17 (FOUND)")),
    "alexnet-bvlc": Known(family="alexnet", maker=f"{NETWORKS}:alexnet_bvlc", shape=(3, 227, 227),
        provenance=_derived("Caffe's AlexNet, two channel groups; Krizhevsky et al., 2012")),
    "alexnet-owt": Known(family="alexnet", maker=f"{NETWORKS}:alexnet_owt",
        provenance=_derived("AlexNet of Krizhevsky's One weird trick, 2014")),
    "googlenet": Known(family="googlenet", maker=f"{NETWORKS}:googlenet",
        provenance=_derived("GoogLeNet without auxiliary heads; Szegedy et al., 2015")),
    "inception3": Known(family="inception", maker=f"{NETWORKS}:inception3", shape=(3, 299, 299),
        provenance=_derived("Inception-v3 without its auxiliary head; Szegedy et al., 2016")),
    **{f"vgg{depth}": Known(family="vgg", maker=f"{NETWORKS}:vgg", arguments={"depth": depth},
        provenance=_derived(f"VGG-{depth}; Simonyan, Zisserman, 2015")) for depth in (11, 16, 19)},
    **{f"resnet{depth}": Known(family="resnet", maker=f"{NETWORKS}:resnet", arguments={"depth": depth},
        provenance=_derived(f"ResNet-{depth}, blocks of two 3 × 3 convolutions; He et al., 2016"))
       for depth in (18, 34)},
    **{f"resnet{depth}": Known(family="resnet", maker=f"{NETWORKS}:resnet", arguments={"depth": depth},
        provenance=_derived(f"ResNet-{depth} v1, stride in the first convolution; He et al., 2016"))
       for depth in (50, 101, 152)},
    "resnet50-v1.5": Known(family="resnet", maker=f"{NETWORKS}:resnet", arguments={"depth": 50, "late": True},
        provenance=_derived("ResNet-50 v1.5, stride in the 3 × 3 convolution")),
    "transformer": Known(family="transformer", maker="paceline.workloads.models.paper_networks:transformer",
        shape=(128,), number_bytes=8, classes=None, num_samples=1_000_000, data=None,
        provenance=_derived("a decoder of 4 blocks, width 256, 4 heads, 128 tokens, 10 000 words, ours; epoch ours")),
    "small-gpt": Known(family="transformer", maker=f"{DECODER}:decoder", number_bytes=8, **_on("sentences"),
        provenance=_derived("a decoder of 2 blocks, width 64, 4 heads, 64 characters, untied embedding, ours")),
    "gpt2-small": _sized(GPT2_SMALL, tokens=WEB_TEXT,
        words="GPT-2 small, 124 439 808 parameters, tied (MEMORY high: Radford et al., 2019; GPT-3's 125 M has the "
        "same blocks and twice the context); an epoch are the 9.0e9 tokens of OpenWebText (MEMORY medium)"),
    "gpt3-xl": _sized(GPT3_XL, tokens=300e9,
        words="GPT-3 XL, 1.3 B parameters, tied (MEMORY high: Brown et al., 2020, table 2.1, which states 24 heads of "
        "128, more than the width; INFERENCE: 16 heads); an epoch are its 300e9 tokens (MEMORY high)"),
    "llama2-7b": _sized(LLAMA2_7B, tokens=2.0e12,
        words="Llama 2 7B, 6 738 415 616 parameters, untied (MEMORY high: Touvron et al., 2023); an epoch are its "
        "2.0e12 tokens (MEMORY high)"),
}  # fmt: skip
"""the models; their tables are in `tables/`, or computed from `Known.size`"""


def known_model(model: str) -> Known | None:
    """Returns a model of the zoo, or one that is given by its size; None for others.

    A decoder whose samples are those of the bundled text learns it. An epoch of others is OpenWebText.

    Args:
        model: its name, the text of a size, or the path of a config.json.

    Raises:
        SizeError: the size is wrong; with all mistakes.

    >>> known_model("gpt2(n_layer=2, n_embd=64, n_head=4, n_positions=64, vocab_size=28)").data
    'sentences'
    """
    if model in ZOO:
        return ZOO[model]
    return _of_size(canonical(model)) if is_size(model) else None


@lru_cache(maxsize=64)
def _of_size(text: str) -> Known:
    shape, learned = shape_of(text), DATA["sentences"]
    words = f"{shape.parameters:,} parameters".replace(",", " ")
    causal = shape.style != "bert"
    classes = shape.vocabulary if causal else None
    if learned.fits((shape.context,), classes, tokens=True):
        return _sized(shape, tokens=sentences.TRAIN * shape.context, words=words, classes=classes, data=learned.name)
    epoch = "an epoch are the 9.0e9 tokens of OpenWebText (MEMORY medium)"
    return _sized(shape, tokens=WEB_TEXT, words=f"{words}; {epoch}", classes=classes)
