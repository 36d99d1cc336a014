"""How long unpaced runs of a study take: long enough to average over changes of the machine, in the given time.

The speed of a shared machine changes from second to second, so runs of a second or two measure such a change. All
unpaced runs get the same real time, which follows from the time that is left:

    left = Σ over settings of f · (rounds of probes + runs · (round + start + (1 + simulated) · time of a run))

The factor f, and the ratio of real to guessed times of runs, are those of the settings that are finished. So the
guesses below decide only about the first setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.validation.fidelity.settings import DEVICE_BATCH, Setting

SHORTEST_S, LONGEST_S = 2.0, 12.0
"""real seconds of an unpaced run; the longest is what a complete study without a limit of time takes; our choice"""
TRAINED = 1437
"""the training samples of digits"""
STEP_S = {"digits-mlp": 0.0014, "digits-cnn": 0.004, "wide-mlp": 0.0045}
"""a worker's step with a core for each worker, the mean over methods; digits-mlp and wide-mlp: measured on a virtual
machine with two cores (docs/results/fidelity.md); digits-cnn: INFERENCE, between them
"""
START_S, ROUND_S = 3.0, 10.0
"""seconds of starting a run and simulating its beginning, and of a round of probes; INFERENCE: a round starts about
four launches of probes; corrected by the factor of the finished settings
"""
ROUNDS, ROUNDS_PACED = 3, 5
"""rounds of probes before the first run; unpaced runs have another one before each run"""
SIMULATED = 2.0
"""seconds of simulations for a second of an unpaced run; INFERENCE: three simulations compute each gradient once, on
one core, where the run computes them on all cores and also exchanges messages
"""
SIMULATED_PACED = 0.3
"""the same of a paced run, whose workers mostly wait; INFERENCE"""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a finished setting says about time.

    Args:
        setting: the setting.
        runs: the number of its measured runs.
        length: of its runs.
        run_s: the mean real time of its runs.
        seconds: the time of the whole setting.
    """

    setting: Setting
    runs: int
    length: int
    run_s: float
    seconds: float


def guess_s(setting: Setting, cores: int) -> float:
    """Returns the real time of a run of length 1, guessed from typical steps.

    Args:
        setting: the setting.
        cores: the cores of the machine.

    >>> from paceline.validation.fidelity.settings import standard_settings
    >>> round(guess_s(standard_settings(2)[1], 2), 2)
    1.62
    """
    if setting.paced:
        slowest_ms = max(step_ms for _, step_ms in setting.nodes)
        step_s = slowest_ms * (0.2 + 0.8 * setting.batch / DEVICE_BATCH) / 1000
    else:
        step_s = STEP_S[setting.model] * max(1.0, setting.workers / cores)
    return setting.epochs * TRAINED / (setting.batch * setting.workers) * step_s


@dataclass(frozen=True, slots=True)
class Times:
    """Times of the settings of a study on this machine.

    Args:
        cores: the cores of the machine.
        seeds: of each configuration.
        slower: real time of unpaced runs / the guess.
        factor: time of whole settings / the estimate.
    """

    cores: int
    seeds: int
    slower: float = 1.0
    factor: float = 1.0

    @staticmethod
    def of(finished: Iterable[Finished], cores: int, seeds: int) -> Times:
        """Returns the times that the finished settings imply: geometric mean of runs, ratio of the sums of settings."""
        finished = list(finished)
        ratios = [
            math.log(each.run_s / (guess_s(each.setting, cores) * each.length))
            for each in finished
            if not each.setting.paced and each.run_s > 0
        ]
        slower = math.exp(math.fsum(ratios) / len(ratios)) if ratios else 1.0
        expected_s = math.fsum(_whole_s(each.setting, each.runs, each.run_s) for each in finished)
        factor = math.fsum(each.seconds for each in finished) / expected_s if expected_s else 1.0
        return Times(cores, seeds, slower, factor)

    def run_s(self, setting: Setting, length: int) -> float:
        """Returns the expected real time of a run."""
        guess = guess_s(setting, self.cores)
        return guess if setting.paced else self.slower * guess * length

    def length(self, setting: Setting, run_s: float) -> int:
        """Returns the length of runs that take about `run_s` seconds; 1 for paced ones, whose devices give the time."""
        return 1 if setting.paced else max(1, round(run_s / self.run_s(setting, 1)))

    def seconds(self, setting: Setting, run_s: float) -> float:
        """Returns the expected time of a whole setting whose unpaced runs take `run_s` seconds."""
        real_s = self.run_s(setting, self.length(setting, run_s))
        return self.factor * _whole_s(setting, len(setting.methods) * self.seeds, real_s)

    def affordable_s(self, settings: Sequence[Setting], left_s: float | None) -> float:
        """Returns the real time of each unpaced run with which the settings take the time that is left.

        Args:
            settings: the settings that are left.
            left_s: the time; None: as much as they need.

        Returns:
            Seconds, `SHORTEST_S` to `LONGEST_S`.

        >>> from paceline.validation.fidelity.settings import standard_settings
        >>> times = Times(cores=2, seeds=2)
        >>> times.affordable_s(standard_settings(2), None), times.affordable_s(standard_settings(2), 60.0)
        (12.0, 2.0)
        """
        if left_s is None:
            return LONGEST_S
        fixed_s, runs = 0.0, 0
        for setting in settings:
            count = len(setting.methods) * self.seeds
            fixed_s += _whole_s(setting, count, self.run_s(setting, 1) if setting.paced else 0.0)
            runs += 0 if setting.paced else count
        if not runs:
            return LONGEST_S
        return min(max((left_s / self.factor - fixed_s) / (runs * (1 + SIMULATED)), SHORTEST_S), LONGEST_S)


def _whole_s(setting: Setting, runs: int, run_s: float) -> float:
    simulated = SIMULATED_PACED if setting.paced else SIMULATED
    before_s, each_s = (ROUNDS_PACED * ROUND_S, 0.0) if setting.paced else (ROUNDS * ROUND_S, ROUND_S)
    return before_s + runs * (each_s + START_S + (1 + simulated) * run_s)
