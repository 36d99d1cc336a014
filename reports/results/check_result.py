"""The result of `check`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from paceline.algorithms.core.files import write_whole
from paceline.checking.cases import Checked, Verdict
from paceline.reports.plain_table import plain_table
from paceline.reports.results.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.table import Table


class CheckResult(Result, Sequence[Checked]):
    """What `paceline.check` returns: the verdicts of each method, in a sequence.

    >>> import paceline
    >>> found = paceline.check("sync-sgd", schedules=20)
    >>> found.holds, found[0].verdicts["synchronous"].verdict
    (True, 'holds')
    """

    def __init__(self, checked: Sequence[Checked]) -> None:
        self._checked = tuple(checked)

    @overload
    def __getitem__(self, index: int) -> Checked: ...

    @overload
    def __getitem__(self, index: slice) -> CheckResult: ...

    def __getitem__(self, index: int | slice) -> Checked | CheckResult:
        return CheckResult(self._checked[index]) if isinstance(index, slice) else self._checked[index]

    def __len__(self) -> int:
        return len(self._checked)

    @property
    def holds(self) -> bool:
        """Whether no guarantee of any method was violated."""
        return not self.violated

    @property
    def violated(self) -> list[tuple[str, Verdict]]:
        """The violated guarantees, each with the name of its method."""
        return [(one.method.name, verdict) for one in self for verdict in one.violated]

    def frame(self) -> pd.DataFrame:
        """Returns a row for each method and guarantee: the verdict, the schedules, the worst value and its bound."""
        import pandas as pd

        return pd.DataFrame(
            {
                "method": one.method.name,
                "guarantee": verdict.guarantee,
                "verdict": verdict.verdict,
                "schedules": verdict.schedules,
                "checked_s": verdict.seconds,
                "quantity": None if verdict.worst is None else verdict.worst.quantity,
                "worst": None if verdict.worst is None else verdict.worst.value,
                "bound": None if verdict.worst is None else verdict.worst.bound,
                "violation": None if verdict.violation is None else verdict.violation.words,
            }
            for one in self
            for verdict in one.verdicts.values()
        )

    def plot(self) -> Figure:
        """Draws the verdict on each guarantee of each method."""
        from paceline.reports.results.check_figure import verdicts_figure

        return verdicts_figure(self)

    def save(self, folder: str | Path = "counterexamples") -> list[Path]:
        """Writes each counterexample as ``METHOD-GUARANTEE.json``, for ``check --replay``, and its diagram as .svg.

        Args:
            folder: the folder, which is created; earlier files of the same names are replaced.

        Returns:
            The JSON files.
        """
        from paceline.checking.counterexamples import save, svg_diagram

        written = []
        for method, verdict in self.violated:
            assert verdict.violation is not None, "that is what violated means"
            path = Path(folder) / f"{method}-{verdict.guarantee}.json"
            story = save(verdict.violation, path)
            write_whole(path.with_suffix(".svg"), svg_diagram(story))
            written.append(path)
        return written

    def _shown(self) -> Iterator[Table | str]:
        """Yields a table for each method, and a sentence for each violation."""
        for one in self:
            yield _table(one)
            yield from one.coverage
        for method, verdict in self.violated:
            assert verdict.violation is not None, "that is what violated means"
            yield f"{method} violates {verdict.guarantee}: {verdict.violation.words}"

    def _report(self, html: Any) -> Any:
        from paceline.checking.counterexamples import load_counterexample
        from paceline.reports.results.check_answer import check_answer

        with tempfile.TemporaryDirectory() as folder:
            found = [load_counterexample(path) for path in self.save(folder)]
        return html.report_of_check(found, [check_answer(one, {}) for one in self])

    @property
    def _report_name(self) -> str:
        return f"{self[0].method.name}-check.html" if len(self) == 1 else "check.html"


def _table(found: Checked) -> Table:
    from rich.text import Text

    table = plain_table(f"{found.method.name}: {found.schedules:,} schedules", first="guarantee")
    table.add_column("verdict")
    table.add_column("schedules", justify="right")
    table.add_column("worst value")
    for one in found.verdicts.values():
        table.add_row(
            one.guarantee, Text(one.verdict), f"{one.schedules:,}", "" if one.worst is None else str(one.worst)
        )
    return table
