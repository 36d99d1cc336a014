"""The semantics that all interpreters share: an interpreter adds time and transport.

Handles, messages, the stop rule, the log of updates, matching of collectives, and the errors of programs. Read
`handles` first, then `mail`, `stop_rule`, `update_log`, `collective_matching` and `program_errors`.
"""
