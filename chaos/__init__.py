"""Seeded faults: each trial hurts one run in one way, and looks at what is left afterwards."""
