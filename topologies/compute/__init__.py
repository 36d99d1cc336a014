"""How long a gradient takes on a device, and whether a model fits into its memory.

Read `roofline` first.
"""
