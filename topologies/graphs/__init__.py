"""Cluster graphs: networks, the insides of machines, named systems, routing.

Read `graph` first, then `network_graphs` and `systems`.
"""
