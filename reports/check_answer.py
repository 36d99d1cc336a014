"""The answer of `check`: the verdicts on the guarantees of methods, what was tried, and the counterexamples.

A counterexample is a part of the answer: a terminal prints its blocks below the verdicts, a report has a tab for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from paceline.checking.counterexamples import Counterexample, ReplayedCase, svg_diagram, text_diagram
from paceline.checking.counterexamples.diagram import DARK, LIGHT, RULES, STYLE
from paceline.checking.counterexamples.story import DIGITS, Story
from paceline.records.figures import COUNT, PLAIN, SECONDS
from paceline.reports.blocks import (
    Answer,
    Axis,
    Block,
    Chart,
    Claim,
    Column,
    Picture,
    Plot,
    ReportSection,
    Series,
    Table,
    TableCell,
    Tone,
)
from paceline.reports.provenance import versions_section
from paceline.reports.words import listed

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


class Told(NamedTuple):
    """The story of a counterexample, and where it is stored."""

    story: Story
    path: Path | None = None
    """the file that ``paceline check --replay`` runs again; None if it is not stored"""
    paceline: str = ""
    """the version of Paceline that stored it; empty: this one"""

    @staticmethod
    def of(counterexample: Counterexample) -> Told:
        """Returns the story of a stored counterexample, with the name of its file."""
        return Told(counterexample.story, Path(counterexample.path.name), counterexample.paceline)


def answer_of_check(documents: Sequence[Document], stories: Sequence[Told] = (), names: Sequence[str] = ()) -> Answer:
    """Returns the answer about checked methods.

    Args:
        documents: the JSON document of each method; empty if they were not stored.
        stories: the counterexamples.
        names: the name of each method; by default those of the documents.
    """
    names = names or [document["algorithm"] for document in documents] or [story.story.method for story in stories]
    titled = zip(documents, names, strict=True) if documents else ()
    count = len(stories)
    return Answer(
        title=f"Check of {listed(list(dict.fromkeys(names)))}",
        blocks=[block for document, name in titled for block in blocks_of_method(document, name)],
        data=lambda: documents[0] if len(documents) == 1 else {"results": list(documents)},
        subtitle=f"{count or 'no'} counterexample{'s' * (count != 1)}",
        summary=lambda: [
            *(Claim(_violation(story.story)) for story in stories), Claim(MEANING),
            *([verdicts_chart(documents)] if len(documents) > 1 else []), *_descriptions(documents),
        ],
        sections=lambda: [versions_section()],
        notes=() if stories else ["No counterexample was found. This does not prove that there is none."],
        parts=[
            ReportSection(f"counterexample-{number}", f"{case.story.method}: {case.story.guarantee}",
                          blocks_of_story(case))
            for number, case in enumerate(stories, start=1)
        ],
    )  # fmt: skip


def answer_of_replay(replayed: ReplayedCase) -> Answer:
    """Returns the answer about a counterexample that was run again: its story now, and what has changed.

    Its JSON document is ``{"path", "guarantee", "violated", "same", "words", "changed", "others", "story"}``.

    Args:
        replayed: the result of the replay.
    """
    story, counterexample = replayed.story, replayed.counterexample
    return Answer(
        title=f"Replay of {counterexample.path.name}",
        blocks=[*([] if story is None else blocks_of_run(story)), Claim(replayed.words)],
        data=lambda: {
            "path": str(counterexample.path),
            "guarantee": counterexample.violation.guarantee,
            "violated": replayed.violation is not None,
            "same": replayed.same,
            "words": replayed.words,
            "changed": list(replayed.changed),
            "others": [{"guarantee": other.guarantee, "words": other.words} for other in replayed.others],
            "story": None if story is None else asdict(story),
        },
    )


# --- methods ---------------------------------------------------------------------------------------------------------


def blocks_of_method(document: Document, name: str) -> list[Block]:
    """Returns the verdicts on one method, the values nearest to their bounds, and how far the search reached.

    Args:
        document: its JSON document.
        name: its name.
    """
    orders = [orders_table(document, name)] if document["explored"] else []
    worst = [table] if (table := worst_table(document, name)).rows else []
    return [verdicts_table(document, name), *worst, *orders, _tried(document, name)]


def verdicts_table(document: Document, name: str) -> Table:
    """Returns the table of the verdicts on the guarantees of a method.

    Args:
        document: its JSON document.
        name: its name.
    """
    needs = {entry["name"]: entry["needs"] for entry in document["not_checked"]}
    columns = [
        Column("guarantee"), Column("verdict"), Column("schedules", COUNT), Column("time", SECONDS, code="checked_s"),
        *([Column("reason")] if any(needs.values()) else []),
    ]  # fmt: skip
    rows = [
        (
            guarantee["name"],
            TableCell(guarantee["verdict"], tone=TONES.get(guarantee["verdict"], "plain")),
            guarantee["schedules"],
            guarantee["seconds"],
            needs.get(guarantee["name"], ""),
        )[: len(columns)]
        for guarantee in document["guarantees"]
    ]
    taken = SECONDS.with_symbol(document["seconds"])
    return Table(f"{name}: {document['schedules']:,} schedules in {taken}", columns, rows)


def worst_table(document: Document, name: str) -> Table:
    """Returns the table of the worst values: of each guarantee with a quantity, and of the directed search.

    Args:
        document: the JSON document of a method.
        name: its name.
    """
    columns = [Column("quantity"), Column("worst", PLAIN), Column("at most", PLAIN), Column("guarantee")]
    rows = [
        (
            worst["quantity"],
            TableCell(worst["value"], tone=TONES.get(guarantee["verdict"], "plain")),
            worst["bound"],
            guarantee["name"],
        )
        for guarantee in document["guarantees"]
        if (worst := guarantee["worst"]) is not None
    ]
    directed = [(extreme["quantity"], extreme["value"], extreme["bound"], None) for extreme in document["extremes"]]
    words = "Rows without a guarantee are what the directed search has found." if directed else ""
    return Table(f"{name}: worst values", columns, [*rows, *directed], words=words)


def orders_table(document: Document, name: str) -> Table:
    """Returns the table of the inequivalent orders of small clusters that were tried.

    Args:
        document: the JSON document of an exhaustive check.
        name: the name of the method.
    """
    died = any(explored["deaths"] for explored in document["explored"])
    columns = [
        Column("workers", COUNT), Column("steps", COUNT), Column("inequivalent orders", COUNT), Column("time", SECONDS),
        Column("all orders"), Column("orders without reduction", COUNT), *[Column("runs with a death", COUNT)] * died,
    ]  # fmt: skip
    rows = []
    for explored in document["explored"]:
        orders = explored["orders"]
        every, least = orders["without_reduction"], orders["counted"] != orders["explored"]
        counted = TableCell(every, words=f"≥ {COUNT.text(every)}" if least and every is not None else "")
        size = explored["workers"], explored["steps"], orders["explored"], orders["seconds"]
        rows.append((*size, orders["complete"], counted, *[explored["deaths"]] * died))
    return Table(f"{name}: orders", columns, rows, keys=2)


def _tried(document: Document, name: str) -> Table:
    """Returns the table of the hyper-parameters that were tried, so that features never switched on are seen."""
    values = document["hyper_parameters"]
    drawn = ", ".join(f"{key} {', '.join(tried)}" for key, tried in values.items() if len(tried) > 1)
    fixed = ", ".join(f"{key}={tried[0]}" for key, tried in values.items() if len(tried) == 1)
    rows = [("several values", drawn or "none"), ("one value only", fixed or "none")]
    if changes := document.get("measured_with"):  # documents that were stored earlier do not have it
        rows.append(("gradient-weights", f"was measured with {', '.join(changes)}"))
    return Table(f"{name}: hyper-parameters", [Column(""), Column("")], rows)


def _descriptions(documents: Sequence[Document]) -> list[Table]:
    """Returns the table of what each guarantee says, if there are guarantees."""
    said = {
        guarantee["name"]: guarantee["description"] for document in documents for guarantee in document["guarantees"]
    }
    return [Table("Guarantees", [Column("guarantee"), Column("what it says")], list(said.items()))] if said else []


def verdicts_chart(documents: Sequence[Document]) -> Chart:
    """Returns the chart of the verdicts: a row for each guarantee, a column for each method.

    Args:
        documents: the JSON document of each method.
    """
    verdicts = [
        (document["algorithm"], each["name"], each["verdict"])
        for document in documents
        for each in document["guarantees"]
    ]
    guarantees = list(dict.fromkeys(name for _, name, _ in verdicts))
    series = []
    for verdict, colour in (("holds", ""), ("violated", ""), ("not checked", "faint")):
        places = [(method, name) for method, name, reached in verdicts if reached == verdict]
        if places:
            methods, names = zip(*places, strict=True)
            series.append(Series(verdict, methods, names, "points", colour=colour))
    x = Axis("method; empty: not promised", scale="category", ticks=[document["algorithm"] for document in documents])
    y = Axis("", scale="category", ticks=guarantees[::-1])
    return Chart(
        title=f"Verdicts after {sum(document['schedules'] for document in documents):,} schedules",
        words="A point for each guarantee of each method.",
        alt="Verdicts by guarantee and method; the tables below have the same content.",
        plots={"": Plot(x, y, series, colours=["holds", "violated"])},
        height=140 + 26 * len(guarantees),
    )


# --- counterexamples -------------------------------------------------------------------------------------------------


def blocks_of_story(saved: Told) -> list[Block]:
    """Returns the blocks of a counterexample: its run, and how to run it again.

    Args:
        saved: the story, and where it is stored.
    """
    return [*blocks_of_run(saved.story), *_again(saved)]


def blocks_of_run(story: Story) -> list[Block]:
    """Returns the blocks of a run that violates a guarantee: its sentences, its messages, and the values that differ.

    Args:
        story: the story.
    """
    picture = Picture(
        title="The messages of the run",
        words="Time runs downwards; each column is a rank, each arrow a message, each box a collective. The numbers "
        "are those of the story.",
        alt=f"Sequence diagram of {len(story.ranks)} ranks and {len(story.sentences)} actions; the story above has "
        "the same content.",
        svg=scoped(svg_diagram(story)),
        text=text_diagram(story),
    )
    values = [_values(story)] if story.differences else []
    return [Claim(story.setting, _violation(story)), _sentences(story), picture, *values]


def _violation(story: Story) -> str:
    return f"{story.method} violates {story.guarantee}: {story.first_words}"


def _sentences(story: Story) -> Table:
    timed = any(sentence.time_s is not None for sentence in story.sentences)
    rows: list[list[Any]] = []
    for sentence in story.sentences:
        words = TableCell(
            f"{sentence.subject}: {sentence.words}", tone="bad" if sentence.label.startswith("✗") else "plain"
        )
        rows.append([sentence.number, *[sentence.time_s] * timed, words, sentence.line])
        if story.left_out and sentence.number == story.left_out_after:
            nothing = TableCell(None, words=" ")
            rows.append([nothing, *[nothing] * timed, TableCell(story.gap, tone="faint"), ""])
    columns = [
        Column("", COUNT), *[Column("time", SECONDS, DIGITS)] * timed, Column("who does what"), Column("program line"),
    ]  # fmt: skip
    return Table("The story, step by step", columns, rows)


def _values(story: Story) -> Table:
    names = list(dict.fromkeys(name for difference in story.differences for name, _ in difference.values))
    rows = [
        [difference.what, *(dict(difference.values).get(name, "") for name in names)]
        for difference in story.differences
    ]
    return Table("Values", [Column(""), *(Column(name or "number") for name in names)], rows)


def _again(saved: Told) -> list[Claim]:
    if saved.path is None:
        return [Claim("`save` of the result writes files that `paceline check --replay` runs again.\n")]
    origin = f" The violation was found by Paceline {saved.paceline}." if saved.paceline else ""
    return [
        Claim(f"paceline check --replay {saved.path}", "Run it again", verbatim=True),
        Claim(
            "With `python -m pdb -m` in front, the command runs in a debugger. The diagram is also in "
            f"{saved.path.with_suffix('.svg').name}, in the same folder.{origin}\n"
        ),
    ]


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
