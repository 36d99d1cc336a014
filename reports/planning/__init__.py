"""The planner behind ``paceline plan``: searches for the method, cluster and hyper-parameters of least time or cost.

Read `request` first, then `search_space`, `search`, `planner` and `plan_answer`.
"""
