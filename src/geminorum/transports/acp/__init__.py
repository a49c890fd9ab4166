"""The warm Gemini CLI: one process for many turns, over the Agent Client Protocol."""
