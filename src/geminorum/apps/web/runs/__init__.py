"""Runs that were started from the page: what is kept of them, and those that go on."""
