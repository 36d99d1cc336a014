"""The methods, one file per family.

Read `baseline` first: it is the shortest. `registry` maps names to classes.
"""
