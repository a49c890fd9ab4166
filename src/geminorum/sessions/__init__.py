"""Conversations that the Gemini CLI has saved: find, list, load, delete and fork them."""

from geminorum.sessions.finding import find, load
from geminorum.sessions.finding import listed as list
from geminorum.sessions.glance import SessionInfo
from geminorum.sessions.keeping import delete, fork
from geminorum.sessions.reading import Session

__all__ = ["Session", "SessionInfo", "delete", "find", "fork", "list", "load"]
