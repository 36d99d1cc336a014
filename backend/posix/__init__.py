"""Operating system services: locks, FIFO events, run folders in /dev/shm, signals, network namespaces.

Read `run_folders` first. This package does not depend on ranks or methods.
"""
