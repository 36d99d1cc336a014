"""Work that a device is doing: its stages so far, and its end when the device crashes, is slowed down or is shared.

A timeline knows the crashes and slowdowns of the device in advance. What else runs on the device is known only when it
begins, so the end is computed again at every change of the processor's speed.
"""

from __future__ import annotations

import simpy

from paceline.simulator.kernel.crash_timeline import Life, State, Stretch, Timeline
from paceline.simulator.kernel.lanes import Steps
from paceline.simulator.kernel.shared_processor import SharedProcessor


class DeviceWork:
    """One piece of work.

    Args:
        env: the run's clock.
        timeline: the crashes and slowdowns of the device.
        state: its state.
        work_s: the work, in seconds at full speed.
    """

    def __init__(self, env: simpy.Environment, timeline: Timeline, state: State, work_s: float) -> None:
        self._env, self._timeline, self._left_s = env, timeline, work_s
        self.state, self.stretches = state, list[Stretch]()

    def run(self, processor: SharedProcessor | None) -> Steps:
        """Waits until the work is done. If it is cancelled, the stages until then are known and the state is that.

        Args:
            processor: what the device shares with other activities; None: nothing.
        """
        while True:
            begun_s, speed = self._env.now, 1.0 if processor is None else processor.speed("compute")
            whole = self._timeline.live(self.state, begun_s, self._left_s / speed)
            end = self._env.timeout(max(0.0, whole.end_s - begun_s))
            try:
                yield end if processor is None else end | processor.changed
            except simpy.Interrupt:
                self._book(self._until_now(begun_s, speed), speed)
                raise
            if self._env.now >= whole.end_s:
                return self._book(whole, speed)
            self._book(self._until_now(begun_s, speed), speed)

    def _until_now(self, begun_s: float, speed: float) -> Life:
        return self._timeline.live(self.state, begun_s, self._left_s / speed, until_s=self._env.now)

    def _book(self, life: Life, speed: float) -> None:
        self.state, self._left_s = life.state, life.left_s * speed
        self.stretches += life.stretches
