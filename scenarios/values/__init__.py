"""The values of scenario keys: units, ranges, limits, and how mistakes are reported.

Read `fields` first, then `mistakes`.
"""
