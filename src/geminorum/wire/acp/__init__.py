"""The Agent Client Protocol: messages of a warm CLI to events, and requests to it."""
