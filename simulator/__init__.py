"""The SimPy interpreter. Read `interpreter` first, then `network`, then `run`."""
