"""Collective algorithms as message patterns, and how long they take on a network.

Read `rounds` first (what a pattern is), then `state_machine` (how it is carried out) and its two drivers, `standalone`
and `event_driver`. `contention` chooses between the drivers during a run.
"""
