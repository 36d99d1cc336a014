"""`paceline reproduce`: verdicts, inputs, the command and its documents, with claims that cost nothing."""

from __future__ import annotations

import json
import math
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
from paceline.papers.claim import Assertion, Claim, Curve, Effort, Given, Input, Kind
from paceline.papers.inference import infer
from paceline.papers.page import claim_row, pages
from paceline.papers.reproduce import Computation
from paceline.papers.runs import best_rate
from paceline.papers.verdicts import Case, asserted, judge, predicted, verdict_of
from paceline.scenarios import SHIPPED

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
QUICK = Effort(quick=True)


class InputDocument(BaseModel):
    """An input in the JSON answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    value: str
    provenance: str
    low: str | None
    high: str | None
    others: list[str]


class CaseDocument(BaseModel):
    """The figures with some inputs changed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    changed: dict[str, str]
    figures: list[float]


class ResultDocument(BaseModel):
    """A result in the JSON answer: the keys that users rely on, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    paper: str
    claim: str
    kind: Kind
    published: float | None
    predicted: float
    low: float
    high: float
    seeds_low: float
    seeds_high: float
    unit: str
    verdict: Literal["holds", "misses", "undecidable"]
    share: float
    below: float
    decides: str
    shares: dict[str, dict[str, float]]
    cases: list[CaseDocument]
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
    explained: list[str]
    curve: dict[str, Any] | None
    quick: bool


class Document(BaseModel):
    """The JSON answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    results: list[ResultDocument]


def made(figure: Callable[[Given], float] = lambda _: 10.0, **more: Any) -> Claim:
    """A claim that is computed in the test's own process."""
    claim = Claim(
        name="softsync-made", paper="softsync", section="table 1", sentence="it is 10", published=10.0, unit="s",
        hardware="one", model="none", batch="1", scenario="quickstart", command="paceline simulate quickstart",
        inputs=("learners",), holds_if="within 25 %", figure=figure, measured=True,
    )  # fmt: skip
    return replace(claim, **more)


def ranged(name: str, value: str, low: str, high: str) -> Input:
    return Input(name=name, value=value, low=low, high=high, provenance="ASSUMED")


def noise(given: Given) -> float:
    """A number between −1 and 1 that only the seed decides."""
    return math.sin(12.9898 * given.seed)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    """The claims of softsync, instead of its own; no other paper has any, and nothing is stored."""
    found: list[Claim] = []
    monkeypatch.setattr(registry, "claims_of", lambda paper: tuple(found) if paper == "softsync" else ())
    monkeypatch.setattr(registry, "STORE", None)
    return found


def reproduce(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "figure", "holds_if", "holds"),
    [
        (100.0, 75.0, "within 25 %", True),
        (100.0, 74.9, "within 25 %", False),
        (100.0, 125.1, "within 25 %", False),
        (-4.0, -5.0, "within 25 %", True),
        (-4.0, -5.1, "within 25 %", False),
        (2.0, 2.0, "at least", True),
        (2.0, 1.9, "at least", False),
        (2.0, 2.0, "at most", True),
        (2.0, 2.1, "at most", False),
        (None, 0.1, "positive", True),
        (None, 0.0, "positive", False),
        (None, -0.1, "negative", True),
        (None, 0.0, "negative", False),
        (None, 1.01, "order", True),
        (None, 1.0, "order", False),
        (0.0, 0.0, "equal", True),
        (0.0, 1e-9, "equal", False),
    ],
)
def test_a_certain_figure_holds_or_misses(
    published: float | None, figure: float, holds_if: Assertion, holds: bool
) -> None:
    claim = made(published=published, holds_if=holds_if, bounds=(-math.inf, math.inf), inputs=(), seeds=1)
    ours = judge(claim, [Case((), (figure,))], {})
    assert (ours.verdict, ours.share) == (("holds", 1.0) if holds else ("misses", 0.0))
    assert ours.low == ours.value == ours.high == figure


def test_an_assertion_about_a_figure_needs_one() -> None:
    with pytest.raises(ValueError, match="needs a published figure"):
        asserted(None, "at least")


