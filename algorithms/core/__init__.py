"""What every method is written with: operations, values, programs, gradient transforms, guarantees.

Read `operations` first, then `program` and `method`.
"""
