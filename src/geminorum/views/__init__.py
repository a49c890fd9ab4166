"""Pure folds over events: what a run amounts to, seen from one side each."""
