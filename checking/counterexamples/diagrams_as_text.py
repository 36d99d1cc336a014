"""Draws a story as a sequence diagram in plain text: one column per rank, at most 80 characters wide."""

from __future__ import annotations

from paceline.checking.counterexamples.diagram_rows import Row, rows_of
from paceline.checking.counterexamples.story_model import DIGITS, Story
from paceline.records.figures import SECONDS

WIDTH = 80
LEFT = 8
"""characters for the numbers of sentences"""
TIME = 11
"""characters for the time, if the run has a clock"""
WIDEST, NARROWEST = 30, 10
"""limits of a column"""
MARKS = {
    "compute": "·",
    "send": "○",
    "receive": "○",
    "start": "+",
    "update": "■",
    "memory": "◆",
    "result": "·",
    "wait": "✗",
    "state": "·",
    "failure": "✗",
}


def text_diagram(story: Story) -> str:
    """Draws the story: arrows for messages, double lines for collectives, marks with a few words for the rest.

    The numbers on the left are those of the sentences. ``○`` marks a message that is received later; its arrow is
    drawn where it is received.

    Args:
        story: the story.

    Returns:
        The lines; a sentence about the reason if there are too many ranks for `WIDTH` characters.
    """
    left = LEFT + TIME * any(sentence.time_s is not None for sentence in story.sentences)
    width = min(WIDEST, (WIDTH - left) // max(1, len(story.ranks)))
    if width < NARROWEST:
        return f"{len(story.ranks)} ranks do not fit in {WIDTH} columns; the SVG diagram shows them."
    canvas = _Canvas(left, width, {rank: at for at, (rank, _) in enumerate(story.ranks)})
    lines = [canvas.header(story), canvas.blank()]
    lines += [canvas.row(row, story) for row in rows_of(story)]
    return "\n".join(line.rstrip() for line in lines)


class _Canvas:
    """The positions of the columns.

    Args:
        left: characters before the first column.
        width: characters of a column.
        columns: the column of each rank.
    """

    def __init__(self, left: int, width: int, columns: dict[int, int]) -> None:
        self.left, self.width, self.columns = left, width, columns

    def at(self, rank: int) -> int:
        """Returns the position of a rank's line."""
        return self.left + self.columns[rank] * self.width

    def header(self, story: Story) -> str:
        """Returns the names of the ranks."""
        names = "".join(_cut(f"rank {rank} {role}", self.width - 1).ljust(self.width) for rank, role in story.ranks)
        return " " * self.left + names

    def blank(self, beginning: str = "") -> str:
        """Returns the lines of all ranks, after `beginning`."""
        characters = list(beginning.ljust(self.left + self.width * len(self.columns)))
        for rank in self.columns:
            characters[self.at(rank)] = "│"
        return "".join(characters)

    def row(self, row: Row, story: Story) -> str:
        """Draws one row."""
        sentence = row.sentence
        if sentence is None:
            return f"{'⋮':>{self.left - 2}}  {story.gap}"
        beginning = f"{row.numbers:>{LEFT - 2}}"
        if sentence.time_s is not None:
            beginning += f"{SECONDS.with_symbol(sentence.time_s, DIGITS):>{TIME}}"
        line = self.blank(beginning)
        if not sentence.ranks:
            return _over(line, self.left, f" ✗ {_cut(sentence.words, WIDTH - self.left - 3)}")
        if sentence.act == "collective":
            return self._box(line, sentence.ranks, sentence.label)
        if row.source is not None:
            return self._arrow(line, row.source, sentence.ranks[0], sentence.label)
        label = sentence.label.removeprefix("✗ ")
        mark = MARKS[sentence.act] if label == sentence.label else "✗"
        room = self.width - 3
        if sentence.act == "send":
            to = f" to {', '.join(map(str, sentence.to))}"
            label = _cut(label, room - len(to)) + to
        elif len(label) > room:
            label = label.rpartition(", ")[2]  # the value of an update, whose number the sentence has
        return _over(line, self.at(sentence.ranks[0]), f"{mark} {_cut(label, room)}")

    def _arrow(self, line: str, source: int, to: int, label: str) -> str:
        if source == to:
            return _over(line, self.at(to), f"↺ {_cut(label, self.width - 3)}")
        first, last = sorted((self.at(source), self.at(to)))
        inside = last - first - 1
        body = f" {_cut(label, inside - 4)} ".center(inside - 1, "─") if inside > 7 else "─" * (inside - 1)
        shaft = f"{body}▶" if source == self._leftmost(source, to) else f"◀{body}"
        return _over(line, first + 1, shaft)

    def _leftmost(self, one: int, other: int) -> int:
        return min(one, other, key=self.at)

    def _box(self, line: str, ranks: tuple[int, ...], label: str) -> str:
        places = sorted(map(self.at, ranks))
        inside = places[-1] - places[0] - 1
        line = _over(line, places[0] + 1, f" {_cut(label, inside - 4)} ".center(inside, "═"))
        for place, mark in zip(places, f"╞{'╪' * (len(places) - 2)}╡", strict=True):
            line = _over(line, place, mark) if mark != "╪" or line[place] == "═" else line
        return line


def _over(line: str, at: int, text: str) -> str:
    return (line[:at] + text + line[at + len(text) :])[:WIDTH]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"
