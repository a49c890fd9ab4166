"""Text without the secrets that the environment holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.I)
_SECRET_SHAPE = re.compile(
    r"AIza[0-9A-Za-z_-]{30,}"
    r"|ya29\.[0-9A-Za-z_-]{20,}"
    r"|(?<=Bearer )[0-9A-Za-z._~+/-]{16,}=*"
    r"|(?<=[?&]key=)[0-9A-Za-z_-]{8,}"
)
_SHORTEST = 6
"""Shorter values ("1", "true") are no secrets, and taking them out would tear the text."""


def secrets_in(env: Mapping[str, str]) -> list[str]:
    """The values of variables whose names speak of secrets, the longest first."""
    values = {v for k, v in env.items() if _SECRET_NAME.search(k) and len(v) >= _SHORTEST}
    return sorted(values, key=len, reverse=True)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret, and everything that looks like a Google key, blacked out."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return _SECRET_SHAPE.sub("[redacted]", text)
