"""The devices of ranks: CPU cores or a GPU, and core affinity.

Read `accelerator` first, then `cpu_affinity`.
"""
