"""The headless Gemini CLI: one process per turn, some of them started ahead."""
