"""The semantics that all interpreters share: staleness, matching of collectives, message snapshots.

Read `staleness_ledger` first, then `collective_matching`.
"""
