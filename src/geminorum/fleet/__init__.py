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
    from geminorum.fleet.address import Initialised as Initialised
    from geminorum.fleet.address import database_url as database_url
    from geminorum.fleet.address import initialise as initialise
    from geminorum.fleet.address import shown_url as shown_url
    from geminorum.fleet.client import Fleet as Fleet
    from geminorum.fleet.client import Job as Job
    from geminorum.fleet.client import JobRequest as JobRequest
    from geminorum.fleet.jobs.details import AttemptInfo as AttemptInfo
    from geminorum.fleet.jobs.details import JobDetails as JobDetails
    from geminorum.fleet.jobs.reports import WorkerReport as WorkerReport
    from geminorum.fleet.jobs.rows import JobInfo as JobInfo
    from geminorum.fleet.limits.rules import Limit as Limit
    from geminorum.fleet.limits.rules import LimitInfo as LimitInfo
    from geminorum.fleet.limits.rules import key_fingerprint as key_fingerprint
    from geminorum.fleet.retention import Pruned as Pruned
    from geminorum.fleet.status import FleetStatus as FleetStatus
    from geminorum.fleet.status import TenantInfo as TenantInfo
    from geminorum.fleet.status import WaitInfo as WaitInfo
    from geminorum.fleet.status import WorkerInfo as WorkerInfo
    from geminorum.fleet.workers.worker import Worker as Worker

# Loaded when first used: an embedded database needs none of them.
_EXPORTS = {
    "AttemptInfo": "jobs.details",
    "Fleet": "client",
    "FleetStatus": "status",
    "Initialised": "address",
    "Job": "client",
    "JobDetails": "jobs.details",
    "JobInfo": "jobs.rows",
    "JobRequest": "client",
    "Limit": "limits.rules",
    "LimitInfo": "limits.rules",
    "Pruned": "retention",
    "TenantInfo": "status",
    "WaitInfo": "status",
    "Worker": "workers.worker",
    "WorkerInfo": "status",
    "WorkerReport": "jobs.reports",
    "database_url": "address",
    "initialise": "address",
    "key_fingerprint": "limits.rules",
    "shown_url": "address",
}
__all__ = [
    "AttemptInfo",
    "Fleet",
    "FleetStatus",
    "Initialised",
    "Job",
    "JobDetails",
    "JobInfo",
    "JobRequest",
    "Limit",
    "LimitInfo",
    "Pruned",
    "TenantInfo",
    "WaitInfo",
    "Worker",
    "WorkerInfo",
    "WorkerReport",
    "database_url",
    "initialise",
    "key_fingerprint",
    "shown_url",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
