"""Agents on many machines: jobs in a PostgreSQL database, workers that run them.

```python
async with Fleet() as fleet:
    job = await fleet.submit("Fix the failing test", Options(approval="auto_edit"), workspace=".")
    async for event in job.events(): ...
    result = await job.result()
```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminorum.fleet.client import Fleet as Fleet
    from geminorum.fleet.client import Job as Job
    from geminorum.fleet.client import JobRequest as JobRequest
    from geminorum.fleet.rows import JobInfo as JobInfo
    from geminorum.fleet.worker import Worker as Worker

# Loaded when first used: an embedded database needs none of them.
_EXPORTS = {
    "Fleet": "client",
    "Job": "client",
    "JobInfo": "rows",
    "JobRequest": "client",
    "Worker": "worker",
}
__all__ = ["Fleet", "Job", "JobInfo", "JobRequest", "Worker"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
