"""What has to hold after every fault, whatever it was; no I/O."""

from __future__ import annotations

import re
from typing import Any, get_args

from chaos.plan import SHARED_KINDS, Plan
from geminorum.events import Status

FINAL = frozenset(get_args(Status))
_BEFORE_US = "Could not import runpy module\n"
_NOISE = re.compile(
    r"Traceback|never retrieved|never awaited|Exception ignored|destroyed but|Warning:|Fatal Python"
)


def violations(plan: Plan, report: dict[str, Any], told: dict[int, int]) -> list[str]:
    """Of a process that lived to write its report; `told` are the words of each story that the
    stand-in had written, by its own account."""
    found = [f"left: {one}" for one in report["left"]]
    found += [f"not handled: {one}" for one in report["unhandled"]]
    for telling in report["tellings"]:
        found += of_telling(plan, telling, told.get(telling["number"], 0))
    return found + of_next(report["next"])


def of_telling(plan: Plan, telling: dict[str, Any], told: int) -> list[str]:
    found = []
    if telling["error"]:
        found.append(f"raised what is none of our errors: {telling['error']}")
    if telling["ending"] == "raised":
        return found
    if telling["status"] == "not begun":
        return found if telling["ending"] == "cancelled" else [*found, "neither run nor error"]
    found += _of_stream(telling)
    found += _of_text(plan, telling, told)
    return found


def _of_stream(telling: dict[str, Any]) -> list[str]:
    found = []
    if telling["status"] not in FINAL:
        found.append(f"ended with the status {telling['status']!r}")
    if telling["dones"] > 1 or (telling["ending"] == "end" and telling["dones"] != 1):
        found.append(f"{telling['dones']} Done events")
    elif telling["ending"] == "end" and not telling["ends_with_done"]:
        found.append("the Done is not the last event")
    return found


def _of_text(plan: Plan, telling: dict[str, Any], told: int) -> list[str]:
    whole, text = plan.story.text, telling["text"]
    if not whole.startswith(text):
        return [f"another text than the agent's: {text[-200:]!r}"]
    if telling["status"] == "success" and text != whole:
        return [f"success with {len(text)} of {len(whole)} characters"]
    if plan.agent == "real":
        return []  # What the real CLI has written is not known.
    least = telling["told_at_fault"]
    if plan.transport not in SHARED_KINDS:
        least = max(least, told)  # Nobody wrote after it was gone.
    if (count := text.count(" ")) < least:
        return [f"{count} words arrived of {least} that the agent had written"]
    return []


def of_next(telling: dict[str, Any] | None) -> list[str]:
    if telling is None:
        return ["there was no next run"]
    if telling["status"] != "success" or telling["error"] or telling["raised"]:
        why = telling["error"] or telling["raised"] or "; ".join(telling["errors"])
        return [f"the next run failed ({telling['status']}): {why}"]
    return []


def noise(stderr: str) -> list[str]:
    """What a process says when something went past everybody. Not what Python says that was
    interrupted before it had found our program."""
    if stderr.startswith(_BEFORE_US):
        return []
    return [f"on stderr: {stderr[-3000:]}"] if _NOISE.search(stderr) else []
