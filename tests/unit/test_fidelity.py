"""`paceline fidelity`: settings, run lengths, rows, resuming, summaries, the answer, and the table of machines.

Nothing is launched, besides one real run at the end: a fake `compare` makes runs whose errors are visible.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from paceline.algorithms.core.errors import InputError, RunFailed
from paceline.backend.posix import network_namespaces
from paceline.backend.posix.network_namespaces import NoHosts
from paceline.cli.app import app
from paceline.reports.comparison.comparison import ComparisonResult, assemble
from paceline.validation.fidelity import collecting, page, settings, study, summary
from paceline.validation.fidelity import rows as values
from paceline.validation.fidelity.rows import CORRECTED, OURS, Document, Errors, Machine, Measured, Row
from paceline.validation.fidelity.run_lengths import LONGEST_S, SHORTEST_S, Finished, Times
from paceline.validation.fidelity.settings import COMPLETE, GROUPS, Setting
from paceline.validation.fidelity.summary import Sizes
from paceline.validation.fidelity.wide_mlp import wide_mlp
from tests.made_up import run

MODELS = ("no_message_cost", "no_spread", "alpha_beta")
SMALL = Setting("paced, small", "digits-mlp", ((2, 20),), 24, 2, ("sync-sgd", "agd"))
OTHER = Setting("unpaced, other", "digits-mlp", ((2, 20),), 24, 2, ("sync-sgd",), paced=False)
MACHINE = Machine(
    processor="P, fast", cores=2, memory_bytes=8 * 10**9, system="Linux", kernel="6.8.0-45", architecture="x86_64",
    versions={"paceline": "1", "python": "3.11", "torch": "2.6", "numpy": "2"},
)  # fmt: skip


# --- settings ---------------------------------------------------------------------------------------------------------


def test_there_are_enough_configurations_of_every_kind() -> None:
    configurations = [(setting, method) for setting in COMPLETE for method in setting.methods]
    assert len(configurations) >= 100 and len({setting.name for setting in COMPLETE}) == len(COMPLETE)
    assert len({method for _, method in configurations}) >= 10
    assert {setting.model for setting in COMPLETE} == {"digits-mlp", "digits-cnn", "wide-mlp"}
    assert {setting.workers for setting in COMPLETE} == {1, 2, 3, 4, 6}
    assert any(len({step_ms for _, step_ms in setting.nodes}) > 1 for setting in COMPLETE), "unequal devices"


def test_each_group_has_ten_methods_in_one_setting() -> None:
    methods = Counter[str]()
    for setting in COMPLETE:
        group = setting.group(2)
        methods[group] = max(methods[group], len(setting.methods))
    assert {group for group, most in methods.items() if most >= 10} == set(GROUPS)


@pytest.mark.parametrize("setting", COMPLETE, ids=lambda setting: setting.name)
def test_every_scenario_is_valid(setting: Setting) -> None:
    scenario = setting.scenario(seeds=2, length=3)
    assert tuple(method.name for method in scenario.algorithms) == setting.methods
    assert scenario.seeds == 2 and scenario.train.pace == ("device" if setting.paced else "none")
    assert scenario.stop.epochs == 3 * setting.epochs


def test_a_longer_run_learns_at_a_lower_rate() -> None:
    short, long = (SMALL.scenario(length=length) for length in (1, 4))
    rates = [cast("Any", scenario.algorithms[0]).learning_rate for scenario in (short, long)]
    assert rates[0] == pytest.approx(4 * rates[1])


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_groups_depend_on_the_cores(cores: int) -> None:
    local = [setting for setting in COMPLETE if not setting.paced and setting.link is None]
    beyond = {setting.name for setting in local if setting.workers > cores}
    assert {each.name for each in settings.in_groups(COMPLETE, cores, ["unpaced-beyond-cores"])} == beyond
    assert settings.in_groups(COMPLETE, cores, []) == COMPLETE


def test_the_standard_set_has_a_setting_within_and_beyond_the_cores_of_any_machine() -> None:
    for cores in (2, 4, 8):
        groups = Counter(setting.group(cores) for setting in settings.standard_settings(cores))
        assert groups == {"unpaced-within-cores": 2, "unpaced-beyond-cores": 2, "paced": 1, "emulated": 1}
    many = {setting.group(64) for setting in settings.standard_settings(64)}
    assert many == {"unpaced-within-cores", "paced", "emulated"}, "128 ranks would only start"
    for standard, quick in zip(settings.standard_settings(2), settings.quick_settings(2), strict=True):
        assert quick.methods and {*quick.methods} <= {*standard.methods}


def test_unknown_groups_are_all_named() -> None:
    with pytest.raises(InputError, match=r"'pace' \(did you mean paced\?\)") as error:
        settings.groups_named(["pace", "emulated", "order"])
    assert len(str(error.value).splitlines()) == 2


def test_the_third_model_has_about_200_000_weights() -> None:
    assert sum(weights.numel() for weights in wide_mlp().parameters()) == 197_482


# --- lengths of runs --------------------------------------------------------------------------------------------------


def test_runs_fill_the_time_that_is_left() -> None:
    times, wanted = Times(cores=2, seeds=2), settings.standard_settings(2)
    run_s = times.affordable_s(wanted, 1500.0)
    assert SHORTEST_S < run_s < LONGEST_S
    assert sum(times.seconds(setting, run_s) for setting in wanted) == pytest.approx(1500.0, rel=0.15)
    longer = replace(times, seeds=1).affordable_s(wanted, 1500.0)
    assert longer > run_s, "fewer runs are longer"


def test_finished_settings_correct_the_guesses() -> None:
    """Steps take twice as long as guessed, so runs of equal time have half the length; the rest takes as long again."""
    setting = settings.standard_settings(2)[0]
    usual = Times(cores=2, seeds=1)
    real_s = 2 * usual.run_s(setting, 6)
    expected = Finished(setting, 10, 6, real_s, seconds=1.0)
    factor = Times.of([expected], 2, 1).factor
    times = Times.of([replace(expected, seconds=2 / factor)], 2, 1)
    assert times.slower == pytest.approx(2.0) and times.factor == pytest.approx(2.0)
    assert times.length(setting, usual.run_s(setting, 6)) == 3
    assert times.length(SMALL, 10.0) == 1, "the devices give the time of a paced run"


# --- rows and statistics ----------------------------------------------------------------------------------------------


def compared(*names: str, seeds: int = 1) -> ComparisonResult:
    """Predicts steps 10 % too long, and 20, 30 and 40 % by the simpler models; one update is staler than predicted."""
    numbers = range(1, seeds + 1)
    wrong = dict(zip(MODELS, (1.2, 1.3, 1.4), strict=True))
    return assemble(
        "tiny",
        simulated=[run(name, step_s=1.1, seed=seed) for name in names for seed in numbers],
        measured=[run(name, "measured", lags=(0, 1, 1, 1), seed=seed) for name in names for seed in numbers],
        wrong={
            model: [run(name, step_s=s, seed=seed) for name in names for seed in numbers] for model, s in wrong.items()
        },
        other_load=0.25,
    )


def row(method: str = "sync-sgd", **known: Any) -> Row:
    usual = {
        "setting": "tiny", "group": "paced", "model": "digits-mlp", "workers": 2, "batch": 24, "seeds": 2, "length": 1,
        "run_s": 4.0, "step_predicted_s": 0.011, "step_measured_s": 0.01, "errors": {OURS: Errors(0.1, 0.0, 0.25)},
    }  # fmt: skip
    return Row(method=method, **{**usual, **known})


def timed(method: str, predicted_s: float | None, *measured_s: float | None, **errors: float) -> Row:
    """A row with a time to accuracy: the predicted one, and the measured ones by seed."""
    mean_s = None if None in measured_s else sum(measured_s) / len(measured_s)  # type: ignore[arg-type]
    error = None if mean_s is None or predicted_s is None else predicted_s / mean_s - 1
    simpler = {model: Errors(time=value) for model, value in errors.items()}
    return row(
        method, time_predicted_s=predicted_s, time_measured_s=mean_s, times_measured_s=measured_s,
        errors={OURS: Errors(0.1, error), **simpler},
    )  # fmt: skip


NAMES = {
    "setting": "tiny", "group": "paced", "method": "sync-sgd", "model": "digits-mlp", "workers": 2, "batch": 24,
    "seeds": 2, "length": 1,
}  # fmt: skip


def test_a_row_has_the_errors_of_all_models() -> None:
    made = values.row_of(compared("sync-sgd", seeds=2).lines[0], NAMES)
    assert [made.error(model).step for model in (OURS, *MODELS)] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert made.error().staleness == pytest.approx(0.25)
    assert (made.time_predicted_s, made.time_measured_s, made.error().time) == (2.0, 2.0, 0.0)
    assert made.times_measured_s == (2.0, 2.0) and made.run_s == pytest.approx(4.0)
    assert made.share_points == pytest.approx(0.0)
    assert made.within is None and made.machine_change is None and made.error(CORRECTED) == Errors(), "none is known"
    known = replace(compared("sync-sgd", seeds=2).lines[0], machine_change=0.12, within=0.5)
    known = replace(known, corrected=known.wrong_models["no_spread"])
    made = values.row_of(known, NAMES)
    assert (made.machine_change, made.within) == (0.12, 0.5)
    assert made.error(CORRECTED).step == pytest.approx(0.3)


def test_sizes_are_those_of_absolute_values() -> None:
    assert Sizes.of([-0.1 * number for number in range(11)]) == Sizes(11, 0.5, 0.9, 1.0)
    assert Sizes.of([None]) is None


def test_the_order_of_methods() -> None:
    """Of ten pairs of a to e, c and d are in the wrong order: τ = (9 − 1) / 10; f comes after all and is predicted so.

    Seeds distinguish a, b and c from each other, and f, which no seed brought to the target, from all that reached it.
    """
    rows = [
        timed("a", 1.0, 0.9, 1.1, alpha_beta=4.0), timed("b", 2.0, 2.0, 2.2), timed("c", 4.0, 3.0, 3.2),
        timed("d", 3.5, 3.1, 3.8), timed("e", 5.0, 4.5, 9.0), timed("f", None, None, None),
    ]  # fmt: skip
    pairs = list(summary.pairs_of(rows))
    assert len(pairs) == 15 and summary.tau(pairs) == pytest.approx((14 - 1) / 15)
    apart = {(pair.sooner.method, pair.later.method) for pair in pairs if pair.apart}
    assert {("a", "b"), ("b", "f"), ("e", "f")} <= apart and ("c", "d") not in apart
    assert summary.tau([pair for pair in pairs if pair.apart]) == 1.0
    assert summary.tau(pairs, "alpha_beta") is None, "no pair of two known times"
    (wrong,) = page._wrong_pairs(rows).rows
    assert wrong[:3] == ("tiny", "c", "d") and wrong[3] > 0 > wrong[4] and wrong[-1] is False


def test_one_seed_distinguishes_nothing_and_settings_are_not_mixed() -> None:
    rows = [timed("a", 1.0, 1.0), timed("b", 2.0, 2.0), replace(timed("a", 3.0, 3.0), setting="other")]
    pairs = list(summary.pairs_of(rows))
    assert [(pair.sooner.method, pair.later.method, pair.apart) for pair in pairs] == [("a", "b", False)]
    assert list(summary.pairs_of([timed("a", 1.0, None), timed("b", 2.0, None)])) == []


def test_a_group_has_the_sizes_of_each_prediction_and_the_share_inside() -> None:
    rows = [
        row("a", within=1.0, errors={OURS: Errors(0.1), CORRECTED: Errors(-0.02)}),
        row("b", within=0.5, errors={OURS: Errors(-0.3), "alpha_beta": Errors(0.1)}),
        row("c", group="emulated"),
    ]
    paced, emulated = summary.by_group(rows)
    assert (paced.group, paced.n, paced.within, paced.intervals) == ("paced", 2, 0.75, 4)
    assert paced.step[OURS].mean == pytest.approx(0.2) and paced.step[CORRECTED].worst == pytest.approx(0.02)
    assert paced.better == ["alpha_beta"] and emulated.better == []
    assert (emulated.group, emulated.within, emulated.n) == ("emulated", None, 1)
    assert [(each.group, each.method) for each in summary.by_method(rows)] == [
        ("paced", "a"), ("paced", "b"), ("emulated", "c"),
    ]  # fmt: skip


# --- the study --------------------------------------------------------------------------------------------------------


class Fake:
    """Counts comparisons instead of making them; those with a method in `failing` fail, `interrupted` ones end it."""

    def __init__(self, *failing: str, interrupted: str = "") -> None:
        self.compared: list[str] = []
        self.failing, self.interrupted = failing, interrupted
        self.seconds = 0.0

    def compare(self, scenario: Any, *, stage: Any, keep: Any) -> ComparisonResult:
        names = [method.name for method in scenario.algorithms]
        stage("measuring")("sync-sgd", 0.5)
        keep(run(names[0]))
        self.seconds += 100.0
        if {*names} & {*self.failing}:
            raise RunFailed("rank 1 died")
        if self.interrupted == scenario.name:
            raise KeyboardInterrupt
        self.compared.append(scenario.name)
        return compared(*names, seeds=scenario.seeds)

    def study(self, folder: Path, *wanted: Setting, **known: Any) -> study.Study:
        usual = {"seeds": 1, "minutes": None, "cores": 2, "compare": self.compare, "clock": lambda: self.seconds}
        return study.Study(folder=folder, settings=wanted or (SMALL, OTHER), **{**usual, **known})


def test_a_second_start_makes_what_is_missing(tmp_path: Path) -> None:
    first, said = Fake("agd"), list[str]()
    made = first.study(tmp_path, note=said.append)
    made.run()
    assert made.failures == ["paced, small"] and said == ["failed: paced, small: rank 1 died"]
    assert first.compared == ["unpaced-other"]
    second = Fake()
    second.study(tmp_path).run()
    assert second.compared == ["paced-small"]
    third = Fake()
    third.study(tmp_path).run()
    assert third.compared == []
    third.study(tmp_path, seeds=2).run()
    assert third.compared == ["paced-small", "unpaced-other"], "one seed is not enough"
    document = study.stored(tmp_path)
    assert [(each.setting, each.seeds, each.other_load) for each in document.measured] == [
        ("paced, small", 2, 0.25), ("unpaced, other", 2, 0.25),
    ]  # fmt: skip
    assert [each.method for each in document.rows] == ["sync-sgd", "agd", "sync-sgd"]
    fewer = Fake()
    fewer.study(tmp_path, replace(SMALL, methods=("agd",))).run()
    assert fewer.compared == [], "a part of what is there"
    fewer.study(tmp_path, OTHER).run(again=True)
    assert fewer.compared == ["unpaced-other"]


def test_an_interrupted_setting_is_made_again_and_leaves_no_half_files(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as interrupt:
        Fake(interrupted="unpaced-other").study(tmp_path).run()
    assert any("the same command continues" in note for note in interrupt.value.__notes__)
    assert [path.name for path in (tmp_path / "settings").iterdir()] == ["paced-small.json"]
    left = list((tmp_path / "runs" / "unpaced-other").iterdir())
    again = Fake()
    again.study(tmp_path).run()
    assert again.compared == ["unpaced-other"]
    assert len(list((tmp_path / "runs" / "unpaced-other").iterdir())) == len(left) == 1, "its runs were made anew"


def test_progress_says_what_is_left_and_no_setting_begins_in_overtime(tmp_path: Path) -> None:
    texts, shares, said = list[str](), list[float](), list[str]()

    def report(text: str, share: float) -> None:
        texts.append(text)
        shares.append(share)

    made = Fake().study(tmp_path, minutes=1.0, report=report, note=said.append)
    made.run()
    assert "setting 1 of 2, paced, small: measuring: sync-sgd; about " in texts[1] and texts[1].endswith(" left")
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert said == ["note: the time is over; another start continues with 1 settings: unpaced, other"]
    assert [each.setting for each in study.stored(tmp_path).measured] == ["paced, small"]


def test_the_time_that_is_left_grows_with_a_setting_that_is_late() -> None:
    now_s, texts = [0.0], list[str]()
    progress = study._Progress(lambda text, _: texts.append(text), lambda: now_s[0], "a", 0.0, [100.0, 300.0])
    for now_s[0] in (0.0, 60.0, 200.0):
        progress.tell("measuring")
    left = [text.partition("; about ")[2] for text in texts]
    assert left == ["7 min left", "6 min left", "11 min left"], "400 s, 340 s, and 0.2 · 200 s + 2 · 300 s"


def test_a_file_that_is_no_setting_is_named(tmp_path: Path) -> None:
    Fake().study(tmp_path, OTHER).run()
    (path,) = (tmp_path / "settings").iterdir()
    text = json.loads(path.read_text())
    del text["rows"][0]["run_s"]
    path.write_text(json.dumps(text))
    with pytest.raises(InputError, match=r"unpaced-other\.json: rows\.0\.run_s: .*expected a setting"):
        study.stored(tmp_path)
    path.write_text("{")
    with pytest.raises(InputError, match="found no JSON"):
        study.stored(tmp_path)


def test_rows_of_another_commit_or_machine_are_noted() -> None:
    ours = measured("a", machine=values.this_machine(), commit=values.commit())
    assert study.notes_on(Document(measured=(ours,))) == []
    other, older = study.notes_on(Document(measured=(ours, measured("b"))))
    assert "P, fast, 2 cores" in other and "0123456" in older and values.commit() in older


# --- the answer and the file ------------------------------------------------------------------------------------------


def measured(setting: str = "tiny", rows: Iterable[Row] = (), **known: Any) -> Measured:
    usual = {
        "methods": ("sync-sgd",), "seeds": 2, "seconds": 60.0, "other_load": 0.01, "steal": 0.02, "date": "2026-01-01",
        "commit": "0123456", "machine": MACHINE, "rows": tuple(rows) or (row(setting=setting),),
    }  # fmt: skip
    return Measured(setting=setting, **{**usual, **known})


def written(folder: Path, document: Document, name: str = "fidelity.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(page.document_of(document)))
    return path


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = [timed("a", 1.0, 0.9, 1.1, alpha_beta=0.5), timed("b", None, None, 2.0)]
    document = Document(measured=(measured("tiny", rows), measured("other", steal=0.5)))
    path = written(tmp_path, document)
    assert values.read_document(path) == document
    plain = json.loads(path.read_text())
    assert plain["machine"]["processor"] == "P, fast" and plain["load"]["steal_worst"] == 0.5
    (group,) = plain["groups"]
    assert group["step"][OURS]["mean"] == pytest.approx(0.1) and group["pairs"] == 1
    path.write_text(json.dumps({**plain, "format": 2}))
    with pytest.raises(InputError, match="found format 2"):
        values.read_document(path)


def test_a_file_that_is_sent_in_does_not_identify_its_machine(tmp_path: Path) -> None:
    import getpass
    import platform

    Fake().study(tmp_path, OTHER).run()
    text = json.dumps(page.document_of(study.stored(tmp_path)))
    assert str(tmp_path) not in text and str(Path.home()) not in text
    words = {platform.node(), getpass.getuser()} - {"", "root", "localhost"}
    assert not [word for word in words if f'"{word}' in text]


def test_the_answer_states_errors_aims_simpler_models_and_disturbances() -> None:
    rows = [row("a", errors={OURS: Errors(0.1), CORRECTED: Errors(0.01), "alpha_beta": Errors(-0.05)})]
    answer = page.answer_of(Document(measured=(measured("tiny", rows, other_load=0.3), measured("quiet", rows))))
    assert "a mean error of 10 %, above the aim of 3 %; 1 % without the change" in answer.words
    assert "simpler and better: α–β model" in answer.words
    assert "more than 5 % of it in 1 of 2 settings, up to 30 %" in answer.words
    quiet = page.answer_of(Document(measured=(measured("tiny", [row("a", errors={OURS: Errors(0.02)})]),)))
    assert "within the aim" in quiet.words and "Other programs used at most 1 %" in quiet.words
    assert "step_mean" in answer.csv().splitlines()[0]
    assert [section.id for section in answer.sections()] == ["methods", "order", "configurations", "machine"]


def test_groups_can_be_chosen() -> None:
    document = Document(measured=(measured("a"), measured("b", [row(group="emulated", setting="b")])))
    assert [each.setting for each in document.of_groups(["emulated"]).measured] == ["b"]
    assert document.of_groups([]) == document


# --- machines ---------------------------------------------------------------------------------------------------------


def test_a_page_has_a_row_for_each_machine(tmp_path: Path) -> None:
    slower = replace(MACHINE, processor="S", cores=1)
    files = [
        written(tmp_path, Document(measured=(measured(),)), "fast.json"),
        written(tmp_path, Document(measured=(measured("b", [row(group="emulated")], machine=slower),)), "slow.json"),
    ]
    own = tmp_path / "page.md"
    own.write_text(f"before\n\n{collecting.BEGIN}\nold\n{collecting.END}\n\nafter\n")
    collecting.put_into(own, collecting.read_all(files))
    text = own.read_text()
    assert text.startswith("before\n\n<!--") and text.endswith("-->\n\nafter\n") and "old" not in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 4 and lines[2].startswith("| P, fast, 2 cores | 8 GB |") and "| S, 1 core |" in lines[3]
    assert "paced: mean, %" in lines[0] and "emulated: mean, %" in lines[0] and "unpaced" not in lines[0]
    own.write_text("no place")
    with pytest.raises(InputError, match="found no lines"):
        collecting.put_into(own, collecting.read_all(files))


def test_the_table_of_the_documentation_is_that_of_its_files(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    if not (results := root / "docs" / "results").exists():
        pytest.skip("needs the repository")
    text = (results / "fidelity.md").read_text()
    assert text.count(collecting.BEGIN) == text.count(collecting.END) == 1
    own = tmp_path / "fidelity.md"
    own.write_text(text)
    if files := sorted((results / "machines").glob("*.json")):
        collecting.put_into(own, collecting.read_all(files))
    assert own.read_text() == text, "run `make machines`"


# --- the command ------------------------------------------------------------------------------------------------------


def called(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["fidelity", *map(str, arguments)])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Replaces `compare` for the command."""
    made = Fake()
    monkeypatch.setitem(cast("Any", study.Study.__init__).__kwdefaults__, "compare", made.compare)
    return made


