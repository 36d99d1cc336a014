"""The parts of all methods: operations, values, programs, gradient transforms, guarantees.

Read `operations` first, then `program` and `method`.
"""
