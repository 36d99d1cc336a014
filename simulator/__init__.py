"""The SimPy interpreter. Read `interpreter` first, then `strands`, then `network`, then `run`."""
