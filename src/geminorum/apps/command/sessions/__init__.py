"""`geminorum sessions`, `usage` and `cost`: what was done, and what it cost."""
