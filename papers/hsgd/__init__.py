"""The claims of HSGD."""
