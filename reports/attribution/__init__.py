"""Divides the time of steps among activities, and the difference of two runs' steps among the activities that cause it.

Read `timeline` first, then `step_differences` and `error_sources`.
"""
