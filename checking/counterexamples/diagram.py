"""Draws a story as a sequence diagram: as plain text of at most 80 characters, and in SVG.

Both draw the rows of the story, each in one of five shapes. The SVG needs no fonts, scripts or files of others. Colours
follow the reader's light or dark mode. A browser shows the whole sentence when the pointer is on a row.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from html import escape

from paceline.checking.counterexamples.story import Row, Story, not_received, rows_of

WIDTH = 80
LEFT = 8
"""characters for the numbers of sentences"""
CLOCK = 11
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
    left = LEFT + CLOCK * story.timed
    width = min(WIDEST, (WIDTH - left) // max(1, len(story.ranks)))
    if width < NARROWEST:
        return f"{len(story.ranks)} ranks do not fit in {WIDTH} columns; the SVG diagram shows them."
    canvas = _Canvas(left, width, {rank: at for at, (rank, _) in enumerate(story.ranks)})
    lines = [canvas.header(story), canvas.blank()]
    lines += [canvas.row(row, story) for row in rows_of(story)]
    return "\n".join(line.rstrip() for line in lines)


class _Canvas:
    """The positions of the columns."""

    def __init__(self, left: int, width: int, columns: dict[int, int]) -> None:
        self.left, self.width, self.columns = left, width, columns

    def at(self, rank: int) -> int:
        """Returns the position of a rank's line."""
        return self.left + self.columns[rank] * self.width

    def header(self, story: Story) -> str:
        """Returns the names of the ranks."""
        names = "".join(
            _shortened(f"rank {rank} {role}", self.width - 1).ljust(self.width) for rank, role in story.ranks
        )
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
        line = self.blank(f"{row.numbers:>{LEFT - 2}}" + (f"{row.time:>{CLOCK}}" if row.time else ""))
        match row.shape:
            case "run":
                return _over(line, self.left, f" ✗ {_shortened(sentence.words, WIDTH - self.left - 3)}")
            case "box":
                return self._box(line, sentence.ranks, sentence.label)
            case "arrow" if row.source is not None:
                return self._arrow(line, row.source, sentence.ranks[0], sentence.label)
        (kind, label), room = sentence.mark, self.width - 3
        if sentence.act == "send":
            to = f" to {', '.join(map(str, sentence.to))}"
            label = _shortened(label, room - len(to)) + to
        elif len(label) > room:
            label = label.rpartition(", ")[2]  # the value of an update, whose number the sentence has
        return _over(line, self.at(sentence.ranks[0]), f"{MARKS[kind]} {_shortened(label, room)}")

    def _arrow(self, line: str, source: int, to: int, label: str) -> str:
        if source == to:
            return _over(line, self.at(to), f"↺ {_shortened(label, self.width - 3)}")
        first, last = sorted((self.at(source), self.at(to)))
        inside = last - first - 1
        body = f" {_shortened(label, inside - 4)} ".center(inside - 1, "─") if inside > 7 else "─" * (inside - 1)
        shaft = f"{body}▶" if source == self._leftmost(source, to) else f"◀{body}"
        return _over(line, first + 1, shaft)

    def _leftmost(self, first: int, other: int) -> int:
        return min(first, other, key=self.at)

    def _box(self, line: str, ranks: tuple[int, ...], label: str) -> str:
        places = sorted(map(self.at, ranks))
        inside = places[-1] - places[0] - 1
        line = _over(line, places[0] + 1, f" {_shortened(label, inside - 4)} ".center(inside, "═"))
        for place, mark in zip(places, f"╞{'╪' * (len(places) - 2)}╡", strict=True):
            line = _over(line, place, mark) if mark != "╪" or line[place] == "═" else line
        return line


def _over(line: str, at: int, text: str) -> str:
    return (line[:at] + text + line[at + len(text) :])[:WIDTH]


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


