"""Permissions in the CLI's words: policy files, and what they say about a call."""
