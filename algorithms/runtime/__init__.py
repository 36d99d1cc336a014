"""The semantics that all interpreters share: an interpreter adds time and transport.

Handles, the stop rule, the log of updates, matching of collectives, message snapshots, and the errors of programs.
Read `handles` first, then `stop_rule`, `update_log`, `collective_matching` and `program_errors`.
"""
