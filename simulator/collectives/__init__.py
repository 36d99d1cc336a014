"""Collective algorithms as message patterns, and the time that they take on a network.

Read `patterns` first, which defines patterns, then `execution`, the state machine that carries them out.
"""
