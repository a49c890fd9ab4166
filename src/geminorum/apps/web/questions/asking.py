"""Which run asks a question."""

from __future__ import annotations

from geminorum.apps.web.runs.info import RunInfo
from geminorum.inbox import Question


def is_asked_by(question: Question, run: RunInfo) -> bool:
    """Is it this run that waits, or waited, for the answer?"""
    is_same_session = question.session_id is not None and question.session_id == run.session_id
    return is_same_session and question.asked_at >= run.started
