"""The web page `geminorum web`; it uses the library's public names only."""
