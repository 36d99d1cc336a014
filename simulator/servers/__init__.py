"""Runs methods with a server in one compiled event loop, derived from the methods' own programs.

`templates` records the operations of a program as a tree with symbolic numbers; `event_loop` replays trees in machine
code, with the events and their order as in `simulator.interpreter`. Read `symbols` first, then `templates`.
"""
