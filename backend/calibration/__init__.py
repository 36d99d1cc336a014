"""Measures what messages, collectives, storage and emulated networks cost on this machine.

Read `message_costs` first, then `probes`.
"""
