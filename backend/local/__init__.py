"""Starts the ranks of a run as local processes.

Read `launch` first, then `worker`.
"""
