"""Grids of simulated scenarios: rows, tables, figures and the conclusion in words.

Read `sweep` first.
"""
