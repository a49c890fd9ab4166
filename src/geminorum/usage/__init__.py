"""Usage reports from saved sessions: tokens and cost, each request counted once.

```python
report(by="day", since=date(2026, 11, 1), tz="Europe/Berlin").table()
```
"""

from geminorum.usage.ledger import By, Ledger, report
from geminorum.usage.tally import Problem, Report, Row

__all__ = ["By", "Ledger", "Problem", "Report", "Row", "report"]
