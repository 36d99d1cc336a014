"""`check`, its result and its report: the verdicts, and the story and diagram of each counterexample."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from rich.table import Table as Grid
from rich.text import Text

from paceline.algorithms import METHODS, reference
from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.files import write_whole
from paceline.algorithms.core.method import Method
from paceline.algorithms.registry import built
from paceline.checking.cases import Checked, Effort, Verdict, Violation, check_method, to_json
from paceline.checking.cases.all_orders import check_all_orders
from paceline.checking.cases.worst_values import Measured
from paceline.checking.counterexamples import Counterexample, svg_diagram, text_diagram
from paceline.checking.counterexamples.diagrams_as_svg import DARK, LIGHT, RULES, STYLE
from paceline.checking.counterexamples.story_model import Story
from paceline.checking.defaults import (
    EVERY_ORDER_MOST,
    EVERY_ORDER_STEPS,
    EVERY_ORDER_WORKERS,
    SCHEDULES,
    STEPS,
    WORKERS,
)
from paceline.records.figures import COUNT, SECONDS
from paceline.reports.blocks import (
    Answer,
    Axis,
    Block,
    Cell,
    Chart,
    Claim,
    Column,
    Picture,
    Plot,
    Section,
    Series,
    Table,
    Tone,
)
from paceline.reports.provenance import versions_section
from paceline.reports.result import Result
from paceline.reports.words import listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from paceline.checking.counterexamples import Counterexample, Replayed, Story
    from paceline.reports.blocks import Answer

ALL = "all"
Checkable = str | Method | type[Method]
"""a method: its name, ``path/to/file.py:Class``, its class, or an object with hyper-parameters"""


class CheckResult(Result, Sequence[Checked]):
    """What `paceline.check` returns: the verdicts of each method, in a sequence.

    >>> import paceline
    >>> found = paceline.check("sync-sgd", schedules=20)
    >>> found.holds, found[0].verdicts["synchronous"].verdict
    (True, 'holds')
    """

    def __init__(self, checked: Sequence[Checked]) -> None:
        self._checked = tuple(checked)

    @overload
    def __getitem__(self, index: int) -> Checked: ...

    @overload
    def __getitem__(self, index: slice) -> CheckResult: ...

    def __getitem__(self, index: int | slice) -> Checked | CheckResult:
        return CheckResult(self._checked[index]) if isinstance(index, slice) else self._checked[index]

    def __len__(self) -> int:
        return len(self._checked)

    @property
    def holds(self) -> bool:
        """Whether no guarantee of any method was violated."""
        return not self.violated

    @property
    def violated(self) -> list[tuple[str, Verdict]]:
        """The violated guarantees, each with the name of its method."""
        return [(one.method.name, verdict) for one in self for verdict in one.violated]

    def frame(self) -> pd.DataFrame:
        """Returns a row for each method and guarantee: the verdict, the schedules, the worst value and its bound."""
        import pandas as pd

        return pd.DataFrame(
            {
                "method": one.method.name,
                "guarantee": verdict.guarantee,
                "verdict": verdict.verdict,
                "schedules": verdict.schedules,
                "checked_s": verdict.seconds,
                "quantity": None if verdict.worst is None else verdict.worst.quantity,
                "worst": None if verdict.worst is None else verdict.worst.value,
                "bound": None if verdict.worst is None else verdict.worst.bound,
                "violation": None if verdict.violation is None else verdict.violation.words,
            }
            for one in self
            for verdict in one.verdicts.values()
        )

    def plot(self) -> Figure:
        """Draws the verdict on each guarantee of each method."""
        from paceline.reports.png import figure_of

        return figure_of([verdicts_chart([check_document(checked, {}) for checked in self])])

    def save(self, folder: str | Path = "counterexamples") -> list[Path]:
        """Writes each counterexample as ``METHOD-GUARANTEE.json``, for ``check --replay``, and its diagram as .svg.

        Args:
            folder: the folder, which is created; earlier files of the same names are replaced.

        Returns:
            The JSON files.
        """
        written = []
        for method, verdict in self.violated:
            assert verdict.violation is not None, "that is what violated means"
            _, (file, _) = write_files(verdict.violation, Path(folder), f"{method}-{verdict.guarantee}")
            written.append(file)
        return written

    def answer(self) -> Answer:
        """Returns the answer of the command: a table for each method, and a sentence for each violation."""

        return answer_of_check(
            [check_document(checked, {}) for checked in self],
            self._counterexamples,
            names=[checked.method.name for checked in self],
            remarks=[remarks(checked) for checked in self],
        )

    def _counterexamples(self) -> list[Counterexample]:
        from paceline.checking.counterexamples import load_counterexample

        with tempfile.TemporaryDirectory() as folder:
            return [load_counterexample(path) for path in self.save(folder)]

    @property
    def _report_name(self) -> str:
        return f"{self[0].method.name}-check.html" if len(self) == 1 else "check.html"


def remarks(checked: Checked) -> list[str]:
    """Returns sentences about how far the search for a violation reached.

    Args:
        checked: a method with its verdicts.
    """
    said = [str(explored) for explored in getattr(checked, "explored", ())]
    said += [f"worst found by directed search: {measured}" for measured, _ in checked.extremes.values()]
    return [*said, *checked.coverage]


def write_files(violation: Violation, folder: Path, name: str) -> tuple[Story, tuple[Path, Path]]:
    """Writes the counterexample ``NAME.json`` and its diagram ``NAME.svg``.

    Args:
        violation: the violated guarantee and its case, which is run once.
        folder: the folder, which is created.
        name: of both files.

    Returns:
        The story, and both paths.
    """
    from paceline.checking.counterexamples import save, svg_diagram

    path = folder / f"{name}.json"
    story = save(violation, path)
    picture = path.with_suffix(".svg")
    write_whole(picture, svg_diagram(story))
    return story, (path, picture)


def check_document(found: Checked, files: Mapping[str, Path]) -> dict[str, Any]:
    """Returns the JSON answer for one method.

    Args:
        found: the verdicts.
        files: the files of counterexamples by guarantee.
    """
    return {
        "algorithm": reference(type(found.method)),
        "schedules": found.schedules,
        "seconds": found.seconds,
        "guarantees": [
            {
                "name": one.guarantee,
                "description": one.words,
                "verdict": one.verdict,
                "schedules": one.schedules,
                "seconds": one.seconds,
                "worst": None if one.worst is None else asdict(one.worst),
                "words": None if one.violation is None else one.violation.words,
                "counterexample": str(files[one.guarantee]) if one.guarantee in files else None,
            }
            for one in found.verdicts.values()
        ],
        "hyper_parameters": {name: [str(one) for one in values] for name, values in found.hyper_parameters.items()},
        "not_checked": [{"name": name, "needs": needs} for name, needs in found.not_checked.items()],
        "extremes": [{**asdict(measured), "case": to_json(case)} for measured, case in found.extremes.values()],
        "explored": [asdict(one) for one in getattr(found, "explored", ())],
    }


def check(
    methods: Checkable | Sequence[Checkable],
    *,
    schedules: int | None = None,
    seconds: float | None = None,
    workers: int | None = None,
    steps: int | None = None,
    seed: int = 1,
    exhaustive: bool = False,
    deaths: bool = False,
    same_as: Checkable | None = None,
    progress: Callable[[str, float], Any] = lambda *_: None,
    report: Callable[[Violation], Any] = lambda _: None,
) -> CheckResult:
    """Searches for schedules under which methods break a guarantee.

    Args:
        methods: one method or several: names, classes, or methods with their hyper-parameters; ``"all"``: all built-in
            ones.
        schedules: schedules to try for each method; default: 1000, or 100000 for each number of workers if exhaustive.
        seconds: time limit for each method, in seconds; None: none.
        workers: largest number of workers; default: 4, or 2 if exhaustive.
        steps: steps of a worker, at most; default: 6, or exactly 2 if exhaustive.
        seed: of the random schedules.
        exhaustive: whether every inequivalent order of a small cluster is tried instead of random schedules.
        deaths: if exhaustive: whether in each order a worker also dies at each of its operations.
        same_as: a method that is to end with the same weights; one that is not deterministic is compared with one
            worker only. None: none.
        progress: called with what is done and the completed share of one method.
        report: called with the first violation of each guarantee as soon as it is found.

    Returns:
        The verdicts; `CheckResult.save` writes the counterexamples.

    Raises:
        InputError: a method is not known or cannot be created; with all mistakes.

    >>> import paceline
    >>> paceline.check("agd", schedules=20).holds
    True
    """
    if deaths and not exhaustive:
        raise InputError("deaths: found it without exhaustive; random schedules contain deaths without this argument")
    effort = Effort(
        schedules=schedules or (EVERY_ORDER_MOST if exhaustive else SCHEDULES),
        seconds=seconds,
        workers=workers or (EVERY_ORDER_WORKERS if exhaustive else WORKERS),
        steps=steps or (EVERY_ORDER_STEPS if exhaustive else STEPS),
        seed=seed,
        same_as=None if same_as is None else methods_of(same_as)[0],
    )
    found = [
        check_all_orders(method, effort, progress, report, deaths=deaths)
        if exhaustive
        else check_method(method, effort, progress, report)
        for method in methods_of(methods)
    ]
    return CheckResult(found)


def methods_of(given: Checkable | Sequence[Checkable]) -> list[Method]:
    """Returns methods with their hyper-parameters; those given by name or class have the defaults.

    Args:
        given: one method or several.

    Raises:
        InputError: with all mistakes.

    >>> [method.name for method in methods_of(["agd", METHODS["ssp"]])]
    ['agd', 'ssp']
    """
    several = [given] if isinstance(given, str | Method | type) else list(given)
    every: list[Checkable] = [one for each in several for one in (METHODS if each == ALL else [each])]
    found: list[Method] = []
    said: list[str] = [] if every else ["methods: found none, expected the name of a method, a class, or all"]
    for one in every:
        try:
            found.append(_method(one))
        except InputError as error:
            said.append(str(error))
        except Exception as error:  # of any kind: the constructor of a user's method
            said.append(f"method {one!r} cannot be created with its defaults: {type(error).__name__}: {error}")
    if said:
        raise InputError("\n".join(said))
    return found


def _method(one: object) -> Method:
    if isinstance(one, Method):
        return one
    if isinstance(one, str):
        return built(one)
    if isinstance(one, type) and issubclass(one, Method):
        return one()
    raise InputError(f"methods: found {one!r:.60}, expected a name, a class derived from Method, or a method")


SCOPE, DARK_SCOPE = ".picture", ':root[data-theme="dark"] .picture'
"""where the styles of a diagram apply"""
RULE = re.compile(r"\s*([^{}]+?)\s*(\{[^{}]*\})")
TONES: Mapping[str, Tone] = {"violated": "bad", "not checked": "faint"}
"""of verdicts"""

MEANING = (
    "`paceline check` runs a method under many schedules: orders of messages, speeds, delays and stops. A guarantee is "
    "a statement that must hold under all of them. A counterexample is a schedule under which one does not hold, "
    "reduced to the fewest ranks and steps."
)
Document = Mapping[str, Any]
"""the JSON document of ``paceline check`` for one method"""


def answer_of_check(
    documents: Sequence[Document],
    counterexamples: Callable[[], Sequence[Counterexample]] = tuple,
    names: Sequence[str] = (),
    remarks: Sequence[Sequence[str]] = (),
) -> Answer:
    """Returns the answer about checked methods.

    Args:
        documents: the JSON document of each method; empty if they were not stored.
        counterexamples: returns the counterexamples.
        names: the name of each method; by default those of the documents.
        remarks: what was tried of each method, in sentences.
    """
    stories = [] if documents else list(counterexamples())
    names = names or [document["algorithm"] for document in documents] or [one.story.method for one in stories]
    blocks: list[Block] = []
    violations = [_violation(one) for one in stories]
    for at, document in enumerate(documents):
        blocks += blocks_of_method(document, names[at], remarks[at] if remarks else ())
        violations += [
            f"{names[at]} violates {guarantee['name']}: {guarantee['words']}"
            for guarantee in document["guarantees"]
            if guarantee["words"]
        ]
    count = len(violations)
    if not count:
        blocks.append(Claim("No counterexample was found. This does not prove that there is none."))
    return Answer(
        title=f"Check of {listed(list(dict.fromkeys(names)))}",
        blocks=[*blocks, *map(Claim, violations)],
        data=lambda: documents[0] if len(documents) == 1 else {"results": list(documents)},
        subtitle=f"{count or 'no'} counterexample{'s' * (count != 1)}",
        summary=lambda: [
            Claim(MEANING), *([verdicts_chart(documents)] if len(documents) > 1 else []), *_descriptions(documents),
        ],
        sections=lambda: [
            *(_section(one, number) for number, one in enumerate(counterexamples(), start=1)), versions_section(),
        ],
    )  # fmt: skip


def blocks_of_method(document: Document, name: str, remarks: Sequence[str] = ()) -> list[Block]:
    """Returns the verdicts of one method, and how far the search reached.

    Args:
        document: its JSON document.
        name: its name.
        remarks: what was tried, in sentences.
    """
    return [verdicts_table(document, name), *map(Claim, remarks)]


def _descriptions(documents: Sequence[Document]) -> list[Table]:
    """Returns the table of what each guarantee says, if there are guarantees."""
    said = {one["name"]: one["description"] for document in documents for one in document["guarantees"]}
    return [Table("Guarantees", [Column("guarantee"), Column("what it says")], list(said.items()))] if said else []


def verdicts_table(document: Document, name: str = "") -> Table:
    """Returns the table of the verdicts on the guarantees of a method.

    Args:
        document: its JSON document.
        name: its name; by default that of the document.
    """
    columns = [
        Column("guarantee"), Column("verdict"), Column("schedules", COUNT), Column("time", SECONDS, code="checked_s"),
        Column("worst value"),
    ]  # fmt: skip
    rows = [
        (
            guarantee["name"],
            Cell(guarantee["verdict"], tone=TONES.get(guarantee["verdict"], "plain")),
            guarantee["schedules"],
            guarantee["seconds"],
            "" if guarantee["worst"] is None else str(Measured(**guarantee["worst"])),
        )
        for guarantee in document["guarantees"]
    ]
    taken = SECONDS.with_symbol(document["seconds"])
    return Table(f"{name or document['algorithm']}: {document['schedules']:,} schedules in {taken}", columns, rows)


def verdicts_chart(documents: Sequence[Document]) -> Chart:
    """Returns the chart of the verdicts: a row for each guarantee, a column for each method.

    Args:
        documents: the JSON document of each method.
    """
    found = [(one["algorithm"], each["name"], each["verdict"]) for one in documents for each in one["guarantees"]]
    guarantees = list(dict.fromkeys(name for _, name, _ in found))
    series = []
    for verdict, colour in (("holds", ""), ("violated", ""), ("not checked", "faint")):
        places = [(method, name) for method, name, one in found if one == verdict]
        if places:
            methods, names = zip(*places, strict=True)
            series.append(Series(verdict, methods, names, "points", colour=colour))
    x = Axis("method; empty: not promised", scale="category", ticks=[one["algorithm"] for one in documents])
    y = Axis("", scale="category", ticks=guarantees[::-1])
    return Chart(
        title=f"Verdicts after {sum(one['schedules'] for one in documents):,} schedules",
        words="A point for each guarantee of each method.",
        alt="Verdicts by guarantee and method; the tables below have the same content.",
        plots={"": Plot(x, y, series, colours=["holds", "violated"])},
        height=140 + 26 * len(guarantees),
    )


def _violation(one: Counterexample) -> str:
    return f"{one.story.method} violates {one.story.guarantee}: {one.story.first_words}"


def _section(one: Counterexample, number: int) -> Section:
    story = one.story
    picture = Picture(
        title="The messages of the run",
        words="Time runs downwards; each column is a rank, each arrow a message, each box a collective. The numbers "
        "are those of the story.",
        alt=f"Sequence diagram of {len(story.ranks)} ranks and {len(story.sentences)} actions; the story below has "
        "the same content.",
        svg=scoped(svg_diagram(story)),
    )
    values = [_values(story)] if story.differences else []
    blocks: list[Block] = [Claim(_violation(one)), Claim(story.setting), picture, _story(story), *values, _again(one)]
    return Section(f"counterexample-{number}", f"{story.method}: {story.guarantee}", blocks)


def scoped(svg: str) -> str:
    """Restricts the styles of a diagram to the picture, and lets its colours follow the theme of the page.

    The role of an image and its text are those of the element around it.

    Args:
        svg: a diagram of `svg_diagram`.
    """
    light, dark = (_prefixed(RULES.format(**colours), place) for colours, place in ((LIGHT, SCOPE), (DARK, DARK_SCOPE)))
    fonts = _prefixed(STYLE.partition(RULES.format(**LIGHT))[0], SCOPE)
    assert STYLE in svg, "a diagram has the common styles"
    return svg.replace(' role="img"', "").replace(STYLE, f"\n{fonts}\n{light}\n{dark}\n")


def _prefixed(rules: str, place: str) -> str:
    return RULE.sub(
        lambda rule: ", ".join(f"{place} {part.strip()}" for part in rule[1].split(",")) + rule[2] + "\n", rules
    )


def _story(story: Story) -> Table:
    timed = any(sentence.time_s is not None for sentence in story.sentences)
    rows: list[list[Any]] = []
    for sentence in story.sentences:
        rows.append([sentence.number, *[sentence.time_s] * timed, sentence.subject, sentence.words, sentence.line])
        if story.left_out and sentence.number == story.left_out_after:
            rows.append([Cell(None, words=" "), *[Cell(None, words=" ")] * timed, "", story.gap, ""])
    columns = [
        Column("", COUNT), *[Column("time", SECONDS)] * timed, Column("who"), Column("does what"),
        Column("program line"),
    ]  # fmt: skip
    return Table("The story, step by step", columns, rows)


def _values(story: Story) -> Table:
    names = list(dict.fromkeys(name for one in story.differences for name, _ in one.values))
    rows = [[one.what, *(dict(one.values).get(name, "") for name in names)] for one in story.differences]
    return Table("Values at the end", [Column(""), *(Column(name or "value") for name in names)], rows)


def _again(one: Counterexample) -> Table:
    rows = [
        ("run it again", f"`paceline check --replay {one.path.name}`"),
        ("in a debugger", f"`python -m pdb -m paceline check --replay {one.path.name}`"),
        ("found by", f"Paceline {one.paceline}"),
    ]
    return Table("How to see it yourself", [Column(""), Column("")], rows)


def story_parts(story: Story, files: Sequence[Path] = ()) -> list[RenderableType]:
    """Returns what a terminal shows of a story: sentences, diagram, values and files.

    Args:
        story: the story.
        files: the files that contain it; the first one can be replayed.
    """
    parts: list[RenderableType] = [_title(story), Text(story.setting), "", _sentences(story), ""]
    parts.append(Text(text_diagram(story), no_wrap=True, overflow="crop"))
    if story.differences:
        parts += ["", Text("Values", style="bold"), *(Text(f"  {one.text}") for one in story.differences)]
    if files:
        parts += ["", Text(f"written to {', '.join(map(str, files))}; run it again with:")]
        parts.append(Text(f"  paceline check --replay {files[0]}", no_wrap=True))
    return parts


def _title(story: Story) -> Text:
    title = Text(f"{story.method} violates ", style="bold")
    return title.append(story.guarantee, style="bold red").append(f": {story.first_words}", style="not bold")


def _sentences(story: Story) -> Grid:
    timed = any(sentence.time_s is not None for sentence in story.sentences)
    table = Grid(box=None, pad_edge=False, padding=(0, 1), show_header=False)
    table.add_column(justify="right", style="dim", no_wrap=True)
    if timed:
        table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for sentence in story.sentences:
        words = Text(f"{sentence.subject}: ").append(
            sentence.words, style="red" if sentence.label.startswith("✗") else ""
        )
        times = ["" if sentence.time_s is None else f"{sentence.time_s:g} s"] * timed
        table.add_row(f"{sentence.number}.", *times, words, Text(sentence.line))
        if story.left_out and sentence.number == story.left_out_after:
            table.add_row("", *[""] * timed, Text(story.gap, style="dim"), "")
    return table


def replay_document(path: Path, replayed: Replayed) -> dict[str, Any]:
    """Returns the JSON answer for a counterexample that was run again.

    Args:
        path: its file.
        replayed: what happened.
    """
    return {
        "path": str(path),
        "guarantee": replayed.counterexample.violation.guarantee,
        "violated": replayed.violation is not None,
        "same": replayed.same,
        "words": replayed.words,
        "changed": list(replayed.changed),
        "others": [{"guarantee": other.guarantee, "words": other.words} for other in replayed.others],
        "story": None if replayed.story is None else asdict(replayed.story),
    }
