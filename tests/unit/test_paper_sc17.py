"""What the figures of SC'17 on GPUs and on learning are computed from, on settings whose results are known."""

from __future__ import annotations

import math

import pytest

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.async_elastic import AsyncEasgd, AsyncMeasgd
from paceline.algorithms.methods.elastic import Easgd
from paceline.papers.claim import Claim, Given, inputs_of
from paceline.papers.sc17 import gpu, learning
from paceline.papers.sc17.learning import PROBLEMS, Contest, Entry, Needed, Training
from paceline.records.trace import Span, Trace

GPU_CLAIMS = {claim.name: claim for claim in (*gpu.CLAIMS, *learning.LEARNED)}


def given(name: str, **changes: str) -> Given:
    """The most plausible inputs of a claim, with some changed, for short runs."""
    inputs = GPU_CLAIMS[f"sc17-{name}"].given(inputs_of("sc17"), quick=True)
    for key, value in changes.items():
        inputs = inputs.with_value(key.replace("_", "-"), value)
    return inputs


# --- times of iterations ----------------------------------------------------------------------------------------------


def span(rank: int, activity: str, start_s: float, end_s: float, sent_s: float | None = None) -> Span:
    return Span(Rank(rank), "main", activity, None, 0, start_s, end_s, 100, sent_s)  # type: ignore[arg-type]


def test_the_server_waits_for_gradients_and_for_messages() -> None:
    """Centre 0 to 1, batch to 1.5, gradient to 4, weights to 5, update to 6: 3.5 of 6 seconds are not communication."""
    spans = [
        span(0, "receive", 0.0, 1.0, 0.0),
        span(0, "load", 1.0, 1.5),
        span(0, "compute", 1.5, 4.0),
        span(1, "receive", 0.0, 5.0, 4.0),
        span(1, "update", 5.0, 6.0),
    ]
    assert gpu.share_at_server(Trace(spans=spans), Rank(1)) == pytest.approx(3.5 / 6)


def test_a_gradient_behind_the_turns_of_others_has_no_time() -> None:
    """The server receives weights that were sent before, while rank 0 computes."""
    spans = [
        span(0, "compute", 0.0, 4.0),
        span(1, "receive", 0.0, 2.0, -1.0),
        span(1, "update", 2.0, 3.0),
        span(1, "receive", 3.0, 4.0, 1.0),
    ]
    assert gpu.share_at_server(Trace(spans=spans), Rank(1)) == pytest.approx(1 / 4)


def turn(workers: int, method: Easgd) -> tuple[Trace, float]:
    return gpu._simulated([f"cluster.nodes=[{{device: k80, workers_per_node: {workers}}}]"], method, 3)


def test_a_serial_turn_does_not_depend_on_the_number_of_workers() -> None:
    """Neither its time nor its share of communication; the time fraction `wait` of workers does."""
    (few, few_s), (many, many_s) = (turn(workers, Easgd()) for workers in (3, 6))
    assert many_s / 6 == pytest.approx(few_s / 3, rel=0.05)
    shares = [gpu.share_at_server(trace, Rank(workers)) for trace, workers in ((few, 3), (many, 6))]
    assert shares[1] == pytest.approx(shares[0], rel=0.05)


def test_overlap_hides_gradients_behind_the_turns_of_others() -> None:
    serial, overlapped = (
        gpu.iteration(given("original-turn", gpu_overlap_of_original=value), "original")
        for value in ("serial", "overlapped")
    )
    assert overlapped.seconds < 0.5 * serial.seconds
    spent_s = [one.seconds * one.communication for one in (serial, overlapped)]
    assert 0 < spent_s[1] < spent_s[0]


def test_the_rate_of_a_copy_is_that_of_all_its_messages() -> None:
    traces = [turn(2, Easgd(packed=packed))[0] for packed in (True, False)]
    sizes = []
    for trace in traces:
        began_s = min(one.start_s for one in trace.spans if one.activity == "compute")
        early = [one for one in trace.spans if one.rank == 0 and one.activity == "receive" and one.end_s <= began_s]
        sizes.append((len(early), sum(one.bytes for one in early)))
    assert sizes[0] == (1, 4 * 431_080) and sizes[1][0] > 1 and sizes[1][1] == sizes[0][1]
    whole, layered = map(gpu.whole_rate, traces)
    assert layered < whole


