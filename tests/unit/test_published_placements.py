"""The set of Pollux and Sia: lines become placements of replicas, and lines that cannot be read are left out."""

from __future__ import annotations

import pytest

from paceline.validation.outcome import LeftOut, Outcome
from paceline.validation.sets import Line, set_named
from paceline.validation.sets.pollux import spread_of
from paceline.workloads.models.layer_tables import find_model


def predicted(lines: list[Line]) -> tuple[list[Outcome], list[LeftOut]]:
    known = set_named("pollux")
    groups, left_out = known.groups([{"line": str(number), **line} for number, line in enumerate(lines, start=2)])
    results = [result for rows in groups for result in known.predict(rows)]
    return (
        [result for result in results if isinstance(result, Outcome)],
        [*left_out, *(result for result in results if isinstance(result, LeftOut))],
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert_squad", 109_482_240 - (768 + 1) * 768 + (768 + 1) * 2),  # BERT base, a head of two instead of the pooler
        ("yolov3_voc", 61_949_149 - (80 - 20) * 3 * (256 + 512 + 1024 + 3)),  # the model for COCO, with 20 classes
        ("neumf_movielens", (6_040 + 3_706) * (32 + 128) + 257 * 128 + 129 * 64 + 65 * 32 + 65),
        (
            "deepspeech2",  # convolutions and norms; layers of gated units; norms and the head
            452 * 32 + 7_393 * 32 + 2 * 64 + 4_800 * (1_312 + 802) + 4 * 4_800 * 1_602 + 8_000 + 23_200,
        ),
    ],
)
def test_models_have_the_published_parameters(name: str, parameters: int) -> None:
    assert find_model(f"paceline.validation.models:{name}").parameters == parameters


def placed(**values: object) -> Line:
    """A line of the table of Pollux and Sia."""
    line = {
        "model": "ncf", "gpu_cluster": "azure", "kind": "placements", "placement_replicas_per_node_digits": "1",
        "num_nodes": "", "num_replicas": "", "local_batch_size": "64", "step_time_s": "0.01", "source": "made up",
    }  # fmt: skip
    return line | {key: str(value) for key, value in values.items()}


def spread(nodes: int, replicas: int, **values: object) -> Line:
    even = {"kind": "scalability", "num_nodes": nodes, "num_replicas": replicas}
    return placed(placement_replicas_per_node_digits="", **even | values)


def test_replicas_are_placed_by_digits_or_evenly() -> None:
    lines = [placed(), placed(placement_replicas_per_node_digits="1124"), spread(3, 8), spread(2, 2)]
    outcomes, left_out = predicted(lines)
    assert not left_out
    machines = {outcome.name: dict(outcome.scenario or {})["cluster"]["network"]["per_machine"] for outcome in outcomes}
    assert machines == {
        "azure ncf 1124 x 64": "1x1x2x4",
        "azure ncf 8 on 3 x 64": "3x3x2",
        "azure ncf 2 on 2 x 64": "1x1",
    }


@pytest.mark.parametrize("cluster", ["aws (default)", "azure"])
def test_replicas_of_one_machine_share_its_card_or_its_kernel(cluster: str) -> None:
    """RDMA comes back to a machine by its card, so four replicas are slower there than on four machines; TCP is not."""
    lines = [placed(gpu_cluster=cluster), *(
        placed(gpu_cluster=cluster, placement_replicas_per_node_digits=digits) for digits in ("4", "1111")
    )]  # fmt: skip
    together, apart = sorted(predicted(lines)[0], key=lambda outcome: len(outcome.name))
    assert (together.name[-8:], apart.name[-11:]) == ("ncf 4 x 64"[-8:], "ncf 1111 x 64"[-11:])
    assert (together.predicted > apart.predicted) == (cluster == "azure")
    assert (apart.unit, apart.measured, apart.simpler["linear scaling"]) == ("s", 0.01, 0.01)


def test_only_gradients_of_recordings_vary_with_their_longest_sample() -> None:
    spreads = {model: [spread_of(model, batch) for batch in (1, 10, 14, 20, 999)] for model in ("bert", "deepspeech2")}
    assert spreads["bert"] == [0.0] * 5
    assert spreads["deepspeech2"] == pytest.approx([0.103, 0.103, 0.095, 0.086, 0.049], abs=1e-3)


def test_a_ring_between_two_machines_shares_their_tunnel() -> None:
    lines = [
        placed(gpu_cluster="aws (default)", placement_replicas_per_node_digits=digits) for digits in ("1", "11", "111")
    ]
    links = [dict(outcome.scenario or {})["cluster"]["network"]["link"] for outcome in predicted(lines)[0]]
    assert links == ["aws-ipip-50g-both-ways", "aws-ipip-50g"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "gpt"}, "model: found 'gpt', expected one of bert"),
        ({"gpu_cluster": "rtx"}, "gpu_cluster: found 'rtx', expected one of aws (default), azure"),
        ({"placement_replicas_per_node_digits": "104"}, "found '104', expected the replicas of each node"),
        ({"kind": "speed"}, "kind: found 'speed', expected placements or scalability"),
        ({"kind": "scalability", "num_nodes": 4, "num_replicas": 3}, "num_replicas: found 3 on 4 nodes"),
        ({"local_batch_size": ""}, "local_batch_size: found '', expected a count"),
        ({"step_time_s": "-1"}, "step_time_s: found '-1', expected a positive number"),
    ],
)
def test_lines_of_pollux_that_cannot_be_read_are_left_out(values: dict[str, object], words: str) -> None:
    outcomes, (left_out, alone) = predicted([placed(), placed(**values)])
    assert outcomes == [] and left_out.name == "line 3" and words in left_out.reason
    assert alone.reason == "no row of its group has more devices or nodes"
