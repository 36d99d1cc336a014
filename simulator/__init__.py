"""The SimPy interpreter: predicts a run in virtual time.

Read `interpreter.interpreter` first, then `kernel.lanes`, `network.network` and `runs.run`.
"""
