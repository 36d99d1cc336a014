"""Real runs of a scenario: start, checkpoint, resume, and the Slurm script.

Read `run` first; `train` is there.
"""
