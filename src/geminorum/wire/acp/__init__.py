"""What a warm CLI says over the Agent Client Protocol, to events; and what it is told."""
