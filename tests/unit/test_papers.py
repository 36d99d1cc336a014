"""`paceline reproduce`: verdicts, inputs, the command and its documents, with claims that cost nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError
from paceline.cli.app import app
from paceline.cli.options import EXIT_FAILED, EXIT_INPUT
from paceline.papers import claim as rules
from paceline.papers import reproduce as registry
from paceline.papers.claim import (
    Assertion,
    Claim,
    Curve,
    Effort,
    Predicted,
    over_range,
    over_seeds,
    spanning,
    verdict_of,
)
from paceline.papers.page import claim_row, pages
from paceline.papers.runs import best_rate
from paceline.scenarios import SHIPPED

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"


class InputDocument(BaseModel):
    """An input in the JSON answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    value: str
    provenance: str
    low: str | None
    high: str | None


class ResultDocument(BaseModel):
    """A result in the JSON answer: the keys that users rely on, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    paper: str
    claim: str
    published: float | None
    predicted: float
    low: float
    high: float
    unit: str
    verdict: Literal["holds", "misses", "undecidable"]
    inputs: list[InputDocument]
    section: str
    hardware: str
    model: str
    batch: str
    scenario: str
    command: str
    holds_if: Assertion
    measured: bool
    reason: str
    details: list[str]
    curve: dict[str, Any] | None
    quick: bool


class Document(BaseModel):
    """The JSON answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    results: list[ResultDocument]


def made(predict: Callable[[Effort], Predicted], **more: Any) -> Claim:
    """A claim that is computed in the test's own process."""
    claim = Claim(
        name="softsync-made", paper="softsync", section="table 1", sentence="it is 10", published=10.0, unit="s",
        hardware="one", model="none", batch="1", scenario="quickstart", command="paceline simulate quickstart",
        inputs=("learners",), holds_if="within 25 %", predict=predict, measured=True,
    )  # fmt: skip
    return replace(claim, **more)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """The claims of softsync, instead of its own; no other paper has any."""
    found: list[Claim] = []
    monkeypatch.setattr(registry, "claims_of", lambda paper: tuple(found) if paper == "softsync" else ())
    return found


def reproduce(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "interval", "holds_if", "expected"),
    [
        (100.0, (75.0, 125.0), "within 25 %", "holds"),
        (100.0, (74.9, 110.0), "within 25 %", "undecidable"),
        (100.0, (10.0, 74.9), "within 25 %", "misses"),
        (100.0, (125.1, 500.0), "within 25 %", "misses"),
        (-4.0, (-5.0, -3.0), "within 25 %", "holds"),
        (2.0, (2.0, 9.0), "at least", "holds"),
        (2.0, (1.9, 9.0), "at least", "undecidable"),
        (2.0, (0.0, 1.9), "at least", "misses"),
        (2.0, (-9.0, 2.0), "at most", "holds"),
        (2.0, (2.1, 3.0), "at most", "misses"),
        (None, (0.1, 3.0), "positive", "holds"),
        (None, (0.0, 3.0), "positive", "undecidable"),
        (None, (-3.0, 0.0), "positive", "misses"),
        (None, (-3.0, -0.1), "negative", "holds"),
        (None, (-3.0, 0.0), "negative", "undecidable"),
        (None, (0.0, 3.0), "negative", "misses"),
        (None, (1.01, 3.0), "order", "holds"),
        (None, (0.9, 1.0), "order", "misses"),
        (0.0, (0.0, 0.0), "equal", "holds"),
        (0.0, (0.0, 1e-9), "equal", "undecidable"),
        (0.0, (1e-9, 1.0), "equal", "misses"),
    ],
)
def test_a_verdict_follows_from_the_interval(
    published: float | None, interval: tuple[float, float], holds_if: Assertion, expected: str
) -> None:
    ours = Predicted(value=interval[0], low=interval[0], high=interval[1])
    assert verdict_of(published, ours, holds_if, inputs_found=False) == expected


def test_a_published_figure_inside_the_noise_holds_only_if_all_inputs_are_found() -> None:
    wide = Predicted(value=100.0, low=10.0, high=200.0)
    verdicts = [verdict_of(100.0, wide, "within 25 %", inputs_found=found) for found in (True, False)]
    assert verdicts == ["holds", "undecidable"]
    assert verdict_of(300.0, wide, "within 25 %", inputs_found=True) == "misses"


def test_an_assertion_about_a_figure_needs_one() -> None:
    with pytest.raises(ValueError, match="needs a published figure"):
        verdict_of(None, over_seeds([1.0]), "at least", inputs_found=True)


@pytest.mark.parametrize("ends", [(2.0, 1.0, 3.0), (0.0, math.nan, 1.0), (0.0, 1.0, math.inf)])
def test_an_interval_contains_its_value_and_is_finite(ends: tuple[float, float, float]) -> None:
    low, value, high = ends
    with pytest.raises(ValueError, match="expected finite, in this order"):
        Predicted(value=value, low=low, high=high)


