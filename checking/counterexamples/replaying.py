"""Runs a stored counterexample again, in this process and without threads, so that a debugger can follow it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from paceline.checking.cases.invariants import INVARIANTS
from paceline.checking.cases.violations import Violation, violations
from paceline.checking.counterexamples.files import Counterexample
from paceline.checking.counterexamples.fingerprints import changes, fingerprint_of
from paceline.checking.counterexamples.stories import recorded, story_of
from paceline.checking.counterexamples.story_model import Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    Args:
        counterexample: what was replayed.
        violation: the violation of the same guarantee; None if the guarantee is kept now.
        story: what happened now; None if the guarantee is kept.
        others: violations of other guarantees.
        changed: the functions whose source code has changed, by file.
    """

    counterexample: Counterexample
    violation: Violation | None
    story: Story | None
    others: tuple[Violation, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the same guarantee is violated, with the same words."""
        return self.violation is not None and self.violation.words == self.counterexample.violation.words

    @property
    def words(self) -> str:
        """The result in sentences."""
        stored, said = self.counterexample.violation, []
        if self.violation is None:
            said.append(f"{stored.guarantee} is kept now; it was violated: {stored.words}")
        elif self.same:
            said.append(f"{stored.guarantee} is violated again: {stored.words}")
        else:
            said.append(f"{stored.guarantee} is violated again: {self.violation.words}; it was: {stored.words}")
        said += [f"also violated: {other.guarantee}: {other.words}" for other in self.others]
        said.append(
            f"the program has changed: {'; '.join(self.changed)}" if self.changed else "the program is the same"
        )
        if self.counterexample.paceline != (now := metadata.version("paceline")):
            said.append(f"the file was written by Paceline {self.counterexample.paceline}, and this is {now}")
        return "\n".join(said)


def replay(counterexample: Counterexample) -> Replayed:
    """Runs the case of a counterexample again.

    Args:
        counterexample: as `load_counterexample` returned it.
    """
    stored = counterexample.violation
    outcome, record = recorded(stored.case)
    costly = stored.guarantee in INVARIANTS and INVARIANTS[stored.guarantee].costly
    found = violations(outcome, costly=costly)
    same = [one for one in found if one.guarantee == stored.guarantee]
    violation = next((one for one in same if one.words == stored.words), same[0] if same else None)
    return Replayed(
        counterexample=counterexample,
        violation=violation,
        story=None if violation is None else story_of(violation, outcome, record),
        others=tuple(one for one in found if one.guarantee != stored.guarantee),
        changed=changes(counterexample.fingerprint, fingerprint_of(stored.case.method, record)),
    )
