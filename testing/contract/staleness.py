"""The recorded staleness."""

from __future__ import annotations

import pytest

from paceline.algorithms.core.method import Method
from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.async_elastic import AsyncEasgd
from paceline.algorithms.methods.baseline import SyncSgd
from paceline.algorithms.methods.delayed import LayerwiseAgd
from paceline.algorithms.methods.parameter_server import AsyncSgd
from paceline.algorithms.methods.periodic import KAvg
from paceline.records.tables import SCHEMAS, assemble
from paceline.testing.contract.jobs import job_of
from paceline.testing.contract.programs import Contract, Interpreter

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
