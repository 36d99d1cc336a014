"""The answer of `check`, and its report: the verdicts, and the story and diagram of each counterexample."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.checking.cases.worst_values import Measured
from paceline.checking.counterexamples import Counterexample, svg_diagram
from paceline.checking.counterexamples.diagrams_as_svg import DARK, LIGHT, RULES, STYLE
from paceline.checking.counterexamples.story_model import Story
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
from paceline.reports.comparison.words import listed
from paceline.reports.provenance import versions_section

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
