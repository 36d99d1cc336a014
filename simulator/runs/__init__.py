"""Simulated runs of a scenario, dry runs and extrapolation.

Read `run` first, which contains `simulate`.
"""
