"""Codes of notices that no exception stands for, and what to do about them."""

from __future__ import annotations

from geminorum.hints import advice

PARSE_ERROR = "NDJSON_PARSE_ERROR"
NOBODY_TO_ASK = "NOBODY_TO_ASK"
ALLOW_BEFOREHAND = advice(
    "allow it beforehand: [{Options.policy=Policy(…)}][, {Options.allowed_tools}]"
    "[ or {Options.approval}]"
)
