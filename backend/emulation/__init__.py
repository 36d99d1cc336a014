"""Emulated networks: hosts as network namespaces of this machine, joined by shaped links.

Read `emulated_network` first, then `forwarder`.
"""
