"""Supervises the ranks of a run: detects dead, stopped and hung processes, and collects the ranks' records.

Read `supervisor` first, then `monitors`.
"""
