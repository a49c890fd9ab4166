"""Processes that many conversations share: warm ones, or places for headless runs."""
