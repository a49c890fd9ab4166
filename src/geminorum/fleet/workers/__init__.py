"""What a worker does: takes jobs, runs their agents, keeps its claims, frees those of the dead."""
