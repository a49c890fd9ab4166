"""`geminorum fleet`, `worker`, `submit` and `jobs`: agents on many machines."""
