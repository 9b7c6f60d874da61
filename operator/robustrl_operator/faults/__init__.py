"""Faults as a product: the kinds there are, how each strikes, and what must follow (the fault matrix)."""
