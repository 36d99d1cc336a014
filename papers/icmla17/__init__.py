"""The claims of hierarchical bulk-synchronous SGD (ICMLA 2017)."""
