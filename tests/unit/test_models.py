"""Layer tables: the totals known from papers, and tracing gives the same layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.algorithms.core.errors import InputError
from paceline.scenarios import load
from paceline.workloads import MODELS, build, find_model
from paceline.workloads.models.layer_costs import TABLES, read_table, write_table
from paceline.workloads.models.zoo import ZOO

KNOWN = {
    "digits-mlp": (4_810, 4.736e-6),
    "lenet": (431_080, 0.0023),
    "cifar10-full": (89_578, 0.0123),
    "alexnet": (62_378_344, 1.1353),
    "alexnet-bvlc": (60_965_224, 0.7244),
    "alexnet-owt": (61_100_840, 0.7142),
    "googlenet": (6_998_552, 1.5827),
    "inception3": (23_834_568, 5.72),
    "vgg11": (132_863_336, 7.6091),
    "vgg16": (138_357_544, 15.4703),
    "vgg19": (143_667_240, 19.6321),
    "resnet50": (25_557_032, 3.8580),
    "resnet50-v1.5": (25_557_032, 4.0892),
    "resnet101": (44_549_160, 7.5702),
    "resnet152": (60_192_808, 11.2824),
}
"""parameters, and 1e9 multiply-adds of a forward pass as printed elsewhere"""
RETRACED = ["lenet", "alexnet-bvlc", "googlenet", "resnet50-v1.5", "transformer", "small-gpt"]


@pytest.mark.parametrize(("name", "known"), KNOWN.items())
def test_known_totals(name: str, known: tuple[int, float]) -> None:
    parameters, gigamacs = known
    model = MODELS[name]
    assert model.parameters == parameters == model.layout().size
    assert model.forward_flops / 2e9 == pytest.approx(gigamacs, rel=2e-3 if name == "inception3" else 0, abs=5e-5)


@pytest.mark.parametrize("name", ZOO)
def test_backward_is_two_products_for_each_one_of_forward_but_for_the_first_layer(name: str) -> None:
    """The picture needs no gradient; the embedding of a transformer has no product."""
    works = [work for work in MODELS[name].works if work.forward.flops]
    first, *others = works
    assert first.backward.flops == (2 if ZOO[name].tokens else 1) * first.forward.flops
    assert all(work.backward.flops == 2 * work.forward.flops for work in others)


@pytest.mark.parametrize("name", ZOO)
def test_no_table_holds_a_negative_figure(name: str) -> None:
    for work in MODELS[name].works:
        for way in (work.forward, work.backward):
            assert min(way.flops, way.moved_bytes, way.fixed_bytes, way.kernels) >= 0
        assert work.saved_bytes >= 0
        assert not work.parameters or work.forward.kernels


@pytest.mark.parametrize("name", RETRACED)
def test_tables_are_what_tracing_gives(name: str) -> None:
    from paceline.workloads.models.layer_tracing import trace_named

    assert trace_named(name) == MODELS[name].works


def test_flops_are_those_of_torchs_own_counter() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from paceline.workloads.models.paper_networks import resnet

    with torch.device("meta"):
        model, picture = resnet(50), torch.empty(1, 3, 224, 224)
    with FlopCounterMode(display=False) as counter:
        model(torch.cat([picture, picture])).sum().backward()
    assert counter.get_total_flops() == 2 * MODELS["resnet50"].training_flops


def test_weights_move_once_forward_and_three_times_backward() -> None:
    """Read; read again for the inputs' gradient, and each gradient written: 4 bytes each."""
    (fc7,) = (work for work in MODELS["alexnet"].works if work.name == "fc7")
    assert fc7.forward.fixed_bytes == 4 * fc7.parameters
    assert fc7.backward.fixed_bytes == pytest.approx(2 * 4 * fc7.parameters, rel=1e-3)


def test_a_table_reads_as_it_was_written(tmp_path: Path) -> None:
    write_table(tmp_path / "copy.csv", MODELS["vgg11"].works)
    assert (tmp_path / "copy.csv").read_bytes() == (TABLES / "vgg11.csv").read_bytes()
    assert read_table(tmp_path / "copy.csv") == MODELS["vgg11"].works


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_timed(name: str) -> None:
    assert build(name, learning="none", seed=1).initial().nbytes == 4 * MODELS[name].parameters


MODEL = """
import torch

def net():
    return torch.nn.Linear(3, 2), (3,)

def pictures():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))

def nothing():
    return 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mynets.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "mynets"


def test_a_model_of_ones_own(own: str) -> None:
    model = find_model(f"{own}:net")
    assert (model.parameters, model.forward_flops, model.training_flops) == (8, 12, 24)
    assert [layer.name for layer in find_model(f"{own}:pictures").layers] == ["0", "1"]


def test_a_scenario_may_name_it(own: str) -> None:
    text = load("quickstart").dump()
    text["workload"] = {"model": f"{own}:pictures", "learning": "none", "batch_per_worker": 4}
    scenario = load(text)
    assert scenario.plans()[0].job.learner.layout.size == 3 * 8 * 9 + 8 + 16


def test_its_layers_share_a_given_time_at_the_size_of_the_data_that_it_learns(tmp_path: Path) -> None:
    """It says no shape, and its first layer takes 64 numbers: it cannot be traced with pictures of 3 × 224 × 224."""
    file, net = tmp_path / "small_nets.py", "nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, 10))"
    file.write_text(f"from torch import nn\n\n\ndef small():\n    return {net}\n", encoding="utf-8")
    text = load("quickstart").dump()
    text["workload"] = {"model": f"{file}:small", "dataset": "digits", "batch_per_worker": 4}
    forward, backward = load(text).plans()[0].layer_shares()
    assert len(forward) == len(backward) == 2 and sum(forward) + sum(backward) == pytest.approx(1.0)
    assert forward[0] > forward[1] > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vgg", "did you mean vgg19?"),
        ("no_such:thing", "expected module:function"),
        ("mynets:nett", "expected module:function"),
        ("mynets:nothing", "cannot be traced"),
    ],
)
def test_a_wrong_name_is_told(own: str, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        find_model(name)


def test_the_page_of_devices_has_every_model() -> None:
    page = (Path(__file__).parents[2] / "docs/devices.md").read_text(encoding="utf-8")
    for name in ZOO:
        assert name in page
        parameters = f"{MODELS[name].parameters:,}".replace(",", " ")
        flops = f"{MODELS[name].forward_flops / 1e9:.4g}"
        assert parameters in page
        assert flops in page or f"{MODELS[name].forward_flops / 1e9:.2g}" in page or float(flops) < 0.1
