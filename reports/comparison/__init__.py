"""Predictions compared with measurements: errors, ties, the figure and the conclusion.

Read `compare` first, then `comparison`.
"""
