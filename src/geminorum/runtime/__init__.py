"""How the code runs: event loop, threads, imports, typed decoding."""
