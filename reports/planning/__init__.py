"""The planner behind ``paceline plan``: searches for the method, cluster and hyper-parameters of least time or cost.

Read `search_space` first, then `objectives`, `study` and `planner`.
"""
