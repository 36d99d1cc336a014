"""The clock, the tasks of a simulation, and the timing of a rank's own work.

Read `lanes` first, then `clock` and `simpy_events`.
"""
