"""What reports, commands and sweeps say about links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline import load, simulate
from paceline.cli.app import app
from paceline.records import Run
from paceline.records.store import read_run, save
from paceline.reports.blocks import Chart, Claim, Table
from paceline.reports.link_words import link_sentences
from paceline.reports.run_report import links_section
from paceline.reports.sweeps.sweep import SweepEntry, SweepResult
from paceline.reports.sweeps.sweep_table import tabulate
from paceline.reports.sweeps.sweep_words import link_words, sweep_words
from tests.report_samples import as_measured, simulated_runs


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """One epoch on two sites that a slow link joins."""
    names = ["sync-sgd", "hbs-sgd"]
    return simulate(load("quickstart", ["stop.epochs=1", "cluster.network.link=eth-1g"], algorithms=names))


def test_the_section_shows_the_busiest_links_of_each_method(runs: list[Run]) -> None:
    section = links_section(runs)
    assert section is not None and section.title == "Links"
    _, words, _, busiest, kinds, by_kind = section.blocks
    assert isinstance(words, Claim)
    assert "sync-sgd: The busiest link is switch -> host0 (eth-1g): 231 kB" in words.text
    assert isinstance(busiest, Chart) and isinstance(kinds, Chart) and isinstance(by_kind, Table)
    assert list(busiest.plots) == ["sync-sgd, seed 1, simulated", "hbs-sgd, seed 1, simulated"]
    (bars,) = busiest.plots["sync-sgd, seed 1, simulated"].series
    assert list(bars.x) == runs[0].tables.links["utilisation"].tolist() and bars.labels is not None
    assert [bars.y[0], bars.labels[0]] == ["switch -> host0", "231 kB"]
    of_kinds = {one.name: dict(zip(one.x, one.y, strict=True)) for one in kinds.plots[""].series}
    assert of_kinds["hbs-sgd"]["eth-1g"] == pytest.approx(of_kinds["sync-sgd"]["eth-1g"] / 12)
    assert len(by_kind.rows) == 4


def test_reports_of_measured_runs_have_no_such_section() -> None:
    assert links_section(as_measured(simulated_runs())) is None


def test_idle_and_missing_links_have_words() -> None:
    assert list(link_sentences({})) == []
    assert list(link_sentences({"links": {"busiest": None, "kinds": []}})) == ["No link carried anything."]


def test_stored_runs_show_their_links(runs: list[Run], tmp_path: Path) -> None:
    stored = save(runs[0], tmp_path)
    assert stored.path is not None
    again = read_run(stored.path)
    assert again.tables.links.equals(runs[0].tables.links) and again.summary.get("links") == runs[0].summary.get(
        "links"
    )
    shown = CliRunner().invoke(app, ["show", str(stored.path)], catch_exceptions=False).stdout
    assert "Busiest links, 8 of 12" in shown
    assert "The busiest link is switch -> host0 (eth-1g): 231 kB" in " ".join(shown.split())


def entry(number: int, algorithm: str, link: str, utilisation: float | None) -> SweepEntry:
    summary: dict[str, Any] = dict(simulated_runs()[0].summary)
    busiest = {"from": "a", "to": "b", "kind": link, "bytes": 5e9, "utilisation": utilisation}
    summary["links"] = {**summary["links"], "busiest": None if utilisation is None else busiest}
    return SweepEntry(
        number=number,
        vary={"cluster.network.link": link},
        algorithm=algorithm,
        seed=1,
        workers=4,
        batch_per_worker=32,
        summary=summary,
    )


def words_of(*used: tuple[str, str, float | None]) -> str:
    entries = tuple(entry(number, *one) for number, one in enumerate(used))
    table = tabulate(SweepResult(scenario="s", paths=("cluster.network.link",), target=None, entries=entries))
    said = link_words(table, table.means())
    assert not said or said in sweep_words(table)
    return said


def test_a_sweep_says_which_method_uses_its_busiest_link_most() -> None:
    found = words_of(("one", "slow", 0.4), ("one", "fast", 0.1), ("two", "slow", 0.02), ("two", "fast", 0.01))
    assert found == (
        "one uses its busiest link most: a -> b, 40 % of its capacity (5 GB) with link=slow; two least: a -> b, "
        "2 % of its capacity (5 GB) with link=slow."
    )


def test_a_sweep_says_nothing_about_equal_or_unknown_links() -> None:
    assert not words_of(("one", "slow", 0.4), ("two", "slow", 0.4001))
    assert not words_of(("one", "slow", 0.4), ("two", "slow", None))
