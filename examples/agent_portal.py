"""A small portal for agents: edit an agent's config in a form, save it, check it, run it.

    python examples/agent_portal.py 8000                 # or: offline.py agent_portal.py 8000

The form is generated from `config_fields` of the `local_adapter` contract, so new settings of
geminorum appear automatically. Configs are JSON files in ./agents; only you can read them, because
they may contain keys. Only this machine can connect; put your own login in front of it for others.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import sys
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from geminorum.contracts.local_adapter import (
    ADAPTER,
    AdapterExecutionContext,
    ConfigField,
    build_config,
    execute_sync,
    test_environment,
    validate_config,
)
from geminorum.store import SqliteSessions

AGENTS = Path("agents")
MAX_FORM_BYTES = 1_000_000
# Other web pages can also post forms to this machine, but they cannot read this token.
TOKEN = secrets.token_urlsafe()


def saved(name: str) -> dict[str, Any]:
    file = AGENTS / f"{name}.json"
    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return stored


def save(name: str, values: dict[str, Any]) -> None:
    file = AGENTS / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps(build_config(values).to_dict(), indent=2))


def typed(name: str, form: dict[str, str]) -> dict[str, Any]:
    """The values of the form. An empty secret field keeps its saved value."""
    values: dict[str, Any] = {f.key: form.get(f.key, "") for f in ADAPTER.config_fields}
    kept = {f.key: saved(name).get(f.key, "") for f in ADAPTER.config_fields if f.secret}
    return values | {key: value for key, value in kept.items() if not values[key]}


# ---- the buttons


def on_save(name: str, form: dict[str, str]) -> str:
    values = typed(name, form)
    if problems := validate_config(values):
        return listed("Not saved", [f"{p.key} {p.message}: {p.remedy}" for p in problems])
    save(name, values)
    return "<h2>Saved</h2>"


def on_check(name: str, form: dict[str, str]) -> str:
    checks = test_environment(build_config(saved(name)))
    return listed("Health", [f"{c.level}: {c.name}: {c.detail} {c.fix or ''}" for c in checks])


def on_run(name: str, form: dict[str, str]) -> str:
    context = AdapterExecutionContext(agent_id=name, prompt=form.get("prompt", ""))
    store = SqliteSessions(AGENTS / "sessions.db")
    result = execute_sync(build_config(saved(name)), context, store=store, retry_fresh=True)
    cost = "unknown" if result.cost_usd is None else f"${result.cost_usd:.4f}"
    facts = [f"status: {result.status}", f"cost: {cost}", *(f.path for f in result.files)]
    failure = [f"{result.error} {result.hint or ''}"] if result.error else []
    return listed("Run", [*facts, *failure]) + f"<pre>{escape(result.output)}</pre>"


ACTIONS = {"save": on_save, "check": on_check, "run": on_run}


# ---- the page


def listed(title: str, lines: list[str]) -> str:
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(line)}' for line in lines)}</ul>"


def page(name: str, values: dict[str, Any], outcome: str = "") -> str:
    fields = [drawn(field, values.get(field.key)) for field in ADAPTER.config_fields]
    prompt = '<textarea name="prompt" placeholder="Prompt"></textarea>'
    # Check and run need a saved config.
    more = f"<p>{button('check')}</p>{prompt}{button('run')}" if saved(name) else ""
    return (
        f'<!doctype html><meta charset="utf-8"><title>{name}</title>'
        "<style>label,textarea{display:block}form{max-width:40em}</style>"
        f"<h1>{name}: {escape(ADAPTER.label)}</h1>{outcome}"
        f'<form method="post"><input type="hidden" name="token" value="{TOKEN}">'
        f"{''.join(fields)}<p>{button('save')}</p>{more}</form>"
    )


def button(action: str) -> str:
    return f'<button name="action" value="{action}">{action.capitalize()}</button>'


def drawn(field: ConfigField, value: Any) -> str:
    star = " *" if field.required else ""
    return (
        f"<p><label>{escape(field.label)}{star} {control(field, value)}</label>"
        f"<small>{escape(field.help)}</small></p>"
    )


def control(field: ConfigField, value: Any) -> str:
    name, hint = f'name="{field.key}"', escape(field.placeholder or "")
    shown = "" if value is None or field.secret else escape(str(value))
    if field.secret and isinstance(value, dict) and value:
        hint = f"saved: {escape(', '.join(value))}; type to replace"
    match field.kind:
        case "checkbox":
            return f'<input type="checkbox" {name}{" checked" if value in (True, "on") else ""}>'
        case "textarea" | "env":
            return f'<textarea {name} placeholder="{hint}">{shown}</textarea>'
        case "select":
            return f"<select {name}><option>{options(field, value)}</select>"
    kind = 'type="number" step="any"' if field.kind == "number" else f'list="{field.key}-choices"'
    choices = f'<datalist id="{field.key}-choices">{options(field, None)}</datalist>'
    return f'<input {kind} {name} value="{shown}" placeholder="{hint}">{choices}'


def options(field: ConfigField, value: Any) -> str:
    return "".join(
        f'<option value="{escape(choice.id)}"{" selected" if choice.id == value else ""}>'
        f"{escape(choice.label)}: {escape(choice.description)}</option>"
        for choice in field.choices
    )


# ---- the server


class Portal(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if name := self.agent():
            self.answer(200, page(name, saved(name)))

    def do_POST(self) -> None:
        if name := self.agent():
            length = self.headers.get("Content-Length", "0")
            if not re.fullmatch(r"\d{1,9}", length) or int(length) > MAX_FORM_BYTES:
                self.answer(413, "<h1>The form is too large</h1>")
                return
            body = self.rfile.read(int(length)).decode()
            self.answer(*self.outcome(name, dict(parse_qsl(body, keep_blank_values=True))))

    def outcome(self, name: str, form: dict[str, str]) -> tuple[int, str]:
        if not hmac.compare_digest(form.get("token", "").encode(), TOKEN.encode()):
            return 403, "<h1>Open the form again</h1>"
        action = form.get("action", "")
        if action not in ACTIONS or (action != "save" and not saved(name)):
            return 400, "<h1>Save the agent first</h1>"
        outcome = ACTIONS[action](name, form)
        # The form keeps its input, so that the user can correct mistakes.
        return 200, page(name, typed(name, form), outcome)

    def agent(self) -> str:
        """The agent named in the URL. Other host names are refused: they may belong to an attacker
        whose DNS points at this machine."""
        found = re.fullmatch(r"/([a-z0-9-]+)", self.path)
        host = self.headers.get("Host", "").partition(":")[0]
        if found and host in ("127.0.0.1", "localhost"):
            return found[1]
        self.answer(404, "<h1>No such page</h1>")
        return ""

    def answer(self, status: int, html: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(html.encode())


def main() -> None:
    port = int(sys.argv[1]) if sys.argv[1:] else 8000
    with ThreadingHTTPServer(("127.0.0.1", port), Portal) as server:
        print(f"open http://127.0.0.1:{server.server_port}/writer", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
