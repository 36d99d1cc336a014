"""Cases: small runs of a method that are always the same, which `paceline check` explores.

Read `case` first (a case, and its form in JSON), then `performing` (how it is run), `invariants` (what is checked) and
`checking_methods` (random cases, and a verdict for each guarantee).
"""

from paceline.checking.cases.case import Case, Times, from_json, to_json
from paceline.checking.cases.checking_methods import Checked, Effort, Verdict, check_method
from paceline.checking.cases.invariants import Violation, violations
from paceline.checking.cases.performing import Outcome, performed
from paceline.checking.cases.shrinking import shrunk

__all__ = [
    "Case",
    "Checked",
    "Effort",
    "Outcome",
    "Times",
    "Verdict",
    "Violation",
    "check_method",
    "from_json",
    "performed",
    "shrunk",
    "to_json",
    "violations",
]
