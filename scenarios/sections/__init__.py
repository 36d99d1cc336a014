"""One module per section of a scenario file.

Read `workload` first, then `clusters`.
"""