@pytest.mark.parametrize("name", gpu.MACHINES)
def test_machines_have_their_gpus(name: str) -> None:
    machine = gpu.MACHINES[name]
    assert machine.workers == (4 if name == "k80-node" else 8)
    for roots in (1, 2):
        found = given("sync3-step", gpu_machine=name, gpu_roots=str(roots))
        assert gpu.iteration(found, "sync3").seconds > 0


def test_the_shipped_scenario_is_on_the_most_plausible_machine() -> None:
    from paceline.scenarios import load

    shipped, changed = (
        load("sc17-lenet-gpu", changes, algorithms=["sync-easgd3"])
        for changes in ([], gpu.machine_of(given("sync3-step")).changes())
    )
    assert shipped.cluster.layout.graph.endpoints == changed.cluster.layout.graph.endpoints
    assert shipped.workload.batch_per_worker == given("sync3-step").number("gpu-batch")


def test_published_times_are_those_of_the_table() -> None:
    found = {name: GPU_CLAIMS[f"sc17-{name}"].published for name in ("original-turn", "sync1-step", "sync3-step")}
    assert found == {"original-turn": pytest.approx(8.2), "sync1-step": 11.0, "sync3-step": 7.7}


# --- trainings --------------------------------------------------------------------------------------------------------


def training(*accuracies: float, limit: float = 10.0) -> Training:
    """An evaluation for each epoch, which takes two seconds."""
    epochs = tuple(map(float, range(len(accuracies))))
    return Training(epochs, tuple(2 * epoch for epoch in epochs), accuracies, limit)


def test_what_was_needed_is_where_the_mean_accuracy_crosses_the_target() -> None:
    found = training(0.0, 0.4, 0.8, 0.9, 0.9, 0.9).until(0.7)
    assert isinstance(found, Needed) and found.reached
    assert [found.epochs, found.time_s] == pytest.approx([2.0, 4.0])  # the mean of the epochs 1, 2 and 3 is 0.7


def test_a_run_that_ends_before_the_target_counts_with_its_limit() -> None:
    assert training(0.0, 0.4, 0.1).until(0.7) == Needed(10.0, 20.0, False)


def test_pictures_that_are_not_installed_are_replaced_by_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = given("tie", learning_data="fashion-small-lenet")
    monkeypatch.setattr(learning, "folder_is_missing", lambda *_: True)
    on = learning.contest(inputs)
    assert on.data == "digits"
    assert "(because fashion-mnist is not installed)" in learning._trained(on, inputs, "learning-data")
    monkeypatch.setattr(learning, "folder_is_missing", lambda *_: False)
    on = learning.contest(inputs)
    assert on.data == "fashion-perceptron"
    assert "because" not in learning._trained(on, inputs, "learning-data")


def test_an_entry_is_built_with_its_own_rates() -> None:
    method = Entry("async-easgd", 0.4, 0.3).built()
    assert isinstance(method, AsyncEasgd) and (method.learning_rate, method.moving_rate) == (0.4, 0.3)
    assert method.momentum == 0.0
    heavy = Entry("async-measgd", 0.1, momentum=0.8).built()
    assert isinstance(heavy, AsyncMeasgd) and heavy.momentum == 0.8
    assert not hasattr(Entry("async-sgd", 0.4).built(), "moving_rate")


def contest(*, quick: bool = False, ratio: float = 4 / 3, momentum: float = 0.9) -> Contest:
    return Contest("digits", "m40-node", ratio, momentum, quick)


