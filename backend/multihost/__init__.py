"""Runs whose processes torchrun, mpirun or srun have started, on one host or several.

Read `external_launch` first, then `world` and `host_sync`.
"""
