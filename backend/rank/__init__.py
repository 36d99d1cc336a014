"""One rank's process: it runs the program and performs its operations.

Read `interpreter` first, then `communication`.
"""
