"""Files of calibrated machines: what calibration writes, and predictions read.

Read `machine_file` first.
"""
