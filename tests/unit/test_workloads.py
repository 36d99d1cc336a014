"""Learners: equal values everywhere, correct gradients, unchanged arguments."""

import math
import multiprocessing
from typing import Any

import numpy as np
import pytest

import paceline
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.job import Learner
from paceline.algorithms.core.values import Null, Samples
from paceline.workloads import MODELS, build, problems
from paceline.workloads.batches.examples import digits, pixels_and_labels
from paceline.workloads.learners.quadratic import Quadratic, QuadraticOptions

LEARNERS: dict[str, dict[str, Any]] = {
    "digits": {"model": "digits-mlp", "dataset": "digits", "learning": "train", "dtype": "float64"},
    "quadratic": {"model": "quadratic", "learning": "quadratic", "dimensions": 10, "layers": 3},
    "timing": {"model": "lenet", "learning": "none"},
}
NUMERIC = ["digits", "quadratic"]


def learner(name: str, seed: int = 1) -> Learner:
    return build(seed=seed, **LEARNERS[name])


def step(index: int, *, worker: int = 0, workers: int = 1, count: int = 8) -> Samples:
    return Samples(worker=worker, workers=workers, index=index, count=count)


def numbers(vector: Any) -> np.ndarray:
    return np.asarray(vector)


def moved(vector: Any, by: np.ndarray) -> Any:
    return vector + (by if isinstance(vector, np.ndarray) else vector.new_tensor(by))


def initial_numbers(name: str) -> list[float]:
    return [float(number) for number in learner(name).initial()]


@pytest.mark.parametrize("name", LEARNERS)
def test_layers_fill_the_vector(name: str) -> None:
    built = learner(name)
    layers = built.layout.layers
    assert [layer.start for layer in layers] == [0, *(layer.stop for layer in layers[:-1])]
    assert built.initial().nbytes == built.layout.size * (4 if name == "timing" else 8)


@pytest.mark.parametrize("name", NUMERIC)
def test_same_seed_same_numbers_and_another_seed_others(name: str) -> None:
    one, again, other = learner(name), learner(name), learner(name, seed=2)
    start = one.initial()
    assert (numbers(start) == numbers(again.initial())).all()
    assert (numbers(start) != numbers(other.initial())).any()
    first, second = (built.gradient(start, built.load(step(5))) for built in (one, again))
    assert (numbers(first[0]) == numbers(second[0])).all() and first[1] == second[1]
    assert (numbers(first[0]) != numbers(other.gradient(start, other.load(step(5)))[0])).any()


def test_initial_weights_are_the_same_in_a_process_of_its_own() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(initial_numbers, NUMERIC) == [initial_numbers(name) for name in NUMERIC]


@pytest.mark.parametrize("name", NUMERIC)
def test_mean_of_the_workers_gradients_is_the_gradient_of_the_whole_batch(name: str) -> None:
    built = learner(name)
    start = built.initial()
    whole, loss = built.gradient(start, built.load(step(7, count=12)))
    parts = [built.gradient(start, built.load(step(7, worker=r, workers=4, count=3))) for r in range(4)]
    np.testing.assert_allclose(sum(numbers(part) for part, _ in parts) / 4, whole, rtol=1e-12, atol=1e-15)
    assert sum(one for _, one in parts) / 4 == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("name", NUMERIC)
def test_layer_gradients_come_last_layer_first_and_are_the_gradient(name: str) -> None:
    built = learner(name)
    start, data = built.initial(), built.load(step(0))
    parts: list[tuple[str, Any]] = []
    loss = built.layer_gradients(start, data, lambda layer, part: parts.append((layer, part)))
    whole, same = built.gradient(start, data)
    assert [layer for layer, _ in parts] == [layer.name for layer in reversed(built.layout.layers)]
    assert (np.concatenate([numbers(part) for _, part in reversed(parts)]) == numbers(whole)).all()
    assert loss == same


@pytest.mark.parametrize("name", NUMERIC)
def test_nothing_given_is_changed_and_gradients_are_new(name: str) -> None:
    built = learner(name)
    start, data = built.initial(), built.load(step(0))
    before, data_before = numbers(start).copy(), [numbers(part).copy() for part in data]
    first, _ = built.gradient(start, data)
    kept = numbers(first).copy()
    built.layer_gradients(start, data, lambda *_: None)
    built.evaluate(start)
    built.gradient(start + 1.0, data)
    assert (numbers(start) == before).all()
    assert all((numbers(part) == old).all() for part, old in zip(data, data_before, strict=True))
    assert (numbers(first) == kept).all()
    assert not np.shares_memory(numbers(first), numbers(start))


