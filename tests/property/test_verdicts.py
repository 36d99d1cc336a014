"""Verdicts of claims, for any published figure and interval."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.papers.claim import Assertion, Predicted, verdict_of

FIGURES = st.floats(-1e6, 1e6)
ASSERTIONS = st.sampled_from(("within 25 %", "at least", "at most", "positive", "negative", "order", "equal"))


def interval(ends: tuple[float, float]) -> Predicted:
    low, high = sorted(ends)
    return Predicted(value=low, low=low, high=high)


@given(published=FIGURES, at=FIGURES, holds_if=ASSERTIONS)
def test_a_figure_without_an_interval_is_never_undecidable(published: float, at: float, holds_if: Assertion) -> None:
    assert verdict_of(published, interval((at, at)), holds_if, inputs_found=False) != "undecidable"


@given(published=FIGURES, ends=st.tuples(FIGURES, FIGURES), holds_if=ASSERTIONS)
def test_an_interval_holds_or_misses_if_both_its_ends_do(
    published: float, ends: tuple[float, float], holds_if: Assertion
) -> None:
    """The sets of values that agree are convex; "within 25 %" and "equal" have values on both sides of them."""
    whole = verdict_of(published, interval(ends), holds_if, inputs_found=False)
    parts = {verdict_of(published, interval((end, end)), holds_if, inputs_found=False) for end in ends}
    if whole != "undecidable":
        assert parts == {whole}
    elif holds_if not in ("within 25 %", "equal"):
        assert parts == {"holds", "misses"}


@given(published=FIGURES, ends=st.tuples(FIGURES, FIGURES), more=st.tuples(FIGURES, FIGURES), holds_if=ASSERTIONS)
def test_a_wider_interval_only_makes_a_verdict_undecidable(
    published: float, ends: tuple[float, float], more: tuple[float, float], holds_if: Assertion
) -> None:
    narrow = verdict_of(published, interval(ends), holds_if, inputs_found=False)
    wide = verdict_of(published, interval((min(ends + more), max(ends + more))), holds_if, inputs_found=False)
    assert wide in (narrow, "undecidable")


@given(published=st.floats(1e-6, 1e6), ends=st.tuples(FIGURES, FIGURES))
def test_noise_around_the_published_figure_holds_if_all_inputs_are_found(
    published: float, ends: tuple[float, float]
) -> None:
    ours = interval(ends)
    found = verdict_of(published, ours, "within 25 %", inputs_found=True)
    if ours.low <= published <= ours.high:
        assert found == "holds"
    else:
        assert found == verdict_of(published, ours, "within 25 %", inputs_found=False)
