"""Colours of charts and pictures, which readers with colour vision deficiency can distinguish. It imports nothing.

Charts are described in the colours of light pages. A dark page replaces each by its partner in `DARK`.
"""

from __future__ import annotations

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""suitable for colour-blind readers; source: Okabe and Ito, Color Universal Design, with brown instead of yellow"""
INK, FAINT, LINES = "#24292F", "#6E7781", "#E1E4E8"
"""of texts, of axes and of grids"""
ACTIVITIES = {
    "compute": "#0072B2",
    "communication": "#E69F00",
    "wait": "#C9CDD2",
    "update": "#009E73",
    "load": "#8C6D31",
    "read": "#A05A8C",
    "copy": "#56B4E9",
    "redo": "#D55E00",
    "checkpoint": "#CC79A7",
    "recovery": "#6B5B95",
    "crash": "#000000",
}
"""the colour of each activity of a rank: Okabe and Ito's, and grey for waiting"""
WORDS = {
    "compute": "computing a gradient",
    "communication": "sending or receiving",
    "wait": "waiting for another rank",
    "update": "updating weights",
    "load": "loading a batch",
    "read": "reading from storage",
    "copy": "copying between host and device",
    "redo": "computing lost work again",
    "checkpoint": "writing a checkpoint",
    "recovery": "recovering from a crash",
    "crash": "crash",
}
"""what a rank does during each activity"""
FIXED = {**ACTIVITIES, **{words: ACTIVITIES[name] for name, words in WORDS.items()}, "faint": FAINT}
"""colour keys of series whose colour does not depend on the other series: activities, and lines to compare with"""
DARK = {
    "#0072B2": "#4FA3E0",
    "#D55E00": "#FF8A47",
    "#009E73": "#2CC495",
    "#CC79A7": "#E3A0C6",
    "#E69F00": "#F2B233",
    "#56B4E9": "#8ACDF3",
    "#000000": "#F0F3F6",
    "#8C6D31": "#C6A35C",
    "#C9CDD2": "#565D66",
    "#A05A8C": "#C98BB8",
    "#6B5B95": "#A99AD6",
    INK: "#E6EDF3",
    FAINT: "#9198A1",
    LINES: "#30363D",
}
"""the partner in dark mode of each colour"""
BAND, PALE = 0.18, 0.45
"""opacities of bands, and of the broad lines of measured curves, on which simulated ones are drawn"""


def faded(colour: str, opacity: float = BAND) -> str:
    """Returns a colour with an opacity, as a page writes it.

    >>> faded("#0072B2", 0.5)
    'rgba(0,114,178,0.5)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def dark_colours() -> dict[str, str]:
    """Returns the partner in dark mode of every colour in charts, faded ones included."""
    bands = {faded(light): faded(dark, 0.25) for light, dark in DARK.items()}
    return DARK | bands | {faded(light, PALE): faded(dark, PALE) for light, dark in DARK.items()}