@pytest.mark.parametrize("name", NUMERIC)
def test_gradient_is_the_slope_of_the_loss(name: str) -> None:
    built = learner(name)
    start, data = built.initial(), built.load(step(3))
    gradient = numbers(built.gradient(start, data)[0])
    for place in [0, built.layout.size // 2, built.layout.size - 1]:
        nudge = np.zeros(built.layout.size)
        nudge[place] = 1e-6
        up, down = (built.gradient(moved(start, sign * nudge), data)[1] for sign in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(gradient[place], rel=1e-5, abs=1e-8)


def test_the_file_of_digits_has_the_parts_of_scikit_learn() -> None:
    load_digits = pytest.importorskip("sklearn.datasets", reason="compares with scikit-learn").load_digits
    train_test_split = pytest.importorskip("sklearn.model_selection").train_test_split

    pixels, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=0.2, stratify=labels, random_state=0
    )
    for found_here, expected in zip(pixels_and_labels(), (pixels, labels), strict=True):
        np.testing.assert_array_equal(found_here, expected)
    found = digits()
    assert found.train.labels.tolist() == train_labels.tolist()
    assert found.test.labels.tolist() == test_labels.tolist()
    scale = np.where(train.std(axis=0) > 0, train.std(axis=0), np.inf)
    for part, expected in ((found.train, train), (found.test, test)):
        np.testing.assert_array_equal(part.inputs.numpy(), (expected - train.mean(axis=0)) / scale)


def test_digits_are_learned() -> None:
    built = learner("digits")
    assert built.num_samples == MODELS["digits-mlp"].num_samples == 1437
    weights = built.initial()
    at_start = built.evaluate(weights)
    for index in range(44 * 5):
        gradient, _ = built.gradient(weights, built.load(step(index, count=32)))
        weights = weights - 0.1 * gradient
    at_end = built.evaluate(weights)
    assert at_start.accuracy is not None and at_start.accuracy < 0.3
    assert at_end.accuracy is not None and at_end.accuracy > 0.93
    assert at_end.loss < 0.25 < 2.0 < at_start.loss


def test_pixels_are_standardised_and_constant_ones_stay_zero() -> None:

    pixels, labels = digits().train
    deviation = pixels.std(dim=0, correction=0)
    np.testing.assert_allclose(pixels.mean(dim=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(deviation[deviation > 0], 1.0, rtol=1e-12)
    assert 0 < int((deviation == 0).sum()) < 10
    assert labels.bincount().min() > 135


def test_single_precision_starts_where_double_does() -> None:
    single = build("digits-mlp", seed=1).initial()
    assert single.nbytes == 4810 * 4
    np.testing.assert_array_equal(single, numbers(learner("digits").initial()).astype(np.float32))


def test_quadratic_noise_has_the_variance_it_says() -> None:
    problem = Quadratic(seed=1, options=QuadraticOptions(dimensions=3, layers=1, noise=4.0))
    batches = np.array([problem.load(step(index, count=8)) for index in range(4000)])
    # The variance of 4000 normal numbers is known to 2.2 % (one deviation), their mean to 1.6 % of the deviation.
    np.testing.assert_allclose(batches.var(axis=0), problem.noise_variance / 8, rtol=0.09)
    np.testing.assert_allclose(batches.mean(axis=0) / batches.std(axis=0), 0.0, atol=0.065)


def test_quadratic_follows_the_exact_mean_and_variance() -> None:
    """m' = (1 − g) m, V' = (1 − g)² V + η² c / b (docs/invariants.md, O5), over 2000 seeds."""
    rate, batch, steps, runs = 0.5, 4, 10, 2000
    options = QuadraticOptions(dimensions=2, layers=1, spectrum=1.0, noise=1.0)
    ends = []
    for seed in range(runs):
        problem = Quadratic(seed=seed, options=options)
        weights = problem.initial()
        for index in range(steps):
            weights = weights - rate * problem.gradient(weights, problem.load(step(index, count=batch)))[0]
        ends.append(weights - problem.target)
    mean, variance = np.ones(2), np.zeros(2)
    for _ in range(steps):
        shrink = 1 - rate * problem.curvature
        mean, variance = shrink * mean, shrink**2 * variance + rate**2 * problem.noise_variance / batch
    np.testing.assert_allclose(np.mean(ends, axis=0), mean, atol=4 * np.sqrt(variance / runs).max())
    np.testing.assert_allclose(np.var(ends, axis=0), variance, rtol=4 * math.sqrt(2 / runs))


def test_timing_only_has_sizes_and_no_numbers() -> None:
    built = learner("timing")
    gradient, loss = built.gradient(built.initial(), built.load(step(0)))
    assert gradient == Null(431_080) and math.isnan(loss)
    parts: list[tuple[str, int]] = []
    built.layer_gradients(built.initial(), None, lambda layer, part: parts.append((layer, part.count)))
    assert parts == [("ip2", 5010), ("ip1", 400_500), ("conv2", 25_050), ("conv1", 520)]
    score = built.evaluate(gradient)
    assert math.isnan(score.loss) and score.accuracy is None


@pytest.mark.parametrize(
    ("name", "parameters"), [("digits-mlp", 4810), ("quadratic", 64), ("lenet", 431_080), ("alexnet", 62_378_344)]
)
def test_known_parameter_counts(name: str, parameters: int) -> None:
    assert MODELS[name].parameters == parameters


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"model": "digits-mpl", "learning": "train"}, ["model: found 'digits-mpl'", "did you mean digits-mlp?"]),
        (
            {"model": "digits-mlp", "dataset": "mnist", "learning": "train"},
            ["dataset: found 'mnist'", "expected digits"],
        ),
        ({"model": "lenet", "learning": "train"}, ["data_dir: missing", "train-images-idx3-ubyte", "learning: none"]),
        ({"model": "transformer", "learning": "train"}, ["learning: found 'train'", "learning: none"]),
        ({"model": "digits-mlp", "learning": "quadratic"}, ["learning: found 'quadratic'"]),
        (
            {"model": "digits-mlp", "learning": "trian", "dtype": "float16"},
            ["did you mean train?", "dtype: found 'float16'"],
        ),
        (
            {"model": "quadratic", "learning": "quadratic", "noise": -1, "layers": 99},
            ["options.noise: found -1", "options.layers: found 99"],
        ),
        (
            {"model": "quadratic", "learning": "quadratic", "dimension": 3},
            ["options.dimension", "did you mean dimensions?"],
        ),
        (
            {"model": "quadratic", "learning": "quadratic", "dimensions": "many"},
            ["options.dimensions: found 'many'", "integer"],
        ),
        ({"model": "digits-mlp", "learning": "train", "noise": 1}, ["options.noise"]),
    ],
)
def test_wrong_workloads_are_told_all_at_once(arguments: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        build(seed=1, **arguments)
    for part in told:
        assert part in str(caught.value)


def test_a_right_workload_has_no_problems() -> None:
    assert problems("digits-mlp", dataset="digits", learning="train") == []


def test_a_step_larger_than_an_epoch_is_an_input_error() -> None:
    with pytest.raises(InputError, match="4 x 500 = 2000 samples a step, but 1437 an epoch; give 359 at most"):
        learner("digits").load(step(0, workers=4, count=500))


# --- a part of the data -----------------------------------------------------------------------------------------------


def test_a_part_of_the_data_is_the_same_for_all_seeds_and_lies_in_a_larger_one() -> None:
    few, more = (digits().limited(samples) for samples in (100, 400))
    assert [len(part.train.labels) for part in (few, more)] == [100, 400]
    assert [len(part.test.labels) for part in (few, more)] == [25, 100]  # 360 · 100 / 1437
    rows = {row.numpy().tobytes() for row in more.train.inputs}
    assert all(row.numpy().tobytes() in rows for row in few.train.inputs)
    assert len(few.train.labels.unique()) == 10
    assert digits().limited(None) is digits() and digits().limited(1437) is digits()


def test_an_epoch_is_that_of_the_part() -> None:
    learner = build("digits-mlp", seed=1, samples=100)
    assert learner.num_samples == 100
    assert build("resnet50", seed=1, learning="none", samples=5000).num_samples == 5000
    assert paceline.load("quickstart", ["workload.samples=500"]).workload.num_samples == 500


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        ("digits-mlp", {}, "samples: found 2000, expected at most the 1437 that there are"),
        (
            "quadratic",
            {"learning": "quadratic"},
            "samples: found 2000 for quadratic, expected none: the model has no data",
        ),
    ],
)
def test_a_number_of_samples_that_there_are_not(model: str, changes: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"dataset": None, "learning": "train", **changes}
    assert problems(model, samples=2000, **given) == [words]
