"""Collective algorithms as message patterns, and how long they take on a network.

Read `rounds` first, then `patterns` and `performance`.
"""
