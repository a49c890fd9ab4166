"""A simulated model, so that everything can be tried without an account or a network."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from geminorum.apps.command.failures import broken
from geminorum.apps.command.flags.table import Via
from geminorum.apps.command.render.output import Showing
from geminorum.testing import Call, FakeGemini, Request, Say

if TYPE_CHECKING:
    from geminorum import Options

NOTICE = "offline: a simulated model answers; nothing is sent, nothing is billed"
_WRITE = re.compile(r"\b(write|create|make|save|edit)\b", re.IGNORECASE)
_LOOK = re.compile(r"\b(list|look|folder|files?|directory)\b", re.IGNORECASE)
_FILE = re.compile(r"[\w./-]+\.\w+")


def tell_so(how: Showing) -> None:
    """Says that the model is simulated: its words must not be taken for Gemini's."""
    if not how.quiet:
        sys.stderr.write(f"{broken(NOTICE, 0)}\n")


@contextmanager
def simulate_model(options: Options, via: Via) -> Iterator[Options]:
    """The options with which a run talks to the simulated model and to nothing else."""
    with FakeGemini() as fake:
        teach(fake)
        env = {**options.env, **fake.env}
        if via is Via.API:
            yield options.changed(env=env)
        else:
            yield options.changed(env=env, home=options.home or fake.home)


def teach(fake: FakeGemini) -> None:
    """What the simulated model knows: to write a file, to look around, to say so."""
    fake.whenever(_writes).reply(_call_write).reply(_report)
    fake.whenever(_looks).reply(_call_list).reply(_report)
    fake.whenever().reply(_answer)


def _writes(request: Request) -> bool:
    # Also where the CLI hides write_file: then the run shows that it is refused.
    has_tools = not {"write_file", "list_directory"}.isdisjoint(request.tools)
    return has_tools and _WRITE.search(request.prompt) is not None


def _looks(request: Request) -> bool:
    return "list_directory" in request.tools and _LOOK.search(request.prompt) is not None


def _call_write(request: Request) -> Say:
    # The last one: before it, a chat may tell which files were put back.
    *_, path = ["hello.txt", *_FILE.findall(request.prompt)]
    # A name and never a path: a prompt in play should not write outside its folder.
    arguments = {"file_path": path.rsplit("/", 1)[-1], "content": _POEM}
    thoughts = ("You want a file. I know a poem that fits.",)
    return Say(thoughts=thoughts, calls=(Call("write_file", arguments),))


def _call_list(request: Request) -> Say:
    thoughts = ("First I look around.",)
    return Say(thoughts=thoughts, calls=(Call("list_directory", {"dir_path": "."}),))


def _report(request: Request) -> Say:
    failed = [result for result in request.tool_results if "error" in result.response]
    if failed and failed[0].name not in request.tools:
        return Say((_HIDDEN.format(failed[0].name),))
    if failed:
        return Say((f"That did not work: {failed[0].response['error']}",))
    return Say(("That is done. ", "(I am a **simulated model**: I always do the same.)"), drip=0.05)


def _answer(request: Request) -> Say:
    quoted = " ".join(request.prompt.split())[:200]
    words = (
        f"You said: *{quoted}*\n\n",
        *_suggestions(request),
        "With a key or a login, the same command talks to Gemini.",
    )
    return Say(words, thoughts=("A question. I shall answer it plainly.",), drip=0.05)


def _suggestions(request: Request) -> tuple[str, ...]:
    """What to try next: only what can work on the transport through which this request came."""
    if not request.tools:
        return (_NO_TOOLS,)
    # Not write_file: the CLI does not declare what may not be used, and the advice is to allow it.
    if "list_directory" not in request.tools:
        return (_OTHER_TOOLS,)
    return (
        "I am a **simulated model**. I can pretend to work; try\n\n",
        "- `list the files`\n",
        "- `write a poem to poem.txt`, with `--approval auto_edit` so that I may\n\n",
    )


_HIDDEN = "`{}` was refused. To let me write files, add `--approval auto_edit`."
_NO_TOOLS = """I am a **simulated model**. Here I have no tools, so all that I can do is talk.
To see me work, leave `--via api` out, and try `list the files`.

"""
_OTHER_TOOLS = """I am a **simulated model**. I know only `list_directory` and `write_file`;
to see me work, allow the first of them.

"""
_POEM = """A pipe holds so much,
and no more; what comes after
waits, or is not heard.
"""
