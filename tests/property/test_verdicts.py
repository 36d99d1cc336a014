"""Verdicts of claims, for any figures and plausible inputs."""

import math

from hypothesis import given
from hypothesis import strategies as st

from paceline.papers.claim import Assertion, Claim
from paceline.papers.verdicts import Case, Predicted, judge

FIGURES = st.floats(1e-3, 1e3)
ASSERTIONS: st.SearchStrategy[Assertion] = st.sampled_from(("within 25 %", "at least", "at most", "order", "equal"))
NAMES = ("batch", "sigma", "link")


def judged(published: float, holds_if: Assertion, figures: dict[str, list[float]], central: float) -> Predicted:
    """Judges a figure without chance, whose inputs have the values 0, 1, …; the value 0 is the most plausible."""
    claim = Claim(
        name="x-y", paper="x", section="", sentence="", published=published, hardware="", model="", batch="",
        scenario="", command="", inputs=tuple(figures), holds_if=holds_if, figure=lambda _: central, seeds=1,
    )  # fmt: skip
    cases = [Case((), (central,))]
    cases += [
        Case(((name, str(place)),), (figure,)) for name, own in figures.items() for place, figure in enumerate(own, 1)
    ]
    return judge(claim, cases, {name: [str(place) for place in range(len(own) + 1)] for name, own in figures.items()})


CHANGED = st.dictionaries(st.sampled_from(NAMES), st.lists(FIGURES, min_size=1, max_size=2), max_size=3)


@given(published=FIGURES, holds_if=ASSERTIONS, central=FIGURES)
def test_a_figure_without_chance_and_ranges_is_never_undecidable(
    published: float, holds_if: Assertion, central: float
) -> None:
    ours = judged(published, holds_if, {}, central)
    assert ours.verdict != "undecidable" and math.isclose(ours.low, ours.high)


@given(published=FIGURES, holds_if=ASSERTIONS, central=FIGURES, figures=CHANGED)
def test_an_input_without_effect_changes_no_share(
    published: float, holds_if: Assertion, central: float, figures: dict[str, list[float]]
) -> None:
    before = judged(published, holds_if, figures, central)
    after = judged(published, holds_if, figures | {"useless": [central, central]}, central)
    assert math.isclose(before.share, after.share, abs_tol=1e-12)
    assert (before.verdict, before.decides) == (after.verdict, after.decides)


@given(published=FIGURES, holds_if=ASSERTIONS, central=FIGURES, figures=CHANGED)
def test_the_share_is_the_mean_of_the_shares_by_value(
    published: float, holds_if: Assertion, central: float, figures: dict[str, list[float]]
) -> None:
    ours = judged(published, holds_if, figures, central)
    assert 0.0 <= ours.share <= 1.0 and ours.low <= ours.value <= ours.high
    for by_value in ours.shares.values():
        assert math.isclose(sum(by_value.values()) / len(by_value), ours.share, abs_tol=1e-9)


@given(central=FIGURES, figures=CHANGED, limits=st.tuples(FIGURES, FIGURES))
def test_a_stronger_assertion_has_a_smaller_share(
    central: float, figures: dict[str, list[float]], limits: tuple[float, float]
) -> None:
    weak, strong = (judged(limit, "at least", figures, central).share for limit in sorted(limits))
    assert strong <= weak
