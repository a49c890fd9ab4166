"""Pure translation between our words and theirs. Nothing here opens a file or waits."""
