"""Folders that travel: packed here, unpacked elsewhere, and their changes applied here again.

```python
home = Workspace("project")
there = Workspace.unpack(home.pack(), "/srv/job-7")    # on another machine
...                                                    # an agent works in there.folder
home.apply(there.diff())                               # all of it, or WorkspaceConflict
```
"""

from geminorum.workspace.archive import MAX_BYTES
from geminorum.workspace.folder import Applied, Workspace, pack
from geminorum.workspace.names import shown
from geminorum.workspace.opening import Opened
from geminorum.workspace.pack import Pack
from geminorum.workspace.patch import Change, Patch
from geminorum.workspace.tree import Entry

__all__ = [
    "MAX_BYTES",
    "Applied",
    "Change",
    "Entry",
    "Opened",
    "Pack",
    "Patch",
    "Workspace",
    "pack",
    "shown",
]
