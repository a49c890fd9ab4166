"""Everything that the start of a CLI fixes: folder, variables, settings, policies, command."""