def test_an_input_without_effect_decides_nothing() -> None:
    """However many plausible values do not matter, the share is that of the input that does."""
    inputs = {name: ranged(name, "2", "1", "3") for name in ("batch", "sigma", "link")}
    inputs["nodes"] = ranged("nodes", "1", "1", "2")
    claim = made(lambda given: 10.0 * given.number("nodes"), inputs=tuple(inputs), seeds=1)
    ours = predicted(claim, inputs, QUICK)
    assert (ours.share, ours.verdict, ours.decides) == (0.5, "undecidable", "nodes")
    assert ours.shares["nodes"] == {"1": 1.0, "2": 0.0} and set(ours.shares["batch"].values()) == {0.5}
    assert "nodes decides: 100% with 1, 0% with 2" in ours.reason


def test_effects_of_several_inputs_multiply() -> None:
    """Each alone stays within 25 %, both together do not: as all combinations show, too."""
    inputs = {name: ranged(name, "1", "1", "1.2") for name in ("one", "two")}
    claim = made(lambda given: 10 * given.number("one") * given.number("two"), inputs=tuple(inputs), seeds=1)
    added, all_of_them = (predicted(replace(claim, all_combinations=every), inputs, QUICK) for every in (False, True))
    assert added.share == all_of_them.share == 0.75
    assert added.high == pytest.approx(14.4) and all_of_them.high == pytest.approx(14.4)
    assert [len(ours.cases) for ours in (added, all_of_them)] == [3, 4]


def test_every_end_of_every_range_is_computed() -> None:
    seen = set()
    inputs = {"batch": ranged("batch", "64", "16", "256"), "chip": ranged("chip", "k80, two a board", "k80", "m40")}

    def figure(given: Given) -> float:
        seen.add((given.number("batch"), given.word("chip")))
        return 10.0

    predicted(made(figure, inputs=tuple(inputs), seeds=1), inputs, QUICK)
    assert seen == {(64.0, "k80"), (16.0, "k80"), (256.0, "k80"), (64.0, "m40")}


def test_every_other_reading_is_computed_and_counts_as_much() -> None:
    readings = {"server": 20.0, "ring": 1.0, "tree": 2.0, "process": 21.0}
    others = {"others": ("process for each node",)}
    native = ranged("native", "server, one of them", "ring", "tree").model_copy(update=others)
    ours = predicted(
        made(lambda given: readings[given.word("native")], inputs=("native",), seeds=1, published=20.0),
        {"native": native},
        QUICK,
    )
    assert ours.share == 0.5
    assert ours.shares["native"] == {
        "server, one of them": 1.0,
        "ring": 0.0,
        "tree": 0.0,
        "process for each node": 1.0,
    }


def test_a_figure_on_both_sides_of_the_published_one_is_undecidable() -> None:
    """However small the share within 25 % is; a figure that is always too large misses."""
    inputs = {"batch": ranged("batch", "1", "0.01", "100")}
    claim = made(lambda given: 20.0 * given.number("batch"), inputs=("batch",), seeds=1)
    both = predicted(claim, inputs, QUICK)
    assert (both.share, both.verdict) == (0.0, "undecidable") and both.below == pytest.approx(1 / 3)
    larger = predicted(replace(claim, published=0.1), inputs, QUICK)
    assert (larger.share, larger.below, larger.verdict) == (0.0, 0.0, "misses")


def test_chance_of_seeds_is_part_of_the_share() -> None:
    certain = predicted(made(lambda given: 12.4 + 0.01 * noise(given), inputs=()), {}, Effort())
    noisy = predicted(made(lambda given: 12.4 + 4.0 * noise(given), inputs=()), {}, Effort())
    assert certain.share > 0.99 > 0.9 > noisy.share > 0.1
    assert noisy.seeds_low < 12.4 < noisy.seeds_high and len(noisy.cases[0].figures) == 10


def test_seeds_are_paired_with_those_without_the_change() -> None:
    """The noise of a seed is the same with and without a change, so it does not hide that the change has no effect."""
    inputs = {"batch": ranged("batch", "2", "1", "3")}
    claim = made(lambda given: 10.0 * math.exp(noise(given)), inputs=("batch",))
    alone, changed = (predicted(replace(claim, inputs=names), inputs, Effort()) for names in ((), ("batch",)))
    assert changed.share == pytest.approx(alone.share, abs=0.01)


