"""Readable counterexamples: the story of a violation, its sequence diagram, its file, and its replay.

Read `story` first, then `sentences` (how a run is told), `recording` (how program lines are found),
`diagram` and `files`.
"""

from paceline.checking.check_guarantees import Difference
from paceline.checking.counterexamples.diagram import svg_diagram, text_diagram
from paceline.checking.counterexamples.files import Counterexample, ReplayedCase, load_counterexample, replay, save
from paceline.checking.counterexamples.sentences import story
from paceline.checking.counterexamples.story import Sentence, Story

__all__ = [
    "Counterexample",
    "Difference",
    "ReplayedCase",
    "Sentence",
    "Story",
    "load_counterexample",
    "replay",
    "save",
    "story",
    "svg_diagram",
    "text_diagram",
]
