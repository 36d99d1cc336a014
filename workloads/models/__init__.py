"""The built-in models: their modules, layer tables and initial weights.

Read `layer_tables` first, then `zoo`.
"""
