"""Scripts that Node loads ahead of the CLI, and what prepares each."""
