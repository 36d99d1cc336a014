"""The sections of a check: the verdicts, and the story and diagram of each counterexample."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.checking.counterexamples import Counterexample, svg_diagram
from paceline.checking.counterexamples.diagrams_as_svg import DARK, LIGHT, RULES, STYLE
from paceline.checking.counterexamples.story_model import Story
from paceline.reports.html.report_parts import Grid, Picture, Section

SCOPE, DARK_SCOPE = ".picture", ':root[data-theme="dark"] .picture'
"""where the styles of a diagram apply"""
RULE = re.compile(r"\s*([^{}]+?)\s*(\{[^{}]*\})")


def check_summary_section(found: Sequence[Counterexample], answers: Sequence[Mapping[str, Any]] = ()) -> Section:
    """Returns what was checked, and what was found.

    Args:
        found: the counterexamples.
        answers: the JSON answers of ``paceline check``, one for each method; empty if they were not stored.
    """
    words = [
        (
            "`paceline check` runs a method under many schedules: orders of messages, speeds, delays and stops. A "
            "guarantee is a statement that must hold under all of them. A counterexample is a schedule under which one "
            "does not hold, reduced to the fewest ranks and steps."
        )
    ]
    words += [f"{one.story.method} violates {one.story.guarantee}: {one.story.first_words}" for one in found]
    if not found:
        words.append("No counterexample was found. This does not prove that there is none.")
    return Section(id="summary", title="Summary", words=words, parts=[_grid(one) for one in answers])


def _grid(answer: Mapping[str, Any]) -> Grid:
    rows = [
        [one["name"], one["verdict"], f"{one['schedules']:,}", one["description"], one["words"] or ""]
        for one in answer["guarantees"]
    ]
    return Grid(
        title=f"{answer['algorithm']}: {answer['schedules']:,} schedules in {answer['seconds']:.1f} s",
        columns=["guarantee", "verdict", "schedules", "what it says", "what was found"],
        rows=rows,
        numeric=frozenset({2}),
    )


def counterexample_sections(found: Sequence[Counterexample]) -> list[Section]:
    """Returns a section for each counterexample.

    Args:
        found: the counterexamples.
    """
    return [_section(one, number) for number, one in enumerate(found, start=1)]


def _section(one: Counterexample, number: int) -> Section:
    story = one.story
    return Section(
        id=f"counterexample-{number}",
        title=f"{story.method}: {story.guarantee}",
        words=[f"{story.method} violates {story.guarantee}: {story.first_words}", story.setting],
        parts=[
            Picture(
                title="The messages of the run",
                words="Time runs downwards; each column is a rank, each arrow a message, each box a collective. The "
                "numbers are those of the story.",
                alt=f"Sequence diagram of {len(story.ranks)} ranks and {len(story.sentences)} actions; the story below "
                "has the same content.",
                svg=scoped(svg_diagram(story)),
            ),
            _story(story),
            *([_values(story)] if story.differences else []),
            _again(one),
        ],
    )


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
        lambda rule: ", ".join(f"{place} {one.strip()}" for one in rule[1].split(",")) + rule[2] + "\n", rules
    )


def _story(story: Story) -> Grid:
    timed = any(sentence.time_s is not None for sentence in story.sentences)
    rows = []
    for sentence in story.sentences:
        time = ["" if sentence.time_s is None else f"{sentence.time_s:g}"] * timed
        rows.append([str(sentence.number), *time, sentence.subject, sentence.words, sentence.line])
        if story.left_out and sentence.number == story.left_out_after:
            rows.append(["", *[""] * timed, "", story.gap, ""])
    columns = ["", *["time, s"] * timed, "who", "does what", "program line"]
    return Grid(title="The story, step by step", columns=columns, rows=rows, numeric=frozenset({0}))


def _values(story: Story) -> Grid:
    names = list(dict.fromkeys(name for one in story.differences for name, _ in one.values))
    rows = [[one.what, *(dict(one.values).get(name, "") for name in names)] for one in story.differences]
    return Grid(title="Values at the end", columns=["", *(name or "value" for name in names)], rows=rows)


def _again(one: Counterexample) -> Grid:
    rows = [
        ["run it again", f"`paceline check --replay {one.path.name}`"],
        ["in a debugger", f"`python -m pdb -m paceline check --replay {one.path.name}`"],
        ["found by", f"Paceline {one.paceline}"],
    ]
    return Grid(title="How to see it yourself", columns=["", ""], rows=rows)
