"""Operating system services: locks, FIFO events, run folders in /dev/shm, signals, network namespaces.

Read `run_folders` first. Nothing here knows ranks or methods.
"""
