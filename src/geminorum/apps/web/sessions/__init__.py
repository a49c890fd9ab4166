"""Saved sessions as the page shows them: the list, one conversation, its timeline, its export."""