COLUMN, ROW = 210, 28
"""pixels of a column and of a row"""
NUMBERS, TIME, LINES = 64, 70, 260
"""pixels for the numbers of sentences, for the time and for the program lines"""
CHARACTER, HEAD_CHARACTER = 6.6, 7.3
"""pixels of a character at 11 px, and of a bold one at 12 px; provenance: DERIVED, 0.6 em of common monospaced fonts"""
LIGHT = {
    "ground": "#ffffff",
    "ink": "#1f2328",
    "faint": "#6e7781",
    "line": "#d0d7de",
    "blue": "#0072b2",
    "red": "#b93a2b",
    "green": "#00785a",
    "box": "#e7f1f8",
}
DARK = {
    "ground": "#0d1117",
    "ink": "#e6edf3",
    "faint": "#9198a1",
    "line": "#3d444d",
    "blue": "#6cb6ff",
    "red": "#ff7b72",
    "green": "#56d4a8",
    "box": "#12283c",
}
RULES = """text {{ fill: {ink}; }} .ground {{ fill: {ground}; }} .faint {{ fill: {faint}; }}
.halo {{ stroke: {ground}; }}
.rank {{ stroke: {line}; }} .arrow {{ stroke: {blue}; }} .tip {{ fill: {blue}; }}
.box {{ fill: {box}; stroke: {blue}; }} .dot {{ fill: {faint}; }} .update {{ fill: {green}; }}
.wait, .failure {{ fill: {red}; }}"""
"""without CSS variables, which many programs other than browsers do not know"""
STYLE = f"""
text {{ font: 11px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }}
.head {{ font-weight: bold; font-size: 12px; }} .halo {{ stroke-width: 4px; stroke-linejoin: round; }}
.rank {{ stroke-width: 1.5; }} .arrow {{ stroke-width: 1.6; fill: none; }}
{RULES.format(**LIGHT)}
@media (prefers-color-scheme: dark) {{
{RULES.format(**DARK)}
}}
"""


def svg_diagram(story: Story) -> str:
    """Draws the story: arrows for messages, boxes for collectives, marks with a few words for the rest.

    An arrow is horizontal if the message is received at once; else it starts in the row in which it was sent. The
    program lines are on the right.

    Args:
        story: the story.

    Returns:
        An SVG document.
    """
    return "\n".join(_Drawing(story).parts()) + "\n"


