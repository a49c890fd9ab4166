"""What a contract's users write for what a hint of the library names: keys of their own."""

from __future__ import annotations

from collections.abc import Mapping

from geminorum.adapter_parts import Vocabulary

_SHARED = {
    "install": "python -m geminorum.install",
    "set_key": "set GEMINI_API_KEY",
    "unset": "leave it out for",
}
_TRANSPORTS = ("Cli", "Acp", "Api", "Pool")
_PATHS = ("Options.cwd", "Options.home")
_OPEN = ("", "…")


def vocabulary(keys: Mapping[str, str], *, takes_options: bool) -> Vocabulary:
    """The words of a contract with these keys; "Options.timeout=None" is for that value only.

    `takes_options`: it has parameters `base` and `via` for all that it has no key for.
    """

    def word(name: str, value: str) -> str | None:
        exact = keys.get(f"{name}={value}")
        key = keys.get(name) or _SHARED.get(name)
        if exact or key is None:
            return exact or (_in_parameters(name, value) if takes_options else None)
        if name not in _PATHS or value in _OPEN:
            return key
        return f"{key}: {value!r}" if key.endswith('"') else f"{key}={value!r}"

    return word


def _in_parameters(name: str, value: str) -> str | None:
    if name == "via.cli":
        return "via=Cli()"
    owner, _, field = name.partition(".")
    shown = repr(value) if name in _PATHS and value not in _OPEN else value or "…"
    if owner == "Options":
        return f"base=Options({field}={shown})"
    return f"via={owner}({field}={shown})" if owner in _TRANSPORTS else None
