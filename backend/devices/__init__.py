"""The devices of ranks: CPU cores or a GPU, core affinity, and the check for NaN.

Read `accelerator` first, then `cpu_affinity`.
"""
