"""The CLI's session files: records, turns, events, and how to repair them."""
