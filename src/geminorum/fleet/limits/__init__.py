"""Limits over all workers of a fleet: who sets them, and how each request to a model is counted."""
