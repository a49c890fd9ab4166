"""`geminorum doctor`, `setup`, `policy`, `skills`, `models`, `config` and `fake`."""
