"""Cases: small runs of a method that are always the same, which `paceline check` explores.

Read `case` first (a case, and its form in JSON), then `performing` (how it is run) and `violations` (what is checked).
"""

from paceline.checking.cases.case import Case, Times, from_json, to_json
from paceline.checking.cases.performing import Outcome, performed
from paceline.checking.cases.violations import Violation, violations

__all__ = ["Case", "Outcome", "Times", "Violation", "from_json", "performed", "to_json", "violations"]
