"""The planner behind ``paceline plan``: searches methods, clusters and hyper-parameters for the least time, cost or energy.

Read `search_space` first, then `objectives`, `study` and `planner`.
"""
