"""Collective algorithms as message patterns, and the time that they take on a network.

Read `rounds` first, which defines patterns, then `state_machine`, which executes them, and its two drivers,
`standalone` and `event_driver`. `contention` chooses between the drivers during a run.
"""
