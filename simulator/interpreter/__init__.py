"""The SimPy interpreter: performs the operations of all ranks in virtual time.

Read `interpreter` first, then `compute` and `mail`.
"""
