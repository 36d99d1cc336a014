"""The clock, the lanes that programs run on, and timing of a rank's own work.

Read `lanes` first, then `clock` and `simpy_events`.
"""
