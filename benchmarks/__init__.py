"""What geminorum costs: start, stream, memory, import. `python -m benchmarks` prints the table."""