@pytest.mark.parametrize("figure", [math.nan, math.inf, -1.0])
def test_a_figure_is_finite_and_within_its_bounds(figure: float) -> None:
    with pytest.raises(ValueError, match="expected a finite figure from 0 to inf"):
        predicted(made(lambda _: figure, inputs=()), {}, QUICK)


def test_the_interval_ends_at_the_bounds() -> None:
    claim = made(lambda given: 99.0 + noise(given), inputs=(), bounds=(0.0, 100.0), published=99.0)
    ours = predicted(claim, {}, Effort(seeds=2))
    assert ours.high == ours.seeds_high == 100.0


def test_the_best_rate_is_found_from_any_start() -> None:
    rates = [0.1, 0.2, 0.4, 0.8, 1.6]
    for start in rates:
        assert best_rate(lambda rate: math.inf if rate > 1 else abs(rate - 0.4), rates, start) == 0.4
        assert best_rate(lambda _: math.inf, rates, start) == start


def test_a_target_that_no_rate_reaches_does_not_take_the_whole_grid() -> None:
    """The accuracy is highest at the fourth of ten rates."""
    rates, tried = [2.0**power for power in range(10)], []

    def cost(rate: float) -> tuple[float, float]:
        tried.append(rate)
        return math.inf, -0.9 + 0.1 * abs(math.log2(rate / 8.0))

    assert best_rate(cost, rates, 32.0) == 8.0
    assert sorted(tried) == [4.0, 8.0, 16.0, 32.0, 64.0]


# --- inputs ----------------------------------------------------------------------------------------------------------


def test_every_claim_has_a_scenario_and_inputs_with_a_provenance() -> None:
    for claim in registry.every_claim().values():
        assert claim.name.startswith(f"{claim.paper}-"), claim.name
        if claim.paper == "digits":  # each claim builds its own scenario, of which test_comparisons.py loads all
            continue
        assert claim.scenario in SHIPPED and claim.scenario in claim.command and claim.inputs, claim.name
        inputs = rules.inputs_of(claim.paper)
        assert dict(claim.given(inputs).values) == {name: inputs[name].value for name in claim.inputs}
        for name in claim.inputs:
            assert inputs[name].certain == inputs[name].provenance.startswith(rules.CERTAIN), name


def test_every_input_belongs_to_a_claim() -> None:
    for paper in registry.PAPERS:
        if (rules.FOLDER / f"{paper}.yaml").exists():
            used = {name for claim in registry.claims_of(paper) for name in claim.inputs}
            assert set(rules.inputs_of(paper)) == used, paper


