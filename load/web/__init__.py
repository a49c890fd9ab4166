"""What the page of `geminorum web` carries, measured in a real browser."""
