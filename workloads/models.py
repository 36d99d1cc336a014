"""The models as layer tables: how many parameters each layer has, first layer first.

Rules of this file: counts follow from the layers' shapes, never typed in as totals; the totals known from papers are
checked in the tests. Nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.algorithms.values import Layer, Layout


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One layer: weights and biases together."""

    name: str
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """A model's layers, and the size of the data set that it is usually trained on.

    >>> MODELS["lenet"].parameters
    431080
    """

    name: str
    layers: tuple[LayerInfo, ...]
    population: int
    """samples in one epoch"""
    provenance: str

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    def layout(self) -> Layout:
        """The layers end to end in one flat vector.

        >>> MODELS["digits-mlp"].layout().layers[1]
        Layer(name='output', start=4160, stop=4810)
        """
        return layout_of(self.layers)


def layout_of(layers: tuple[LayerInfo, ...]) -> Layout:
    """Where each layer lies when they are put end to end, in elements."""
    placed, start = [], 0
    for layer in layers:
        placed.append(Layer(layer.name, start, start + layer.parameters))
        start += layer.parameters
    return Layout(tuple(placed))


def _dense(name: str, inputs: int, outputs: int) -> LayerInfo:
    return LayerInfo(name, inputs * outputs + outputs)


def _conv(name: str, channels: int, filters: int, *, width: int) -> LayerInfo:
    return LayerInfo(name, channels * filters * width * width + filters)


DIGITS_MLP = ModelInfo(
    name="digits-mlp",
    layers=(_dense("hidden", 64, 64), _dense("output", 64, 10)),
    population=1437,  # 80 % of the 1797 digits that scikit-learn brings along
    provenance="ours: the smallest network that learns the digits well, so that many can be trained at once",
)
QUADRATIC = ModelInfo(
    name="quadratic",
    layers=(LayerInfo("first", 32), LayerInfo("second", 32)),
    population=1024,
    provenance="noisy quadratic model, Zhang et al., NeurIPS 2019; dimensions ours, an option of the learning problem",
)
LENET = ModelInfo(
    name="lenet",
    layers=(
        _conv("conv1", 1, 20, width=5),
        _conv("conv2", 20, 50, width=5),
        _dense("ip1", 800, 500),
        _dense("ip2", 500, 10),
    ),
    population=60_000,
    provenance="DERIVED: Caffe's LeNet for MNIST, 431 080 parameters; the model of You, Buluç, Demmel, SC'17",
)
ALEXNET = ModelInfo(
    name="alexnet",
    layers=(
        _conv("conv1", 3, 96, width=11),
        _conv("conv2", 96, 256, width=5),
        _conv("conv3", 256, 384, width=3),
        _conv("conv4", 384, 384, width=3),
        _conv("conv5", 384, 256, width=3),
        _dense("fc6", 9216, 4096),
        _dense("fc7", 4096, 4096),
        _dense("fc8", 4096, 1000),
    ),
    population=1_281_167,
    provenance="DERIVED: AlexNet without channel groups, 62 378 344 parameters; the 249 MB of SC'17 (FOUND)",
)

MODELS: dict[str, ModelInfo] = {model.name: model for model in (DIGITS_MLP, QUADRATIC, LENET, ALEXNET)}
