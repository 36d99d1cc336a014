"""Real runs of a scenario: start, checkpoint, resume, and the Slurm script.

Read `run` first, which defines `train`.
"""
