"""Devices, storage and communication libraries by name, each value with its provenance.

Read `device_catalogue` first.
"""