def test_rates_are_tuned_on_separate_seeds_by_the_mean_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best rate is 0.1, with β = 0.3; seed 102 diverges at 0.4 and above."""
    seen = set()

    def needed(on: Contest, entry: Entry, seed: int, most_epochs: float = math.inf) -> Needed:
        seen.add(seed)
        if entry.rate >= 0.4 and seed == 102:
            return Needed(1.0, 0.0, False)
        return Needed(1.0, 1.0 + abs(math.log(entry.rate / 0.1)) + abs(entry.moving_rate - 0.3), True)

    monkeypatch.setattr(Contest, "needed", needed)
    learning.tuned.cache_clear()
    try:
        assert learning.tuned(contest(), "sync-easgd3") == Entry("sync-easgd3", 0.1, 0.3)
        assert learning.tuned(contest(), "async-sgd").moving_rate == learning.MOVING_RATES[0]
        assert learning.tuned(contest(), "async-msgd").momentum == 0.9
    finally:
        learning.tuned.cache_clear()
    assert seen == {101, 102}


def test_a_rate_that_cannot_be_the_best_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0.1 both seeds need 4 epochs; others need 20, and are left when they cannot be better."""
    limits = {}

    def needed(on: Contest, entry: Entry, seed: int, most_epochs: float = math.inf) -> Needed:
        limits[entry.rate, seed] = most_epochs
        epochs = 4.0 if entry.rate == 0.1 else 20.0
        return Needed(min(epochs, most_epochs), min(epochs, most_epochs), reached=epochs <= most_epochs)

    monkeypatch.setattr(Contest, "needed", needed)
    first = Entry("async-sgd", 0.1)
    assert learning._at_best_rate(contest(), first, (0.05, 0.1, 0.2)) == first
    assert limits[0.1, 101] == math.inf and limits[0.05, 101] == limits[0.2, 101] == learning.GIVEN_UP * 8.0
    assert (0.05, 102) not in limits


def test_a_softer_target_is_reached_by_the_same_training() -> None:
    hard, soft = contest(quick=True), contest(quick=True, ratio=3.0)
    entry = Entry("sync-easgd3", 0.4)
    assert hard.run(entry, 1) is soft.run(entry, 1)
    assert soft.needed(entry, 1).epochs < hard.needed(entry, 1).epochs


def test_a_training_ends_at_its_target_and_has_the_times_of_lenet() -> None:
    cluster = gpu.MACHINES["m40-node"].changes()
    entry = Entry("sync-easgd3", 0.4)
    run = learning.training(PROBLEMS["digits"], entry, cluster, seed=1, epochs=10.0, accuracy=0.85)
    assert run.accuracies[0] < 0.3 and run.epochs[-1] < run.limit
    steps = run.epochs[-1] * 1437 / (32 * 8)
    assert run.times_s[-1] / steps == pytest.approx(gpu.iteration(given("sync3-step"), "sync3").seconds, rel=0.1)


def test_the_final_error_of_the_digits_is_that_of_one_worker() -> None:
    problem = PROBLEMS["digits"]
    found = [learning.final_error(problem, 0.4, seed) for seed in (1, 2, 3)]
    assert sum(found) / 3 == pytest.approx(problem.final_error, abs=0.005)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Original EASGD needs 20 epochs, Sync EASGD 4."""
    epochs = {"easgd": 20.0, "sync-easgd3": 4.0}
    monkeypatch.setattr(learning, "at_best", lambda _on, method, _seed: Needed(epochs[method], 1.0, True))
    monkeypatch.setattr(learning, "folder_is_missing", lambda *_: False)


@pytest.mark.usefixtures("known")
def test_iterations_are_passes_over_mnist_or_updates() -> None:
    inputs = given("iterations-original", gpu_machine="m40-node", gpu_batch="64", iterations_counted="epochs")
    assert learning.iterations("easgd", inputs) == pytest.approx(20 * 60_000 / 64)
    assert learning.iterations("sync-easgd3", inputs) == pytest.approx(4 * 60_000 / (64 * 8))
    problem, updates = PROBLEMS[learning.counting(inputs).data], inputs.with_value("iterations-counted", "updates")
    assert learning.iterations("easgd", updates) == pytest.approx(20 * problem.images / problem.batch)


@pytest.mark.usefixtures("known")
def test_a_speed_up_is_the_ratio_of_iterations_times_that_of_their_times() -> None:
    inputs = given("factors")
    assert learning.ratio_of_iterations(inputs) == pytest.approx(8 * 5.0)
    expected = 40.0 * gpu.step_ratio("original", "sync3", inputs)
    assert learning.speed_up("sync3", inputs) == pytest.approx(expected)


@pytest.mark.parametrize("name", GPU_CLAIMS)
def test_claims_name_inputs_of_the_file(name: str) -> None:
    claim: Claim = GPU_CLAIMS[name]
    assert set(claim.inputs) <= set(inputs_of("sc17"))
    assert claim.holds_if == "order" or claim.published
