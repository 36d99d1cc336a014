"""The network engine: max-min fair sharing of links among flows.

Read `max_min` first (the solver), then `flow_engine`.
"""
