"""`geminorum web`."""
