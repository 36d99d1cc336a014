"""Explains where the predicted time of a step goes, and which change would shorten it most.

Read `explain` first, then `rows`.
"""
