"""The recorded staleness is the same in every interpreter."""

from __future__ import annotations

import pytest

from paceline.algorithms.core.values import Rank
from paceline.algorithms.methods.delayed import LayerwiseAgd
from paceline.records.tables import SCHEMAS, assemble
from tests.contract.cases import Interpreter
from tests.support import built, job_of


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "async-easgd", "k-avg"])
def test_all_runs_have_the_same_columns_and_know_the_age_of_every_gradient(interpreter: Interpreter, name: str) -> None:
    tables = assemble(interpreter(job_of(built(name), 2, steps=6)), num_samples=64)
    for table, schema in SCHEMAS.items():
        assert list(getattr(tables, table)) == schema.names
    assert len(tables.updates) and (tables.updates["age_s"] >= 0).all()
    assert not len(tables.layers)


def test_layers_land_by_themselves_one_step_late(interpreter: Interpreter) -> None:
    trace = interpreter(job_of(LayerwiseAgd(delay=1), 2, steps=4))
    rows = sorted((row.rank, row.step, row.layer, row.version_read, row.version_applied) for row in trace.layers)
    assert rows == [
        (Rank(rank), step, layer, step, step + 1)
        for rank in (0, 1)
        for step in range(3)
        for layer in ("first", "second")
    ]
    assert (assemble(trace, num_samples=64).layers["age_s"] > 0).all()