def test_names_of_claims_are_unique_and_no_names_of_papers() -> None:
    names = [*registry.PAPERS, *(claim.name for paper in registry.PAPERS for claim in registry.claims_of(paper))]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{value: '1', provenance: guessed}", "expected it to start with FOUND"),
        ("{value: '1', provenance: ASSUMED}", "needs its plausible range"),
        ("{value: '1', provenance: MEMORY low, low: '0'}", "found one of them, expected both or none"),
        ("{value: '1', provenance: ASSUMED, low: '2', high: '2'}", "found '2' twice"),
        ("{value: '1', provenance: FOUND, others: ['2']}", "others: found without low and high"),
        ("{value: '1'}", "inputs.x.provenance: Field required"),
    ],
)
def test_a_wrong_input_is_refused(row: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "made.yaml").write_text(f"paper: made\ninputs: {{x: {row}}}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        rules.inputs_of("made", tmp_path)


def test_a_figure_can_only_use_inputs_that_its_claim_lists() -> None:
    with pytest.raises(InputError, match=r"no input 'learner' .* \(did you mean learners\?\)"):
        Given((("learners", "30"),))["learner"]
    with pytest.raises(InputError, match=r"inputs of softsync: no input 'learner' \(did you mean learners\?\)"):
        made(inputs=("learner",)).given(rules.inputs_of("softsync"))


def test_an_input_without_a_number_says_so() -> None:
    with pytest.raises(InputError, match="input 'batch': found 'many', expected a number first"):
        Given((("batch", "many"),)).number("batch")


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_answer_has_the_promised_keys(claims: list[Claim]) -> None:
    claims.append(made(lambda given: 10.0 + 0.01 * noise(given)))
    (one,) = Document.model_validate_json(reproduce("--quick", "--json").stdout).results
    assert (one.name, one.published, one.verdict, one.quick) == ("softsync-made", 10.0, "holds", True)
    assert one.predicted == pytest.approx(10.0, abs=0.1) and len(one.cases[0].figures) == 3
    assert one.inputs[0].name == "learners" and one.inputs[0].provenance.startswith("FOUND")


def test_a_miss_is_a_result_with_its_reason(claims: list[Claim]) -> None:
    claims.append(made(lambda given: 1.0 if given.word("stand-in") == "digits-mlp" else 1.5, inputs=("stand-in",)))
    came = reproduce("--quick")
    assert came.exit_code == 0
    said = " ".join(came.stdout.split())
    assert (
        "misses" in said and "0% of the plausible inputs agree. By changed input: 1.5 with stand-in digits-cnn." in said
    )


def test_unknown_names_are_all_told_with_the_nearest() -> None:
    came = reproduce("softsnyc", "icmla17-speedup")
    assert came.exit_code == EXIT_INPUT
    assert "unknown name 'softsnyc' (did you mean softsync?)" in came.stderr
    assert "unknown name 'icmla17-speedup' (did you mean icmla17-speed-up?)" in came.stderr


def test_a_failed_claim_is_reported_and_the_others_are_kept(claims: list[Claim]) -> None:
    def fail(_: Given) -> float:
        raise InputError("no such device")

    claims += [made(fail, name="softsync-failed"), made()]
    came = reproduce("--quick", "--json")
    assert came.exit_code == EXIT_FAILED
    document = json.loads(came.stdout)
    assert [one["name"] for one in document["results"]] == ["softsync-made"]
    assert document["failed"] == [{"name": "softsync-failed", "error": "InputError: no such device"}]


def test_an_error_of_the_program_in_one_claim_keeps_those_that_share_its_task(
    claims: list[Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(_: Given) -> float:
        return len(None)  # type: ignore[arg-type]

    claims += [made(wrong, name="softsync-wrong", shares="runs"), made(shares="runs")]
    monkeypatch.setattr(registry, "every_claim", lambda: {claim.name: claim for claim in claims})
    task = registry._Task(("softsync-wrong", "softsync-made"), Computation(QUICK), again=True)
    figures = registry._computed(task)
    assert isinstance(figures["softsync-made"], dict) and figures["softsync-made"]["predicted"] == pytest.approx(10.0)
    error = figures["softsync-wrong"]
    assert isinstance(error, str) and error.startswith("TypeError: object of type 'NoneType'"), error
    assert "(at test_papers.py, line " in error


def test_quick_and_seeds_reach_the_figures(claims: list[Claim]) -> None:
    seen: list[tuple[int, bool]] = []
    claims.append(made(lambda given: seen.append((given.seed, given.quick)) or 10.0))  # type: ignore[func-returns-value]
    reproduce("--quick", "--seeds", 7, "--jobs", 2)
    assert seen == [(seed, True) for seed in range(1, 8)]


def test_quick_writes_no_pages_without_a_folder(
    claims: list[Claim], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    claims.append(made())
    assert reproduce("--quick").exit_code == 0
    assert not list(tmp_path.iterdir())
    assert reproduce().exit_code == 0
    written = {path.name for path in (tmp_path / "docs" / "results").iterdir()}
    assert written == {"papers.json", "papers.md", "paper-softsync.md"}


def test_an_interrupted_command_continues(claims: list[Claim], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "STORE", tmp_path)
    computed: list[str] = []

    def figure(name: str) -> Callable[[Given], float]:
        def of(given: Given) -> float:
            if name == "second" and computed.count("second") == 0:
                computed.append(name)
                raise KeyboardInterrupt
            computed.append(name)
            return 10.0

        return of

    claims += [made(figure(name), name=f"softsync-{name}", seeds=1) for name in ("first", "second")]
    assert reproduce("--quick").exit_code != 0
    came = reproduce("--quick", "--json")
    assert came.exit_code == 0 and len(json.loads(came.stdout)["results"]) == 2
    assert computed == ["first", "second", "second"]
    reproduce("--quick", "--again")
    assert computed == ["first", "second", "second", "first", "second"]
    reproduce("--quick", "--seeds", 2)  # another effort is another result
    assert len(computed) == 7


def test_a_reader_who_knows_an_input_gets_a_new_verdict(claims: list[Claim], tmp_path: Path) -> None:
    claims.append(made(lambda given: 200.0 * given.number("jitter"), inputs=("jitter",), seeds=1))
    (before,) = json.loads(reproduce("--quick", "--json").stdout)["results"]
    assert before["verdict"] == "undecidable" and before["decides"] == "jitter"
    row = "{value: '0.05', provenance: FOUND in the paper}"
    (tmp_path / "softsync.yaml").write_text(f"paper: mine\ninputs: {{jitter: {row}}}\n", encoding="utf-8")
    (after,) = json.loads(reproduce("--quick", "--json", "--inputs", tmp_path).stdout)["results"]
    assert after["verdict"] == "holds" and after["low"] == after["high"] == 10.0


# --- inference -------------------------------------------------------------------------------------------------------


def test_inputs_are_inferred_from_all_figures_together(tmp_path: Path) -> None:
    """Two figures determine two inputs, and a third that no input explains contradicts most."""
    rows = {
        "batch": "{value: '64', provenance: ASSUMED, low: '16', high: '256'}",
        "chip": "{value: k80, provenance: ASSUMED, low: k80, high: m40}",
    }
    text = "\n".join(f"  {name}: {row}" for name, row in rows.items())
    (tmp_path / "softsync.yaml").write_text(f"paper: made\ninputs:\n{text}\n", encoding="utf-8")

    def figure(power: float) -> Callable[[Given], float]:
        return lambda given: given.number("batch") ** power * (3.0 if given.word("chip") == "m40" else 1.0)

    common: dict[str, Any] = {"inputs": ("batch", "chip"), "together": "times", "seeds": 1}
    tests = [made(figure(power), name=f"softsync-{power}", published=3.0 * 32.0**power, **common) for power in (1, 2)]
    tests.append(made(lambda _: 50.0, name="softsync-other", published=10.0, **common))
    computation = Computation(QUICK, inputs=tmp_path)
    (table,) = infer(tests, {claim.name: computation.result(claim) for claim in tests}, computation)
    inferred = {row.name: row.inferred for row in table.inputs}
    assert inferred["chip"] == "m40" and int(inferred["batch"]) == pytest.approx(32, abs=1)
    assert [abs(row.miss) < 0.1 for row in table.figures] == [True, True, False]
    assert table.contradicts.name == "softsync-other" and "2 of 3 figures are within 25 %" in table.sentence


def test_inferences_are_shown_apart_from_results(claims: list[Claim], tmp_path: Path) -> None:
    claims.append(made(lambda given: 200.0 * given.number("jitter"), inputs=("jitter",), together="times", seeds=1))
    came = reproduce("--infer", "--quick", "--out", tmp_path)
    assert came.exit_code == 0 and "An inference, not a result" in came.stdout
    page = (tmp_path / "paper-softsync.md").read_text(encoding="utf-8")
    assert "## Inputs that would make the figures true" in page and "**undecidable**" in page
    claims[0] = replace(claims[0], together="")
    came = reproduce("--infer", "--quick")
    assert came.exit_code == EXIT_INPUT and "no published figure that depends on unknown inputs" in came.stderr


def test_inferences_start_from_the_results_on_the_pages(claims: list[Claim], tmp_path: Path) -> None:
    """A result of the pages is computed again only if its inputs have changed since, or with `--again`."""
    computed: list[str] = []

    def figure(given: Given) -> float:
        computed.append(given["jitter"])
        return 200.0 * given.number("jitter")

    claims.append(made(figure, inputs=("jitter",), together="times", seeds=1))
    assert reproduce("--out", tmp_path).exit_code == 0 and len(computed) == 3

    def figures_of_inference(*arguments: object) -> int:
        before = len(computed)
        assert reproduce("--infer", "--out", tmp_path, *arguments).exit_code == 0
        return len(computed) - before

    assert figures_of_inference() == 1
    assert figures_of_inference("--again") == 4
    path = tmp_path / "papers.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"low": "0.01"', '"low": "0.02"'), encoding="utf-8")
    assert figures_of_inference() == 4


# --- documents -------------------------------------------------------------------------------------------------------


def test_the_page_the_charts_and_the_document_show_the_same(claims: list[Claim], tmp_path: Path) -> None:
    curve = Curve(
        x="workers", y="speed-up", lines={"ours": [(1.0, 1.0), (2.0, 1.9)]}, published=2.0, log_x=True,
        published_lines={"theirs": [(1.0, 1.0), (2.0, 1.7)]},
    )  # fmt: skip
    claims.append(made(lambda _: 1.0, explain=lambda _: ["Too few links."], curve=lambda _: curve))
    assert reproduce("--out", tmp_path).exit_code == 0
    (one,) = json.loads((tmp_path / "papers.json").read_text(encoding="utf-8"))["results"]
    text = (tmp_path / "paper-softsync.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(claim_row(one, one['claim']))} |" in text
    assert "Too few links." in text
    assert "![softsync-made](papers-softsync-made.png)" in text
    assert (tmp_path / "papers-softsync-made.png").stat().st_size > 1000
    assert "(paper-softsync.md) | 0 | 1 | 0 |" in (tmp_path / "papers.md").read_text(encoding="utf-8")


def test_a_run_of_some_claims_keeps_the_others(claims: list[Claim], tmp_path: Path) -> None:
    claims += [made(), made(lambda _: 9.0, name="softsync-other")]
    assert reproduce("--out", tmp_path).exit_code == 0
    claims[0] = made(lambda _: 11.0)
    assert reproduce("softsync-made", "--out", tmp_path).exit_code == 0
    results = json.loads((tmp_path / "papers.json").read_text(encoding="utf-8"))["results"]
    assert [(one["name"], round(one["predicted"], 6)) for one in results] == [
        ("softsync-made", 11.0),
        ("softsync-other", 9.0),
    ]


def test_a_stored_file_that_holds_no_results_is_refused(claims: list[Claim], tmp_path: Path) -> None:
    claims.append(made())
    (tmp_path / "papers.json").write_text("[]", encoding="utf-8")
    came = reproduce("--out", tmp_path)
    assert came.exit_code == EXIT_INPUT and "found no results" in came.stderr


def test_the_published_pages_are_those_of_the_published_document() -> None:
    """Results are of full runs with today's words, for all plausible inputs; claims without a result are named."""
    stored = json.loads((PUBLISHED / registry.FILE).read_text(encoding="utf-8"))
    results = stored["results"]
    Document.model_validate({"results": results})
    charts = {one["name"]: f"papers-{one['name']}.png" for one in results if one["curve"] is not None}
    for name, text in pages(results, charts, stored["inferences"]).items():
        assert (PUBLISHED / name).read_text(encoding="utf-8") == text
    assert all((PUBLISHED / chart).is_file() for chart in charts.values())
    claims = registry.every_claim()
    assert [one["name"] for one in results] == [name for name in claims if name in {one["name"] for one in results}]
    for one in results:
        claim = claims[one["name"]]
        assert not one["quick"] and one["verdict"] == verdict_of(one["share"], one["below"]), claim.name
        assert (one["claim"], one["kind"], one["published"]) == (claim.sentence, claim.kind, claim.published)
        assert (one["section"], one["command"], one["holds_if"]) == (claim.section, claim.command, claim.holds_if)
        assert [given["name"] for given in one["inputs"]] == list(claim.inputs)
        inputs = rules.inputs_of(claim.paper) if claim.inputs else {}
        for name in claim.inputs:
            computed = {case["changed"].get(name, inputs[name].value) for case in one["cases"]}
            assert computed == set(inputs[name].plausible), (claim.name, name)


def test_a_name_chooses_its_claim_or_all_that_begin_with_it() -> None:
    def names(*given: str) -> list[str]:
        return [claim.name for claim in registry.claims_named(given)]

    assert names("softsync-staleness-1") == ["softsync-staleness-1"]  # not softsync-staleness-15
    assert names("softsync-divergence", "softsync-divergence-15") == [
        "softsync-divergence-15",
        "softsync-divergence-30",
    ]
    assert not any(name.startswith("digits-") for name in names()) and names("digits")
    with pytest.raises(InputError, match="unknown name 'sc17-async-eas'"):
        names("sc17-async-eas")
