"""Agents that people configure on the page: kept, checked, previewed, run."""
