"""Defaults of a check, for the command and for Python. This module imports nothing, so that help texts are quick."""

SCHEDULES, WORKERS, STEPS, SEED = 1000, 4, 6, 1
"""random schedules of a method, the largest number of workers, steps of a worker, and the seed; provenance: ours"""
EVERY_ORDER_WORKERS, EVERY_ORDER_STEPS, EVERY_ORDER_MOST = 2, 2, 100_000
"""the same of an exhaustive check, of which the last is the limit of orders for each number of workers; provenance:
ours"""
FOLDER = "counterexamples"
"""the folder of counterexamples"""
