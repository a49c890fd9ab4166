"""JSON for other front ends, with the rights of the pages."""
