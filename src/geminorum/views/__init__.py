"""Views of a run: pure functions of its events."""
