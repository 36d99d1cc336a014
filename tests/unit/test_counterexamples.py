"""Readable counterexamples: stories, sequence diagrams, files and replays."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from typer.testing import CliRunner

from paceline.algorithms import METHODS, find
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.method import Method
from paceline.checking.cases import Case, Times, Violation, performed, violations
from paceline.checking.cases.case import placed
from paceline.checking.cases.performing import unlike
from paceline.checking.counterexamples import (
    Sentence,
    Story,
    load_counterexample,
    replay,
    save,
    story,
    svg_diagram,
    text_diagram,
)
from paceline.checking.counterexamples.differing_values import _difference
from paceline.checking.counterexamples.sentences import recorded
from paceline.checking.counterexamples.story import Act
from paceline.cli.app import app
from paceline.reports.blocks import Claim, Table
from paceline.reports.check_answer import Told, blocks_of_run, blocks_of_story
from paceline.reports.check_result import save_with_diagram
from paceline.reports.html import html_of
from paceline.reports.text import as_text
from tests.thorough import FAMILIES, sampled

RUN = CliRunner()
METHODS_FILE = Path(__file__).parents[1] / "buggy_methods.py"


def case_of(name: str, **changes: Any) -> Case:
    """A case of a method of `tests/buggy_methods.py`, with two workers and one step."""
    method = find(f"{METHODS_FILE}:{name}")()
    return Case(**{"method": method, "nodes": (2,), "steps": 1, **changes})


def violation_of(case: Case) -> Violation:
    (first, *_) = violations(performed(case))
    return first


def told(name: str, **changes: Any) -> Story:
    return story(violation_of(case_of(name, **changes)))


def without_numbers(text: str) -> str:
    """Replaces the line numbers of programs, which change with every edit of the file."""
    return re.sub(r"\.py:\d+", ".py:N", text)


def line_of(code: str) -> int:
    """The number of the only line of the file with this code."""
    (number,) = (at for at, line in enumerate(METHODS_FILE.read_text().splitlines(), 1) if line.strip() == code)
    return number


# --- stories ---------------------------------------------------------------------------------------------------------

SKIPS_THE_MEAN = """\
1. rank 0 (worker), step 0: computes a gradient at version 0  [buggy_methods.py:N in worker]
2. rank 1 (worker), step 0: computes a gradient at version 0  [buggy_methods.py:N in worker]
3. rank 1 (worker), step 0: enters AllReduce 'gradient 0' (mean), in which rank 0 already waits: it completes  \
[buggy_methods.py:N in worker]
4. rank 0 (worker), step 0: applies update 0 with its gradient of step 0 from version 0 (staleness 0): \
weights[0] = 0.0605  [buggy_methods.py:N in worker]
5. rank 1 (worker), step 0: applies update 0 with its gradient of step 0 from version 0 (staleness 0): \
weights[0] = 0.068  [buggy_methods.py:N in worker]
first difference, when step 0 ends: weights[0]: rank 0 0.0605, rank 1 0.068
weights[0] at the end: rank 0 0.0605, rank 1 0.068
weights[1] at the end: rank 0 0.0719, rank 1 0.0758
weights[2] at the end: rank 0 0.0781, rank 1 0.0805
elements that differ: 8"""


def test_the_story_of_replicas_that_differ() -> None:
    found = told("SkipsTheMean")
    assert found.setting == "2 workers, 1 step of batch 4, seed 1, in any order."
    lines = [*(one.text for one in found.sentences), *(one.text for one in found.differences)]
    assert without_numbers("\n".join(lines)) == SKIPS_THE_MEAN


def test_values_have_the_digits_that_show_their_difference() -> None:
    first, second = np.array([0.3, 1.0]), np.array([0.1 + 0.2, 1.0])
    assert dict(_difference("weights[0]", {"here": first, "there": second}, 0).values) == {
        "here": "0.29999999999999999", "there": "0.30000000000000004",
    }  # fmt: skip


def test_program_lines_are_those_of_the_operations() -> None:
    collective = next(one for one in told("SkipsTheMean").sentences if one.act == "collective")
    code = 'mean = yield from AllReduce(value=gradient.vector, group=me.workers, key=f"gradient {step.number}")'
    assert collective.line == f"buggy_methods.py:{line_of(code)} in worker"


@pytest.mark.parametrize("times", [None, Times(compute_s=(1.0,))], ids=["any-order", "simulated"])
def test_a_deadlock_says_what_each_rank_waits_for_and_where(times: Times | None) -> None:
    found = told("BothReceiveFirst", times=times)
    number = line_of('message = yield from Receive(other, "weights")')
    line = f"buggy_methods.py:{number} in worker"
    assert found.guarantee == "no-deadlock"
    assert [(one.ranks, one.line) for one in found.sentences] == [((0,), line), ((1,), line)]
    assert found.sentences[0].words == "waits forever for a message from rank 1 with tag 'weights'"


@pytest.mark.parametrize("times", [None, Times(compute_s=(1.0,))], ids=["any-order", "simulated"])
def test_collectives_that_do_not_match_are_told_once(times: Times | None) -> None:
    found = told("CrossedBarriers", times=times)
    assert found.guarantee == "collectives-match"
    assert [one.words for one in found.sentences] == [
        "enters Barrier 'of rank 1', where rank 0 entered Barrier 'of rank 0': they do not match"
    ]


def test_an_exception_is_told_with_its_line() -> None:
    last = told("Fails", steps=2).sentences[-1]
    assert (last.ranks, last.step, last.words) == ((1,), 1, "raises KeyError: 'momentum'")
    number = line_of('raise KeyError("momentum")')
    assert last.line == f"buggy_methods.py:{number} in worker"


def test_the_story_of_a_stale_update_ends_with_it() -> None:
    found = told("NoBound", times=Times(compute_s=(1.0, 2.0)))
    last = found.sentences[-1]
    assert (found.guarantee, last.act, last.time_s) == ("bounded-staleness", "update", 2.0)
    assert last.words.endswith("rank 1's gradient of step 0 from version 0 (staleness 1), which violates the guarantee")
    assert [one.text for one in found.differences] == [
        "update 1, gradient of rank 1, step 0: computed at version 0, staleness 1, promised 0"
    ]


def test_a_sum_that_is_not_conserved_is_followed_through_the_run() -> None:
    found = told("RepliesAfterTheMove", gradients=False)
    assert found.guarantee == "conserves-sum"
    assert any("weights[0] = 2.2" in one.words for one in found.sentences)  # the centre after its first move
    assert found.differences[0].what == "weights[0] at the end"
    (before, after) = (float(value) for _, value in found.differences[0].values)
    assert before == 5.0  # 0 + 1 of the workers, 4 of the centre, by `begin`
    assert after != pytest.approx(before)


def test_messages_that_nobody_receives_are_listed() -> None:
    violation = Violation(guarantee="messages-read", words="an example", case=case_of("BothReceiveFirst"))
    assert story(violation).differences == ()
    unread = case_of("NeverReceives")
    assert "message 'hello' ('rank 0') of rank 0 to rank 1: received never" in [
        one.text for one in story(violation_of(unread)).differences
    ]


def test_a_long_story_leaves_out_its_middle() -> None:
    case = Case(method=find("easgd")(), nodes=(2,), steps=12)
    found = story(Violation(guarantee="example", words="nothing is wrong", case=case))
    assert len(found.sentences) == 120
    assert found.left_out > 0
    assert f"({found.left_out} sentences are left out)" in as_text(blocks_of_run(found), 80)
    assert f"({found.left_out} sentences are left out)" in text_diagram(found)
    assert found.sentences[-1].number == 120 + found.left_out


def small(method: Method) -> tuple[int, ...]:
    """The workers on the nodes of the smallest cluster that the method accepts."""
    return next(nodes for nodes in ((2,), (1, 1), (2, 2), (1,)) if not method.problems(placed(nodes)))


@pytest.mark.parametrize("name", sampled(METHODS, FAMILIES))
@pytest.mark.parametrize("times", [None, Times(compute_s=(1.0, 2.0, 0.5), latency_s=0.25)], ids=["any", "simulated"])
def test_recording_changes_nothing_and_every_story_can_be_drawn(name: str, times: Times | None) -> None:
    method = find(name)()
    stops, choices = ((), ()) if times is not None else ((1,), tuple(range(7, 150)))
    case = Case(method=method, nodes=small(method), steps=2, times=times, stops=stops, choices=choices)
    plain, (watched, _) = performed(case), recorded(case)
    assert plain.error is watched.error is None
    assert plain.trace.updates == watched.trace.updates
    assert plain.trace.spans == watched.trace.spans
    assert plain.trace.heard == watched.trace.heard
    assert unlike(plain, watched) is None
    found = story(Violation(guarantee="deterministic", words="an example", case=case))
    assert all(one.place for one in found.sentences if one.act not in ("state", "failure"))
    assert all(one.sent_in for one in found.sentences if one.act == "receive")
    assert max(map(len, text_diagram(found).splitlines())) <= 80
    ET.fromstring(svg_diagram(found))
    if times is not None:
        seconds = [one.time_s for one in found.sentences if one.time_s is not None]
        assert seconds == sorted(seconds)


# --- diagrams --------------------------------------------------------------------------------------------------------

DIAGRAM = """\
                   rank 0 worker       rank 1 worker       rank 2 server
                   │                   │                   │
   1-2        1 s  │──────────────── Push ────────────────▶│
     3        1 s  │                   │                   ■ update 0
   4-5        1 s  │◀───────────── weights v1 ─────────────│
   6-7        2 s  │                   │────── Push ──────▶│
     8        2 s  │                   │                   ✗ update 1"""


def test_the_text_diagram() -> None:
    assert text_diagram(told("NoBound", times=Times(compute_s=(1.0, 2.0)))) == DIAGRAM


def test_narrow_columns_keep_receivers_and_values() -> None:
    def sentence(number: int, rank: int, act: Act, label: str, to: tuple[int, ...] = ()) -> Sentence:
        return Sentence(number=number, ranks=(rank,), words="", act=act, label=label, to=to)

    sentences = (
        sentence(1, 0, "send", "a message with a very long name", (2,)),
        sentence(2, 1, "update", "update 10, w[0] = 0.123456"),
        sentence(3, 2, "start", "a label that is too long for its column"),
    )
    ranks = ((0, "worker"), (1, "worker"), (2, "server"))
    drawn = Story(method="m", guarantee="g", words="", setting="", ranks=ranks, sentences=sentences)
    rows = [row.strip() for row in text_diagram(drawn).splitlines()[2:]]
    assert rows[0].startswith("1  ○ a message with … to 2 │")
    assert "■ w[0] = 0.123456" in rows[1] and "update" not in rows[1]
    assert rows[2].endswith("+ a label that is too …")


def test_a_collective_is_a_box_over_its_members() -> None:
    rows = text_diagram(told("SkipsTheMean")).splitlines()
    (box,) = (row for row in rows if "╞" in row)
    assert box.strip().startswith("3 ") and "AllReduce gradient 0" in box and box.endswith("╡")


def test_too_many_ranks_for_text() -> None:
    case = Case(method=find("sync-sgd")(), nodes=(12,), steps=1)
    assert text_diagram(story(Violation(guarantee="example", words="", case=case))) == (
        "12 ranks do not fit in 80 columns; the SVG diagram shows them."
    )


def test_the_svg_needs_no_other_files_and_follows_the_readers_mode() -> None:
    drawing = svg_diagram(told("NoBound", times=Times(compute_s=(1.0, 2.0))))
    root = ET.fromstring(drawing)
    texts = [text for element in root.iter() if (text := (element.text or "").strip())]
    assert "prefers-color-scheme: dark" in drawing
    assert not re.search(r"href|url\(|<script|@import", drawing)
    assert {"rank 2 (server)", "Push", "update 1", "2 s"} <= set(texts)
    tall = float(root.attrib["height"])
    assert all(0 <= float(one.attrib["y"]) <= tall for one in root.iter() if "y" in one.attrib)


def test_nothing_is_cut_off_on_the_right_of_the_svg() -> None:
    words = "what was found is said in so many words that they need more than one line of the drawing, " * 2
    failure = Sentence(number=1, ranks=(), words=words, act="failure")
    drawn = Story(method="m", guarantee="g", words=words, setting=words, ranks=((0, "worker"),), sentences=(failure,))
    root = ET.fromstring(svg_diagram(drawn))
    wide = float(root.attrib["width"])
    ends = [
        float(one.attrib["x"]) + len(one.text or "") * (7.2 if one.attrib["class"] == "head" else 6.6)
        for one in root.iter()
        if one.tag.endswith("}text") and one.attrib.get("text-anchor") is None
    ]
    assert len(ends) > 5 and max(ends) <= wide


def test_an_arrow_crosses_other_ranks_in_the_row_of_its_receipt() -> None:
    def sentence(number: int, rank: int, act: Act, **more: Any) -> Sentence:
        return Sentence(number=number, ranks=(rank,), words="", act=act, label="m", **more)

    between = sentence(2, 1, "compute")
    sentences = (sentence(1, 0, "send", to=(2,)), between, sentence(3, 2, "receive", sent_in=(0, 1)))
    ranks = ((0, "worker"), (1, "worker"), (2, "server"))
    drawn = Story(method="m", guarantee="g", words="", setting="", ranks=ranks, sentences=sentences)
    root = ET.fromstring(svg_diagram(drawn))
    marks = [one for one in root.iter() if one.tag.endswith("}circle")]
    (arrow,) = [one for one in root.iter() if one.tag.endswith("}polyline")]
    begin, bend, end = (tuple(map(float, point.split(","))) for point in arrow.attrib["points"].split())
    assert begin == (float(marks[0].attrib["cx"]), float(marks[0].attrib["cy"]))
    assert bend[0] < float(marks[1].attrib["cx"]) and bend[1] == end[1] > float(marks[1].attrib["cy"])


def test_words_are_escaped_in_svg() -> None:
    sentence = Sentence(number=1, ranks=(0,), role="worker", words="sends <a> & 'b'", act="compute", label="<a> & b")
    drawn = Story(method="m", guarantee="g", words="1 < 2", setting="", ranks=((0, "worker"),), sentences=(sentence,))
    ET.fromstring(svg_diagram(drawn))


# --- files and replays -----------------------------------------------------------------------------------------------


def test_a_file_contains_the_case_and_the_story(tmp_path: Path) -> None:
    violation, path = violation_of(case_of("SkipsTheMean")), tmp_path / "new" / "found.json"
    written = save(violation, path)
    stored = load_counterexample(path)
    assert stored.violation == violation
    assert stored.story == written == story(violation)
    units = stored.fingerprint["tests/buggy_methods.py"]
    assert {"SkipsTheMean", "SkipsTheMean.worker"} <= set(units)
    assert not any(name.startswith("algorithms/core") for name in stored.fingerprint)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("SkipsTheMean", {}),
        ("BothReceiveFirst", {}),
        ("NoBound", {"times": Times(compute_s=(1.0, 2.0), latency_s=0.5)}),
        ("RepliesAfterTheMove", {"gradients": False}),
        ("Fails", {"steps": 2}),
    ],
)
def test_a_replay_finds_the_same_violation(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    written = save(violation_of(case_of(name, **changes)), path)
    again = replay(load_counterexample(path))
    assert again.same
    assert again.story == written
    assert (again.changed, again.others) == ((), ())
    assert again.words.endswith("the program is the same")


def test_a_replay_says_which_function_has_changed(tmp_path: Path) -> None:
    source = tmp_path / "my_file.py"
    shutil.copy(METHODS_FILE, source)
    path = tmp_path / "found.json"
    case = dataclasses.replace(case_of("SkipsTheMean"), method=find(f"{source}:SkipsTheMean")())
    save(violation_of(case), path)
    wrong = "used = gradient.vector if me.rank == 1 else mean"
    text = source.read_text().replace(wrong, "used = mean").replace('"""Synchronous', '# a comment\n    """Synchronous')
    source.write_text(text)
    done = in_new_process(path)
    assert done.returncode == 0, done.stderr
    assert " ".join(done.stdout.split()) == (
        "replicas-equal is kept now; it was violated: at the end rank 1 holds other weights than rank 0 "
        "the program has changed: my_file.py, SkipsTheMean.worker"
    )


