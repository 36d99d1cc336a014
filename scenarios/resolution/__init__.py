"""From a file to a checked `Scenario`, and from there to one plan per run.

Read `schema` first, then `load_scenario` and `plan`.
"""
