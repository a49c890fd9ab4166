"""`geminorum run`, and what every command that sends prompts does: turns, offline models, undo."""
