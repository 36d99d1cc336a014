"""The status board in shared memory: what each rank is doing, its progress counters and its record.

Read `status_board` first, then `rank_status`.
"""
