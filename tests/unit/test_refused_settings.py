"""Settings of a method that make no sense, and the words that say so, with two workers on one node."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.algorithms.core.quantization import Quantization
from paceline.algorithms.core.schedules import Polynomial
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.accumulating import Acco
from paceline.algorithms.methods.async_diloco import AsyncDiLoCo
from paceline.algorithms.methods.decoupled_diloco import DecoupledDiLoCo
from paceline.algorithms.methods.decoupled_momentum import DeMo
from paceline.algorithms.methods.elastic import Easgd
from paceline.algorithms.methods.local_sgd import DiLoCo, PostLocalSgd, SlowMo
from paceline.algorithms.methods.noloco import NoLoCo
from paceline.algorithms.methods.outer import Co2, EagerDiLoCo
from paceline.algorithms.methods.periodic import DesLoc, KAvg, Sasgd
from paceline.algorithms.methods.regional_servers import HALoS
from paceline.algorithms.methods.ssp import Downpour, Ssp
from paceline.algorithms.methods.streaming_diloco import StreamingDiLoCo

NODES = [[Rank(0), Rank(1)]]
REFUSED: list[tuple[Any, str]] = [
    (Acco(accumulate=0), "accumulate: found 0, expected a whole number of 1 or more"),
    (AsyncDiLoCo(buffer_size=4, c=0.3), "c: found 0.3, expected at most 1/N = 0.25"),
    (AsyncDiLoCo(c=0.6), "c: found 0.6, expected at most 1/N = 0.5"),
    (AsyncDiLoCo(buffer_size=0), "buffer_size: found 0, expected a whole number of 1 or more"),
    (AsyncDiLoCo(outer="sgd", buffer_size=2), "buffer_size: found 2, expected none with outer = sgd, which does not"),
    (AsyncDiLoCo(outer="nesterov", c=0.1), "c: found 0.1, expected 0 with outer = nesterov"),
    (AsyncDiLoCo(speeds=(1.0,)), "speeds: found 1, expected 2, one for each worker"),
    (AsyncDiLoCo(speeds=(1.0, 0.0)), "speeds: found [1.0, 0.0], expected numbers above 0"),
    (AsyncDiLoCo(speeds=(1.0, 2.0), dylu=False), "speeds: found them with dylu = false"),
    (AsyncDiLoCo(momentum=0.9), "momentum: found 0.9, expected 0 with inner = adamw"),
    (Co2(outer_momentum=1.0), "outer_momentum: found 1.0, expected a number from 0 to below 1"),
    (Co2(gap_penalty=0.0), "gap_penalty: found 0.0, expected a number above 0"),
    (Co2(clip=0.0), "clip: found 0.0, expected a number above 0"),
    (Co2(outer_learning_rate=0.0), "outer_learning_rate: found 0.0, expected a number above 0"),
    (DeMo(chunk=0), "chunk: found 0, expected a whole number from 1 to 4096"),
    (DeMo(k=0), "k: found 0, expected a whole number of 1 or more"),
    (DeMo(momentum=1.0), "momentum: found 1.0, expected a number from 0 to below 1"),
    (DeMo(nesterov=True), "nesterov: found true, expected false"),
    (DiLoCo(outer_momentum=1.0), "outer_momentum: found 1.0"),
    (DiLoCo(outer_learning_rate=0.0), "outer_learning_rate: found 0.0"),
    (DiLoCo(weight_decay=-1.0), "weight_decay: found -1.0"),
    (DiLoCo(momentum=0.5), "momentum: found 0.5"),
    (Downpour(n_push=0), "n_push: "),
    (Downpour(n_fetch=-1), "n_fetch: "),
    (Downpour(local_learning_rate=-0.1), "local_learning_rate: "),
    (EagerDiLoCo(outer_momentum=1.0), "outer_momentum: found 1.0"),
    (
        Easgd(rho=0.5, elastic=0.25),
        "rho: found beside elastic, expected one of them: elastic is α itself, rho gives α = ηρ",
    ),
    (KAvg(k=0), "k: found 0"),
    (KAvg(k=2, phase=2), "phase: found 2, expected 0 to 1"),
    (PostLocalSgd(switch=-1), "switch: found -1"),
    (Sasgd(period=0), "period: found 0"),
    (Sasgd(global_learning_rate=0.0), "global_learning_rate: found 0.0"),
    (SlowMo(slow_momentum=1.0), "slow_momentum: found 1.0"),
    (SlowMo(slow_learning_rate=0.0), "slow_learning_rate: found 0.0"),
    (
        SlowMo(inner="adamw", buffers="reset", schedule=Polynomial(total_steps=9)),
        "buffers: found reset with inner = adamw and a schedule",
    ),
    (Ssp(slack=-1), "slack: found -1, expected a number of steps, 0 or more"),
    (DesLoc(second_moment_period=0), "second_moment_period: found 0, expected a number of steps, 1 or more"),
    (StreamingDiLoCo(overlap=8), "overlap: found 8 with a period of 8, expected fewer steps than that"),
    (StreamingDiLoCo(overlap=-1), "overlap: found -1"),
    (StreamingDiLoCo(fragments=9), "fragments: found 9 with a period of 8, expected at most one for each step"),
    (StreamingDiLoCo(fragments=0), "fragments: found 0"),
    (StreamingDiLoCo(layerwise=True, max_grad_norm=1.0), "max_grad_norm: found 1.0 with layerwise, expected null"),
    (HALoS(region_c=0.6), "region_c: found 0.6, expected at most 1/N = 0.5"),
    (HALoS(merge=0.0), "merge: found 0.0, expected a number above 0, up to 1"),
    (HALoS(region_outer="sgd", region_buffer_size=2), "region_buffer_size: found 2, expected none with region_outer"),
    (DecoupledDiLoCo(quorum=9), "quorum: found 9, expected at most 2, the number of workers"),
    (DecoupledDiLoCo(fragments=9), "fragments: found 9 with a period of 8, expected at most one for each step"),
    (StreamingDiLoCo(alpha=1.0), "alpha: found 1.0, expected a number from 0 to below 1"),
    (StreamingDiLoCo(quantization=Quantization(block=0)), "quantization.block: found 0"),
    (StreamingDiLoCo(momentum=0.5), "momentum: found 0.5"),
]


@pytest.mark.parametrize("kind", dict.fromkeys(type(method) for method, _ in REFUSED))
def test_settings_that_make_no_sense_are_refused(kind: Any) -> None:
    for method, words in REFUSED:
        if type(method) is kind:
            assert any(problem.startswith(words) for problem in method.problems(NODES)), method


def test_limits_themselves_are_allowed() -> None:
    for method in (AsyncDiLoCo(c=0.5), KAvg(k=2, phase=1), StreamingDiLoCo(overlap=7), Ssp(slack=0)):
        assert method.problems(NODES) == []


def test_a_method_of_pairs_needs_a_pair() -> None:
    (words,) = NoLoCo().problems([[Rank(0)]])
    assert words == "name: found 1 worker, expected 2 or more, since a worker averages with another"
