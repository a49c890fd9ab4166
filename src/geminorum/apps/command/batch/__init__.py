"""`geminorum batch`."""
