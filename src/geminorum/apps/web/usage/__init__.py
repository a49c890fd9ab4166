"""Tokens and dollars as the page shows them: which days, by what, in tables and charts."""
