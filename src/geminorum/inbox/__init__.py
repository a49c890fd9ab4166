"""Approvals that wait: permission requests that people answer later, elsewhere.

```python
inbox = Inbox()
result = await ask("Fix the failing test", via=Cli(decide=inbox))

# In another process, or on another machine:
for question in await Inbox().questions():
    await Inbox().answer(question.id, Allow())
```
"""

from geminorum.inbox.client import Inbox
from geminorum.inbox.question import Answer, Question, State

__all__ = ["Answer", "Inbox", "Question", "State"]