class _Drawing:
    """The positions of everything in one picture."""

    def __init__(self, story: Story) -> None:
        self.story, self.rows = story, rows_of(story)
        self.left = NUMBERS + TIME * story.timed + 16
        self.columns = {rank: self.left + 8 + at * COLUMN for at, (rank, _) in enumerate(story.ranks)}
        self.lines_at = self.left + COLUMN * len(story.ranks) + 16
        self.width = max(self.lines_at + LINES, 560)
        characters = int((self.width - 24) / CHARACTER)
        about = f"{story.method} violates {story.guarantee}: {story.first_words}"
        self.heads = textwrap.wrap(about, int((self.width - 24) / HEAD_CHARACTER))
        self.title = self.heads + textwrap.wrap(story.setting, characters)
        values = [f"{difference.text}" for difference in story.differences]
        self.values = [line for value in values for line in textwrap.wrap(value, characters, subsequent_indent="  ")]
        self.top = 22 + 16 * len(self.title) + 34
        self.bottom = self.top + ROW * len(self.rows)
        self.height = self.bottom + 20 + 16 * len(self.values) + 8

    def y(self, row: int) -> float:
        """Returns the middle of a row."""
        return self.top + ROW * (row + 0.5)

    def parts(self) -> Iterator[str]:
        """Yields the elements of the document."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        yield f"<title>{escape(self.story.method)} violates {escape(self.story.guarantee)}</title>"
        yield f"<style>{STYLE}</style>"
        yield f'<rect class="ground" width="{self.width}" height="{self.height}"/>'
        for at, line in enumerate(self.title):
            yield _text(12, 22 + 16 * at, line, "head" if at < len(self.heads) else "")
        for rank, role in self.story.ranks:
            x = self.columns[rank]
            yield _text(x - 6, self.top - 12, f"rank {rank} ({role})", "head")
            yield f'<line class="rank" x1="{x}" y1="{self.top - 6}" x2="{x}" y2="{self.bottom}"/>'
        for at, row in enumerate(self.rows):  # first, so that no arrow crosses words
            if row.source is not None and row.sentence is not None:
                yield from self._arrow(self.y(row.sent_at), self.y(at), row.source, row.sentence.ranks[0])
        for at, row in enumerate(self.rows):
            yield from self._row(at, row)
        for at, line in enumerate(self.values):
            yield _text(12, self.bottom + 24 + 16 * at, line)
        yield "</svg>"

    def _row(self, at: int, row: Row) -> Iterator[str]:
        sentence, y = row.sentence, self.y(at)
        if sentence is None:
            yield from _label(self.left, y + 4, f"⋮ {self.story.gap}", "faint")
            return
        yield f"<g><title>{escape(sentence.text)}</title>"
        yield _text(NUMBERS - 6, y + 4, row.numbers, "faint", anchor="end")
        if row.time:
            yield _text(NUMBERS + TIME - 6, y + 4, row.time, "faint", anchor="end")
        yield _text(self.lines_at, y + 4, _cut(sentence.line, LINES - 12), "faint")
        match row.shape:
            case "run":
                end = self.lines_at if sentence.line else self.width
                yield from _label(self.left, y + 4, _cut(sentence.words, end - self.left - 12), "failure")
            case "box":
                yield from self._box(y, sentence.ranks, sentence.label)
            case "arrow" if row.source is not None:
                yield from self._message(y, row.source, sentence.ranks[0], sentence.label)
            case _:
                x, (kind, label) = self.columns[sentence.ranks[0]], sentence.mark
                if sentence.act == "send":
                    label = not_received(sentence, self.story)
                yield f'<circle class="dot {kind}" cx="{x}" cy="{y}" r="4.5"/>'
                if label:
                    yield from _label(x + 12, y + 4, _cut(label, COLUMN - 20), kind)
        yield "</g>"

    def _arrow(self, begin: float, end: float, source: int, to: int) -> Iterator[str]:
        """Draws an arrow from the row of the sending to that of the receipt.

        It reaches the row of the receipt before the next column. In that row no other rank has a mark, so an arrow
        never crosses the mark of a rank between the two.
        """
        from_x, to_x = self.columns[source], self.columns[to]
        side = 0 if source == to else 1 if to_x > from_x else -1
        bend = f"{from_x + side * COLUMN / 2:g},{end:g} " if begin != end else ""
        yield f'<polyline class="arrow" points="{from_x:g},{begin:g} {bend}{to_x - 8 * side:g},{end:g}"/>'
        yield f'<polygon class="tip" points="{to_x},{end} {to_x - 9 * side},{end - 4} {to_x - 9 * side},{end + 4}"/>'

    def _message(self, y: float, source: int, to: int, label: str) -> Iterator[str]:
        """Writes the name of a message above the horizontal part of its arrow, near the receiver."""
        from_x, to_x = self.columns[source], self.columns[to]
        if from_x == to_x:
            yield from _label(to_x + 12, y + 4, _cut(label, COLUMN - 20))
        elif to_x > from_x:
            yield from _label(to_x - 14, y - 5, _cut(label, COLUMN - 30), anchor="end")
        else:
            yield from _label(to_x + 14, y - 5, _cut(label, COLUMN - 30))

    def _box(self, y: float, ranks: tuple[int, ...], label: str) -> Iterator[str]:
        places = sorted(self.columns[rank] for rank in ranks)
        x, width = places[0] - 8, places[-1] - places[0] + 16
        yield f'<rect class="box" x="{x}" y="{y - 10}" width="{width}" height="20" rx="4"/>'
        for place in places:
            yield f'<circle class="tip" cx="{place}" cy="{y}" r="3"/>'
        yield _text(places[0] + COLUMN / 2, y + 4, _cut(label, COLUMN - 20), anchor="middle")


def _text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "start") -> str:
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" class="{kind}"{side}>{escape(words)}</text>'


def _label(x: float, y: float, words: str, kind: str = "", *, anchor: str = "start") -> Iterator[str]:
    """Draws words with an outline in the colour of the ground, which keeps them readable on lines."""
    yield _text(x, y, words, "halo", anchor=anchor)
    yield _text(x, y, words, kind, anchor=anchor)


def _cut(words: str, pixels: float) -> str:
    most = max(1, int(pixels / CHARACTER))
    return words if len(words) <= most else f"{words[: most - 1]}…"
