"""What turns of several transports share: limits, network, session file, bill."""
