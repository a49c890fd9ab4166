"""Thin faces over the one core, one for each shape that other frameworks plug into."""
