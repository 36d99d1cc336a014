"""Grids of simulated scenarios: rows, tables, figures and a conclusion in sentences.

Read `sweep` first.
"""
