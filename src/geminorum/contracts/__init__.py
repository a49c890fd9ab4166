"""Adapters for five existing interfaces, thin layers over the core."""