def test_an_interval_spans_all_plausible_inputs() -> None:
    wide = spanning(over_range([3.0, 1.0, 2.0]), over_seeds([5.0]), reason="why")
    assert (wide.value, wide.low, wide.high, wide.reason) == (2.0, 1.0, 5.0, "why")


def test_the_best_rate_is_found_from_any_start() -> None:
    rates = [0.1, 0.2, 0.4, 0.8, 1.6]
    for start in rates:
        assert best_rate(lambda rate: math.inf if rate > 1 else abs(rate - 0.4), rates, start) == 0.4
        assert best_rate(lambda _: math.inf, rates, start) == start


# --- inputs ----------------------------------------------------------------------------------------------------------


def test_every_claim_has_a_scenario_and_inputs_with_a_provenance() -> None:
    for claim in registry.claims_named():
        assert claim.name.startswith(f"{claim.paper}-"), claim.name
        if claim.paper == "digits":  # each claim builds its own scenario, of which test_comparisons.py loads all
            continue
        assert claim.scenario in SHIPPED and claim.scenario in claim.command and claim.inputs, claim.name
        for name in claim.inputs:
            given = rules.input_named(claim.paper, name)
            assert given.provenance.startswith(rules.KINDS)
            assert given.found == given.provenance.startswith(rules.CERTAIN)


