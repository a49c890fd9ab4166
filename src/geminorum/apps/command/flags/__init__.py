"""What was typed: flags, and the options and transport that they ask for."""
