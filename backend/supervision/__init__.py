"""Detects dead, stopped and hung ranks, and gathers the ranks' records.

Read `supervisor` first, then `liveness`.
"""
