"""The claims of DBS-SGD."""
