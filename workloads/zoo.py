"""The models that are known by name: where their modules are, what a sample looks like, what they are trained on.

Nothing here imports torch until a module is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

IMAGENET, MNIST, CIFAR10 = 1_281_167, 60_000, 50_000
"""samples in one epoch"""
DIGITS = 1437
"""80 % of the 1797 digits that scikit-learn brings along"""
NETWORKS = "paceline.workloads.networks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A model of the zoo.

    Args:
        family: models whose kernels are alike, so that one's efficiency says something about another's.
        maker: ``module:function``.
        arguments: of the function.
        shape: of one sample.
        population: samples in one epoch of its usual data set.
    """

    family: str
    maker: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (3, 224, 224)
    population: int = IMAGENET
    provenance: str

    def make(self) -> Any:
        """The module, or the module and a sample."""
        module, _, function = self.maker.partition(":")
        return getattr(importlib.import_module(module), function)(**self.arguments)


def sample_of(made: Any, shape: tuple[int, ...]) -> tuple[nn.Module, Tensor]:
    """The module and a sample of what a maker returned: a module, or a module with a sample's shape or a sample."""
    import torch

    module, given = made if isinstance(made, tuple) else (made, shape)
    return module, given if isinstance(given, torch.Tensor) else torch.empty(*given)


def _derived(words: str) -> str:
    return f"DERIVED by tracing our module with torch's FLOP counter: {words}"


ZOO: dict[str, Known] = {
    "digits-mlp": Known(family="mlp", maker=f"{NETWORKS}:digits_mlp", shape=(64,), population=DIGITS,
        provenance="ours: the smallest network that learns the digits well, so that many can be trained at once"),
    "mlp": Known(family="mlp", maker=f"{NETWORKS}:mlp", shape=(784,), population=MNIST,
        provenance=_derived("784-512-512-10, ours")),
    "lenet": Known(family="lenet", maker=f"{NETWORKS}:lenet", shape=(1, 28, 28), population=MNIST,
        provenance=_derived("Caffe's LeNet for MNIST, 431 080 parameters; the model of You, Buluç, Demmel, SC'17")),
    "cifar10-full": Known(family="lenet", maker=f"{NETWORKS}:cifar10_full", shape=(3, 32, 32), population=CIFAR10,
        provenance=_derived("Caffe's cifar10_full; of the size of Zhang et al.'s CIFAR network, 2016")),
    "alexnet": Known(family="alexnet", maker=f"{NETWORKS}:alexnet", shape=(3, 227, 227),
        provenance=_derived("AlexNet without channel groups, 62 378 344 parameters; the 249 MB of SC'17 (FOUND)")),
    "alexnet-bvlc": Known(family="alexnet", maker=f"{NETWORKS}:alexnet_bvlc", shape=(3, 227, 227),
        provenance=_derived("Caffe's AlexNet, two channel groups; Krizhevsky et al., 2012")),
    "alexnet-owt": Known(family="alexnet", maker=f"{NETWORKS}:alexnet_owt",
        provenance=_derived("AlexNet of Krizhevsky's One weird trick, 2014")),
    "googlenet": Known(family="googlenet", maker=f"{NETWORKS}:googlenet",
        provenance=_derived("GoogLeNet without auxiliary heads; Szegedy et al., 2015")),
    "inception3": Known(family="inception", maker="paceline.workloads.inception:inception3", shape=(3, 299, 299),
        provenance=_derived("Inception-v3 without its auxiliary head; Szegedy et al., 2016")),
    **{f"vgg{depth}": Known(family="vgg", maker=f"{NETWORKS}:vgg", arguments={"depth": depth},
        provenance=_derived(f"VGG-{depth}; Simonyan, Zisserman, 2015")) for depth in (11, 16, 19)},
    **{f"resnet{depth}": Known(family="resnet", maker=f"{NETWORKS}:resnet", arguments={"depth": depth},
        provenance=_derived(f"ResNet-{depth} v1, stride in the first convolution; He et al., 2016"))
       for depth in (50, 101, 152)},
    "resnet50-v1.5": Known(family="resnet", maker=f"{NETWORKS}:resnet", arguments={"depth": 50, "late": True},
        provenance=_derived("ResNet-50 v1.5, stride in the 3 × 3 convolution")),
    "transformer": Known(family="transformer", maker="paceline.workloads.transformer:transformer", shape=(128,),
        population=1_000_000,
        provenance=_derived("a decoder of 4 blocks, width 256, 4 heads, 128 tokens, 10 000 words, ours; epoch ours")),
}  # fmt: skip
"""the models whose tables are in `tables/`"""
