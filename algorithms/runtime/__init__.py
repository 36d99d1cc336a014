"""The semantics that all interpreters share: an interpreter adds time and transport.

Handles, messages, the stop rule, updates and their owner, matching of collectives, and the errors of programs. Read
`handles` first, then `mail`, `stop_rule`, `weights_owner`, `collective_matching` and `program_errors`.
"""
