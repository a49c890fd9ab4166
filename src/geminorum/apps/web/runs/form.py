"""The form that starts a run: what was typed to a request, or what is wrong at which field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from geminorum import Options
from geminorum.apps.web.hinting import page_hint
from geminorum.apps.web.runs.runs import RunRequest
from geminorum.apps.web.settings import WebSettings
from geminorum.errors import InvalidOptions

APPROVALS = {
    "default": "Ask me first",
    "auto_edit": "Edit files without asking",
    "plan": "Read and plan only",
    "yolo": "Do everything without asking",
}
EFFORTS = ("", "minimal", "low", "medium", "high", "xhigh", "max")
VIAS = {"cli": "CLI", "acp": "CLI, over ACP", "api": "API"}
_NUMBERS: dict[str, tuple[Callable[[str], float], str]] = {
    "max_budget_usd": (float, "a number of dollars"),
    "timeout": (float, "a number of seconds"),
    "max_turns": (int, "a whole number"),
}
_TEXTS = ("model", "approval", "effort", "resume", "system_prompt")


class FormErrors(Exception):
    """What is wrong with a form, by field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(", ".join(errors))
        self.errors = dict(errors)


def request_of(form: Mapping[str, Any], settings: WebSettings) -> RunRequest:
    """The run that was asked for; raises FormErrors."""
    typed = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    errors: dict[str, str] = {}
    if not typed.get("prompt"):
        errors["prompt"] = "say what the agent should do"
    if (via := typed.get("via") or next(iter(settings.transports))) not in settings.transports:
        errors["via"] = f"choose one of {', '.join(settings.transports)}"
    values = {**_folder(typed, settings, errors), **_numbers(typed, errors)}
    values |= {name: typed[name] for name in _TEXTS if typed.get(name)}
    options = _options(settings.options, values, errors)
    if errors:
        raise FormErrors(errors)
    return RunRequest(prompt=typed["prompt"], options=options, via=via)


def _folder(
    typed: Mapping[str, str], settings: WebSettings, errors: dict[str, str]
) -> dict[str, str]:
    folder = Path(typed.get("folder") or settings.folder)
    with suppress(RuntimeError):  # `~nobody`
        folder = folder.expanduser()
    if not folder.is_absolute() or not folder.is_dir():
        errors["folder"] = "write the whole path of a folder on this machine"
    return {"cwd": str(folder)}


def _numbers(typed: Mapping[str, str], errors: dict[str, str]) -> dict[str, float]:
    values = {}
    for name, (kind, words) in _NUMBERS.items():
        if text := typed.get(name):
            try:
                values[name] = kind(text)
            except ValueError:
                errors[name] = f"write {words}, or nothing for no limit"
    return values


def _options(options: Options, values: Mapping[str, Any], errors: dict[str, str]) -> Options:
    """The options with these values, one by one: so each error is known to belong to its field."""
    for name, value in values.items():
        try:
            options = options.changed(**{name: value})
        except InvalidOptions as error:
            field = "folder" if name == "cwd" else name
            errors.setdefault(
                field, "; ".join(filter(None, [error.message, page_hint(error.hint)]))
            )
    return options
