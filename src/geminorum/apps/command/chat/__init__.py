"""`geminorum chat`."""
