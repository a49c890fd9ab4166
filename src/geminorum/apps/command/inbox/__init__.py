"""`geminorum inbox`: questions of agents, to be read and answered."""
