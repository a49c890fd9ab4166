"""`python -m geminorum` is the command `geminorum`."""

import sys

from geminorum.apps.command import main

if __name__ == "__main__":
    sys.exit(main())
