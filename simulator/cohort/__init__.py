"""The vectorised interpreter: runs one program for a whole class of ranks, with arrays of times and values over them.

Read `simulate` first, then `values`, `classes` and `collectives`.
"""
