"""Tables and figures of staleness.

Read `staleness_tables` first.
"""
