"""When agents end whose worker is silent, and when their jobs go to another worker.

The order of the three is what keeps a job from running twice: agents end `LEASE_SECONDS` after the
last heartbeat was *sent*, a worker is given up `LOST_SECONDS` after it was *received*, and nobody
takes a job over before that.
"""

BEAT_SECONDS, LEASE_SECONDS, LOST_SECONDS = 0.5, 2.0, 3.0
