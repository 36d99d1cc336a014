"""Load, Gradient, LayerGradients, Charge, Now, RecordUpdate and NextStep, and the recorded staleness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.algorithms.core.buckets import Bucket
from paceline.algorithms.core.method import Method, RankContext, Replica, StalenessKind
from paceline.algorithms.core.operations import (
    Charge,
    Gradient,
    LayerGradients,
    Load,
    Now,
    RecordUpdate,
    Start,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.program import Program, program
from paceline.algorithms.core.values import Contribution, Rank, Samples, Step, Weights, join
from paceline.algorithms.methods.async_elastic import AsyncEasgd
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.layerwise import LayerwiseAgd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.algorithms.methods.periodic import KAvg
from paceline.records.tables import SCHEMAS, assemble
from paceline.testing.contract.programs import Bowl, Contract, ContractProgram, Interpreter, answers, job_of, vector


@dataclass(frozen=True, kw_only=True)
class OneGradient(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        batch = yield from Load(step.samples)
        yield from Charge("copy", 100, where="host")
        return batch, (yield from Gradient(Weights(vector(1, 2, 3, 4), 5), batch))


@program
def later(weights: Weights) -> Program[Weights]:
    yield from Now()
    return weights


@dataclass(frozen=True, kw_only=True)
class ByLayers(ContractProgram):
    """The same gradient whole, by layers, by layers from weights that come by layers, and in one bucket of both."""

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[Any]:
        batch = yield from Load(step.samples)
        weights = vector(1, 2, 3, 4)
        whole = yield from Gradient(Weights(weights, 3), batch)
        parts = yield from LayerGradients(Weights(weights, 3), batch)
        answered = [answer for _, answer in (yield from WaitFor(parts))]
        layers = []
        for layer in me.layout.layers:
            layers.append((yield from Start(later(Weights(weights[layer.part], 3)))))
        from_layers = []
        for part in (yield from LayerGradients(tuple(layers), batch)):
            from_layers.append((yield from Wait(part)))
        both = Bucket(me.layout.layers)
        (gradient,) = yield from LayerGradients(Weights(weights, 3), batch, [both])
        return whole, answered, from_layers, (yield from Wait(gradient))


@dataclass(frozen=True, kw_only=True)
class ReadsTheClock(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[float]]:
        times = [(yield from Now())]
        for _ in range(3):
            batch = yield from Load(step.samples)
            yield from Gradient(state.weights, batch)
            times.append((yield from Now()))
        return times


@dataclass(frozen=True, kw_only=True)
class LocalSteps(ContractProgram):
    staleness_kind = StalenessKind.LOCAL_AGE

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[list[int]]:
        origin = Contribution(me.rank, step.number, 4, 8)
        held = Weights(vector(1.0), 4)
        versions = []
        for _ in range(3):
            versions.append((yield from RecordUpdate(held, [origin], advance=False)))
        versions.append((yield from RecordUpdate(held)))
        versions.append((yield from RecordUpdate(Weights(vector(9.0), 5), [origin], advance=False)))
        return versions


@dataclass(frozen=True, kw_only=True)
class Lagging(ContractProgram):
    staleness_kind = StalenessKind.VERSION_LAG

    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[int]:
        inputs = [Contribution(Rank(0), 3, 2, 8), Contribution(Rank(1), 1, 7, 16)]
        return (yield from RecordUpdate(Weights(vector(3.0, 4.0), 7), inputs))


@dataclass(frozen=True, kw_only=True)
class StepNumbers(ContractProgram):
    @program
    def body(self, me: RankContext, step: Step, state: Replica) -> Program[tuple[Any, ...]]:
        yield from Charge("nothing", 0)
        return (*(state.optimizer_state or ()), (step.number, step.samples.index))


class LearningContract(Contract):
    """Gradients are the learner's, and versions and steps are counted."""

    def test_a_gradient_is_the_learners_and_knows_where_it_comes_from(self, interpreter: Interpreter) -> None:
        bowl = Bowl()
        for rank, (batch, gradient) in enumerate(answers(interpreter, OneGradient(), workers=2)):
            assert batch.samples == Samples(worker=rank, workers=2, index=0, count=8)
            vector_there, loss = bowl.gradient(vector(1, 2, 3, 4), bowl.load(batch.samples))
            np.testing.assert_array_equal(gradient.vector, vector_there)
            assert gradient.loss == loss
            assert (gradient.version, gradient.samples, gradient.rank, gradient.step) == (5, 8, rank, 0)
            assert gradient.busy_s >= 0

    def test_layers_come_last_first_and_make_up_the_whole(self, interpreter: Interpreter) -> None:
        whole, answered, from_layers, bucket = answers(interpreter, ByLayers(), workers=1)[0]
        np.testing.assert_array_equal(bucket.vector, whole.vector)
        assert (bucket.version, bucket.samples, bucket.rank, bucket.step) == (3, 8, 0, 0)
        for parts in (answered, from_layers):
            np.testing.assert_array_equal(join([part.vector for part in reversed(parts)]), whole.vector)
            assert [len(part.vector) for part in parts] == [2, 2]
            assert {(p.version, p.samples, p.rank, p.step) for p in parts} == {(3, 8, 0, 0)}
        np.testing.assert_array_equal(answered[0].vector, whole.vector[2:])

    def test_the_clock_never_goes_back(self, interpreter: Interpreter) -> None:
        times = answers(interpreter, ReadsTheClock(), workers=1)[0]
        assert times[0] >= 0
        assert times == sorted(times)

    def test_local_steps_leave_the_version_and_age(self, interpreter: Interpreter) -> None:
        trace = interpreter(job_of(LocalSteps(), 2, steps=1))
        for rank in (Rank(0), Rank(1)):
            assert trace.states[rank].optimizer_state == [4, 4, 4, 5, 5]
            assert [row.staleness for row in trace.updates if row.rank == rank] == [0, 1, 2, 0]

    def test_local_steps_of_one_worker_are_never_stale(self, interpreter: Interpreter) -> None:
        """Its weights are always the average of everyone."""
        trace = interpreter(job_of(LocalSteps(), 1, steps=1))
        assert [row.staleness for row in trace.updates] == [0, 0, 0, 0]

    def test_staleness_is_the_difference_of_versions(self, interpreter: Interpreter) -> None:
        trace = interpreter(job_of(Lagging(), 1, steps=1))
        assert trace.states[Rank(0)].optimizer_state == 8
        rows = [(r.rank, r.step, r.version_read, r.version_applied, r.staleness, r.samples) for r in trace.updates]
        assert rows == [(0, 3, 2, 7, 5, 8), (1, 1, 7, 7, 0, 16)]
        np.testing.assert_array_equal(trace.weights, [3.0, 4.0])

    @pytest.mark.parametrize("steps", [1, 5])
    def test_steps_are_numbered_from_0_and_end_at_the_budget(self, interpreter: Interpreter, steps: int) -> None:
        trace = interpreter(job_of(StepNumbers(), 2, steps=steps))
        for state in trace.states.values():
            assert state.optimizer_state == tuple((number, number) for number in range(steps))
            assert state.step == steps


METHODS: list[Method] = [SyncSgd(), AsyncSgd(), AsyncEasgd(), KAvg(k=2)]


class StalenessContract(Contract):
    """The staleness of every gradient is recorded."""

    @pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
    def test_all_runs_have_the_same_columns_and_know_the_age_of_every_gradient(
        self, interpreter: Interpreter, method: Method
    ) -> None:
        tables = assemble(interpreter(job_of(method, 2, steps=6)), num_samples=64)
        for table, schema in SCHEMAS.items():
            assert list(getattr(tables, table)) == schema.names
        assert len(tables.updates) and (tables.updates["age_s"] >= 0).all()
        assert not len(tables.layers)

    def test_layers_land_by_themselves_one_step_late(self, interpreter: Interpreter) -> None:
        trace = interpreter(job_of(LayerwiseAgd(delay=1, bucket=None), 2, steps=4))
        rows = sorted((row.rank, row.step, row.layer, row.version_read, row.version_applied) for row in trace.layers)
        assert rows == [
            (Rank(rank), step, layer, step, step + 1)
            for rank in (0, 1)
            for step in range(3)
            for layer in ("first", "second")
        ]
        assert (assemble(trace, num_samples=64).layers["age_s"] > 0).all()
