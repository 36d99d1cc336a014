"""The samples of a batch: drawn in memory or read from a file.

Read `examples` first, then `drawing`.
"""
