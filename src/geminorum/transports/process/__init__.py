"""Processes: whole trees of them, supervised, with their output, input and memory."""
