"""The protocols by which a CLI calls us: MCP, and the BeforeTool hook."""
