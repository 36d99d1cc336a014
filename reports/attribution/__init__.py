"""Divides the time of steps among activities: what takes a predicted step's time, and what causes its error.

Read `timeline` first, then `explain`, `recording` and `rows` for one run, or `error_sources` for the difference of two.
"""
