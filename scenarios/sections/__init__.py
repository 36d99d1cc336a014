"""The sections of a scenario: mappings in a file, and classes in code.

Read `workload` first, then `clusters`; `values.section` holds what all sections share.
"""
