"""Readable counterexamples: the story of a violation, its sequence diagram, its file, and its replay.

Read `stories` first, then `recording` (how program lines are found) and `files`.
"""

from paceline.checking.counterexamples.diagrams_as_svg import svg_diagram
from paceline.checking.counterexamples.diagrams_as_text import text_diagram
from paceline.checking.counterexamples.files import Counterexample, load_counterexample, save
from paceline.checking.counterexamples.replaying import Replayed, replay
from paceline.checking.counterexamples.stories import story
from paceline.checking.counterexamples.story_model import Difference, Sentence, Story

__all__ = [
    "Counterexample",
    "Difference",
    "Replayed",
    "Sentence",
    "Story",
    "load_counterexample",
    "replay",
    "save",
    "story",
    "svg_diagram",
    "text_diagram",
]
