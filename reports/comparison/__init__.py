"""Prediction beside measurement: errors, ties, the figure and the conclusion.

Read `compare` first.
"""