def in_new_process(path: Path, *before: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command that replays a file."""
    command = [sys.executable, *before, "-m", "paceline", "check", "--replay", path.name]
    return subprocess.run(command, input=typed, capture_output=True, text=True, check=False, cwd=path.parent)


def test_a_breakpoint_in_the_program_is_hit_under_pdb(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    save(violation_of(case_of("SkipsTheMean")), path)
    line = line_of("used = gradient.vector if me.rank == 1 else mean")
    typed = f"b {METHODS_FILE}:{line}\nc\np 'rank', me.rank\nc\np 'rank', me.rank\nq\n"
    done = in_new_process(path, "-m", "pdb", typed=typed)
    assert "('rank', 0)" in done.stdout
    assert "('rank', 1)" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    """An edit of the JSON object in a file."""

    def edit(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda text: text[:100], ["line ", "column "]),
        (lambda _: "[]", ["found [], expected a counterexample"]),
        (lambda _: "{}", ["format: found nothing, expected 'paceline counterexample'"]),
        (edited(lambda it: it.update(version=9)), ["version: found 9, expected 1"]),
        (edited(lambda it: it.pop("words")), ["words: found nothing, expected text"]),
        (edited(lambda it: it["case"].update(steps="two")), ["steps: found 'two', expected a whole number"]),
        (edited(lambda it: it["case"].update(method="easgdd")), ["unknown method 'easgdd' (did you mean easgd?)"]),
        (edited(lambda it: it["story"].pop("setting")), ["story.setting: missing"]),
        (edited(lambda it: it["story"]["sentences"][0].update(act="flies")), ["story.sentences[0].act: found 'flies'"]),
        (edited(lambda it: it.update(fingerprint=[])), ["fingerprint: found [], expected an object"]),
        (
            edited(lambda it: (it.update(guarantee=3), it["case"].update(steps=-1))),
            ["guarantee: found 3, expected text", "steps: found -1, expected 0 or more"],
        ),
    ],
)
def test_mistakes_in_a_file_are_told(edit: Callable[[str], str], words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    save(Violation(guarantee="example", words="x", case=Case(method=find("easgd")(), nodes=(1,), steps=1)), path)
    path.write_text(edit(path.read_text()))
    with pytest.raises(InputError) as caught:
        load_counterexample(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert all(any(part in line for line in lines) for part in words)


def test_a_missing_file_and_binary_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_counterexample(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="expected a counterexample"):
        load_counterexample(tmp_path / "binary.json")


# --- the terminal ----------------------------------------------------------------------------------------------------


def test_a_counterexample_fits_a_terminal_and_is_the_same_in_html(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("counterexamples/found.json")
    timed = {"times": Times(compute_s=(1.0, 2.0), latency_s=0.25)}
    for name, changes in (("SkipsTheMean", {}), ("NoBound", timed)):
        found = Told(save_with_diagram(violation_of(case_of(name, **changes)), path), path)
        assert path.is_file() and path.with_suffix(".svg").is_file()
        blocks = blocks_of_story(found)
        printed, html = as_text(blocks, 80), unescape(html_of(blocks))
        assert (
            max(map(len, printed.splitlines())) <= 80
            and "paceline check --replay counterexamples/found.json" in printed
        )
        for table in (block for block in blocks if isinstance(block, Table)):
            assert html.count(f"<caption>{table.title}</caption>") == 1 and "continued" not in printed
            for row, column in itertools.product(range(len(table.rows)), range(len(table.columns))):
                assert table.text(row, column) in html
        assert text_diagram(found.story) in printed and text_diagram(found.story) in html


def test_a_failure_is_marked_and_a_story_has_no_file_before_it_is_stored() -> None:
    blocks = blocks_of_story(Told(told("Fails", steps=2)))
    (sentences,) = (block for block in blocks if isinstance(block, Table))
    assert sentences.rows[-1][1].tone == "bad" and sentences.rows[0][1].tone == "plain"
    assert isinstance(blocks[-1], Claim) and "`save` of the result" in blocks[-1].text


def test_the_exit_status_and_the_json_of_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    save(violation_of(case_of("SkipsTheMean")), path)
    done = RUN.invoke(app, ["check", "--replay", str(path), "--json"])
    answer = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (answer["guarantee"], answer["same"], answer["changed"]) == ("replicas-equal", True, [])
    assert answer["story"]["sentences"] and answer["path"] == str(path)
    case = Case(method=find("easgd")(), nodes=(1,), steps=1)
    save(Violation(guarantee="round-robin", words="an example", case=case), path)
    done = RUN.invoke(app, ["check", "--replay", str(path)])
    assert done.exit_code == 0 and "round-robin is kept now; it was violated: an example" in done.stdout


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "paceline", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("paceline ")


# --- the page --------------------------------------------------------------------------------------------------------

WHOLE = (Path(__file__).parents[2] / "docs/check.md").read_text(encoding="utf-8")
PAGE = WHOLE.partition("## Output and counterexamples")[2].partition("## A guarantee of your own")[0]


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_the_command_prints_and_its_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (method_source, in_python), (printed, after) = examples("python"), examples("text")
    Path("my_file.py").write_text(method_source, encoding="utf-8")
    violation = violation_of(Case(method=find("my_file.py:Clipped")(), nodes=(2,), steps=1))
    path = Path("counterexamples/clipped-replicas-equal.json")
    shown = blocks_of_story(Told(save_with_diagram(violation, path), path))
    assert as_text(shown, 80).splitlines() == printed.splitlines()
    stop = int(re.findall(r"b my_file.py:(\d+)", PAGE)[0])
    assert "abs(gradient.vector).max()" in method_source.splitlines()[stop - 1]
    exec(in_python, {})
    assert capsys.readouterr().out.endswith("the program is the same\n")
    ET.parse("again.svg")
    wrong = "if abs(gradient.vector).max()"
    Path("my_file.py").write_text(method_source.replace(wrong, "if abs(mean).max()"), encoding="utf-8")
    assert in_new_process(tmp_path / path).stdout.split() == after.split()