def test_names_of_claims_are_unique_and_no_names_of_papers() -> None:
    names = [*registry.PAPERS, *(claim.name for claim in registry.claims_named())]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{value: '1', provenance: guessed}", "expected it to start with FOUND"),
        ("{value: '1', provenance: ASSUMED}", "needs its plausible range"),
        ("{value: '1', provenance: MEMORY low, low: '0'}", "found one of them, expected both or none"),
        ("{value: '1'}", "inputs.x.provenance: Field required"),
    ],
)
def test_a_wrong_input_is_refused(row: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "FOLDER", tmp_path)
    (tmp_path / "made.yaml").write_text(f"paper: made\ninputs: {{x: {row}}}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        rules.inputs_of("made")


def test_an_unknown_input_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no input 'learner' \(did you mean learners\?\)"):
        rules.input_named("softsync", "learner")


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_answer_has_the_promised_keys(claims: list[Claim]) -> None:
    claims.append(made(lambda _: over_seeds([9.0, 10.0, 11.0])))
    (one,) = Document.model_validate_json(reproduce("--quick", "--json").stdout).results
    assert (one.name, one.published, one.predicted, one.verdict, one.quick) == (
        "softsync-made",
        10.0,
        10.0,
        "holds",
        True,
    )
    assert one.inputs[0].name == "learners" and one.inputs[0].provenance.startswith("FOUND")


def test_a_miss_is_a_result_with_its_reason(claims: list[Claim]) -> None:
    claims.append(made(lambda _: replace(over_seeds([1.0]), reason="The link is slower.")))
    came = reproduce("--quick")
    assert came.exit_code == 0
    assert "misses" in came.stdout and "The link is slower." in came.stdout


def test_unknown_names_are_all_told_with_the_nearest() -> None:
    came = reproduce("softsnyc", "icmla17-speedup")
    assert came.exit_code == EXIT_INPUT
    assert "unknown name 'softsnyc' (did you mean softsync?)" in came.stderr
    assert "unknown name 'icmla17-speedup' (did you mean icmla17-speed-up?)" in came.stderr


def test_a_failed_claim_is_reported_and_the_others_are_kept(claims: list[Claim]) -> None:
    def fail(_: Effort) -> Predicted:
        raise InputError("no such device")

    claims += [made(fail, name="softsync-failed"), made(lambda _: over_seeds([10.0]))]
    came = reproduce("--quick", "--json")
    assert came.exit_code == EXIT_FAILED
    document = json.loads(came.stdout)
    assert [one["name"] for one in document["results"]] == ["softsync-made"]
    assert document["failed"] == [{"name": "softsync-failed", "error": "InputError: no such device"}]


def test_quick_and_seeds_reach_the_claims(claims: list[Claim]) -> None:
    seen: list[Effort] = []
    claims.append(made(lambda effort: seen.append(effort) or over_seeds([10.0])))  # type: ignore[func-returns-value]
    reproduce("--quick", "--seeds", 7, "--jobs", 2)
    assert seen == [Effort(quick=True, seeds=7, workers=2)]


def test_quick_writes_nothing_without_a_folder(
    claims: list[Claim], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    claims.append(made(lambda _: over_seeds([10.0])))
    assert reproduce("--quick").exit_code == 0
    assert not list(tmp_path.iterdir())
    assert reproduce().exit_code == 0
    assert {path.name for path in (tmp_path / "docs" / "results").iterdir()} == {"papers.json", "papers.md"}


# --- documents -------------------------------------------------------------------------------------------------------


def test_the_page_the_figures_and_the_document_show_the_same(claims: list[Claim], tmp_path: Path) -> None:
    curve = Curve(x="workers", y="speed-up", lines={"ours": [(1.0, 1.0), (2.0, 1.9)]}, published=2.0, log_x=True)
    claims.append(
        made(lambda _: replace(over_seeds([1.0]), reason="Too few links.", details=("A detail.",), curve=curve))
    )
    assert reproduce("--out", tmp_path).exit_code == 0
    (one,) = json.loads((tmp_path / "papers.json").read_text(encoding="utf-8"))["results"]
    text = (tmp_path / "papers.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(claim_row(one, one['claim']))} |" in text
    assert "Too few links. A detail." in text
    assert "![softsync-made](papers-softsync-made.png)" in text
    assert (tmp_path / "papers-softsync-made.png").stat().st_size > 1000


def test_a_run_of_some_claims_keeps_the_others(claims: list[Claim], tmp_path: Path) -> None:
    claims += [made(lambda _: over_seeds([10.0])), made(lambda _: over_seeds([9.0]), name="softsync-other")]
    assert reproduce("--out", tmp_path).exit_code == 0
    claims[0] = made(lambda _: over_seeds([11.0]))
    assert reproduce("softsync-made", "--out", tmp_path).exit_code == 0
    results = json.loads((tmp_path / "papers.json").read_text(encoding="utf-8"))["results"]
    assert [(one["name"], one["predicted"]) for one in results] == [("softsync-made", 11.0), ("softsync-other", 9.0)]


def test_a_stored_file_that_holds_no_results_is_refused(claims: list[Claim], tmp_path: Path) -> None:
    claims.append(made(lambda _: over_seeds([10.0])))
    (tmp_path / "papers.json").write_text("[]", encoding="utf-8")
    came = reproduce("--out", tmp_path)
    assert came.exit_code == EXIT_INPUT and "found no results" in came.stderr


def test_the_published_pages_are_those_of_the_published_document() -> None:
    """Every claim has a result of a full run with today's words, whose verdict follows from its interval."""
    results = json.loads((PUBLISHED / registry.FILE).read_text(encoding="utf-8"))["results"]
    Document.model_validate({"results": results})
    charts = {one["name"]: f"papers-{one['name']}.png" for one in results if one["curve"] is not None}
    for name, text in pages(results, charts).items():
        assert (PUBLISHED / name).read_text(encoding="utf-8") == text
    assert all((PUBLISHED / chart).is_file() for chart in charts.values())
    claims = registry.claims_named()
    assert [one["name"] for one in results] == [claim.name for claim in claims]
    for one, claim in zip(results, claims, strict=True):
        assert not one["quick"] and (one["verdict"] == "holds" or one["reason"]), claim.name
        assert (one["claim"], one["published"], one["unit"]) == (claim.sentence, claim.published, claim.unit)
        assert (one["section"], one["command"], one["holds_if"]) == (claim.section, claim.command, claim.holds_if)
        ours = Predicted(value=one["predicted"], low=one["low"], high=one["high"])
        found = all(rules.input_named(claim.paper, name).found for name in claim.inputs)
        assert [given["name"] for given in one["inputs"]] == list(claim.inputs)
        assert one["verdict"] == verdict_of(claim.published, ours, claim.holds_if, inputs_found=found), claim.name


def test_a_name_chooses_its_claim_or_all_that_begin_with_it() -> None:
    def names(*given: str) -> list[str]:
        return [claim.name for claim in registry.claims_named(given)]

    assert names("sc17-async-easgd") == ["sc17-async-easgd"]  # not sc17-async-easgd-own-rate
    assert len(names("sc17")) == 25 and len(names("digits-agd-delay", "digits-agd-delay-1")) == 6
    with pytest.raises(InputError, match="unknown name 'sc17-async-eas'"):
        names("sc17-async-eas")


def test_tables_of_method_pages_are_those_of_the_results() -> None:
    document = json.loads((PUBLISHED / registry.FILE).read_text(encoding="utf-8"))
    results = {one["name"]: one for one in document["results"]}
    methods = PUBLISHED.parent / "methods"
    page = (methods / "dbs-sgd.md").read_text(encoding="utf-8")
    rates = [one for name, one in results.items() if name.startswith("digits-dbs-rate-")]
    for one in rates:
        less, low, high = (f"{one[end]:+.4f}".replace("-", "−") for end in ("predicted", "low", "high"))
        assert f"| {less} | {low} to {high} |" in page, one["name"]
    page = (methods / "hsgd.md").read_text(encoding="utf-8")
    for detail in results["hsgd-features"]["details"][1:]:
        words, _, text = detail.rpartition(": ")
        cells = re.findall(r"\d[\d.]*\d|\d", text)
        if "images a step" in text:
            assert f"| {' | '.join(cells[:3])} |" in page, detail
        elif words:
            assert f"| {words} | {' | '.join(cells)} |" in page, detail
    assert len(rates) == 9 and page.count("\n| native: ") == 3
