"""Horovod's README of September 2017: parameter servers of TensorFlow and all-reduces on the same machines.

One GPU is given. Besides the images per second, the order of both methods is what users want to know.
"""

from __future__ import annotations

from paceline.validation.sets import of_steps, reports

SET = of_steps(
    name="horovod",
    title="Horovod's README of 2017: one GPU to 16, by parameter servers and by all-reduces",
    file="horovod_readme.csv",
    columns=reports.SET.columns,
    aim=(0.25, None),
    row=reports.row_of,
    in_sight=True,
)