def test_the_command_writes_a_report_and_a_file(tmp_path: Path, fake: Fake) -> None:
    result = called("--quick", "--only", "paced", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert fake.compared == ["paced-two-kinds-of-device"]
    assert json.loads(result.stdout) == json.loads((tmp_path / "fidelity.json").read_text())
    assert "Error of the step time" in (tmp_path / "fidelity.html").read_text()
    assert "to send in" in result.stderr
    again = called("--tables", "--out", tmp_path)
    assert again.exit_code == 0 and "Staleness, time to accuracy" in again.stdout and len(fake.compared) == 1
    other = called("--quick", "--only", "emulated-unpaced", "--out", tmp_path)
    assert other.exit_code == 1 and "has no finished setting" in other.stderr, "none of that group is in the quick set"
    listed = called("--list", "--quick", "--only", "paced", "--out", tmp_path, "--json")
    assert [each["finished"] for each in json.loads(listed.stdout)["settings"]] == [True]


def test_a_failure_is_said_after_the_answer(tmp_path: Path, fake: Fake) -> None:
    fake.failing = ("k-sync",)
    result = called("--only", "paced", "--out", tmp_path)
    assert result.exit_code == 1 and "has no finished setting; failed: paced, two kinds of device" in result.stderr


def test_without_root_emulated_networks_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NoHosts("needs root")

    monkeypatch.setattr(network_namespaces, "refuse", refuse)
    result = called("--list", "--complete", "--out", tmp_path, "--json")
    assert "left out: 4 settings on an emulated network: needs root" in result.stderr
    assert not [each for each in json.loads(result.stdout)["settings"] if "emulated" in each["setting"]]


def test_mistakes_are_said_together(tmp_path: Path) -> None:
    result = called("--quick", "--complete", "--list", "--tables", tmp_path / "a.json", "--page", tmp_path / "a.md")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 4 and "without --collect" in result.stderr
    assert called("--collect").exit_code == 2
    assert called("--tables", "--out", tmp_path).exit_code == 1


def test_files_are_collected(tmp_path: Path) -> None:
    file = written(tmp_path, Document(measured=(measured(),)))
    result = called("--collect", file, "--json")
    assert result.exit_code == 0 and len(json.loads(result.stdout)["machines"]) == 1
    own = tmp_path / "page.md"
    own.write_text(f"{collecting.BEGIN}\n{collecting.END}\n")
    assert called("--collect", file, "--page", own).exit_code == 0 and "P, fast, 2 cores" in own.read_text()
    file.write_text("{}")
    assert "expected a fidelity.json" in called("--collect", file).stderr


@pytest.mark.backend
@pytest.mark.slow
@pytest.mark.thorough
def test_a_setting_is_predicted_and_measured(tmp_path: Path) -> None:
    made = study.Study(folder=tmp_path, settings=[replace(OTHER, epochs=1)], seeds=1, minutes=1.0, cores=2)
    made.run()
    (found,) = study.stored(tmp_path).rows
    assert found.step_measured_s > 0 and found.error().staleness == 0.0, "sync-sgd is deterministic"
    assert found.error().step == pytest.approx(found.step_predicted_s / found.step_measured_s - 1)
    kinds = {path.name.split("-")[-2] for path in (tmp_path / "runs" / "unpaced-other").iterdir()}
    assert kinds == {"simulated", "measured"}
