"""Which promises hold on which version of the Gemini CLI: `make test-versions` finds out."""
