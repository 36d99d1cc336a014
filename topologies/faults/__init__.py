"""Jitter, stragglers, crashes and link faults, as frozen values.

Read `jitter` first, then `worker_faults`.
"""
