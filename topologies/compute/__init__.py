"""How long a gradient takes on a device, and whether a model fits into its memory.

Read `device_model` first.
"""
