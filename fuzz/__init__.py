"""Mutated recordings against every decoder: `make fuzz`."""
