"""The network engine: max-min fair sharing of links among flows.

Read `flow_engine` first, the flows of a run, then `max_min`, the solver, and `fabric`, the paths that flows take.
"""
