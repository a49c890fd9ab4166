"""Would a run be logged in, and would its key go to the right place?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from geminorum.auth import Auth, auth_mode, dotenv_variables
from geminorum.doctor.finding import Finding, check_of, fail, ok, warn
from geminorum.environment import home_of
from geminorum.options import Options

_SET_KEY = "export GEMINI_API_KEY=…  # a key from https://aistudio.google.com/apikey"
_CHOOSE_KEY = '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
_USE_VERTEX = (
    "export GOOGLE_GENAI_USE_VERTEXAI=true GOOGLE_CLOUD_PROJECT=… GOOGLE_CLOUD_LOCATION=global"
)
_ENDED = (
    "Google ended this login for consumers on 18 June 2026 and refers them to Antigravity "
    "(https://antigravity.google)"
)


@check_of("auth")
def auth_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Which login is selected, by what, and does it have everything it needs?"""
    auth = auth_mode(options, env)
    match auth.mode:
        case "api_key":
            return _api_key(auth, env)
        case "vertex":
            return _vertex(auth)
        case "google_account":
            return _google_account(auth, env)
        case "compute":
            return ok(f"credentials of the machine, chosen by {auth.chosen_by}")
        case "refused":
            return _refused(auth)
        case _:
            return _none(options, env)


def _api_key(auth: Auth, env: Mapping[str, str]) -> Finding:
    if auth.credential:
        return ok(f"API key from {auth.credential}, chosen by {auth.chosen_by}")
    what = f"{auth.chosen_by} chooses an API key, but GEMINI_API_KEY is not set"
    if sys.platform != "linux" or env.get("DBUS_SESSION_BUS_ADDRESS"):
        return warn(f"{what}; only a key in the system's keychain would help", _SET_KEY)
    return fail(what, _SET_KEY, "AUTH")


def _vertex(auth: Auth) -> Finding:
    if auth.missing:
        fix = " ".join(f"{name}=…" for name in auth.missing.split(" and "))
        what = f"{auth.chosen_by} chooses Vertex AI, but {auth.missing} is not set"
        return fail(what, f"export {fix}  # or GOOGLE_API_KEY=…, for express mode", "AUTH")
    if not auth.credential:
        # A virtual machine of Google's has them without any file.
        fix = "gcloud auth application-default login"
        return warn("Vertex AI is chosen, but no default credentials are to be seen", fix)
    return ok(f"Vertex AI with {auth.credential}, chosen by {auth.chosen_by}")


def _google_account(auth: Auth, env: Mapping[str, str]) -> Finding:
    if not auth.credential:
        what = f"{auth.chosen_by} chooses a Google account, but no one is logged in; {_ENDED}"
        return fail(what, _ways_out(auth), "AUTH")
    if env.get("GOOGLE_CLOUD_PROJECT"):
        return ok(f"Google account with a Cloud project; {_ENDED}, licences of companies remain")
    what = f"Google account from {auth.credential}; {_ENDED}, only licences of companies remain"
    return warn(what, _ways_out(auth))


def _ways_out(auth: Auth) -> str:
    """What to type instead of the ended login."""
    if auth.chosen_by == "GOOGLE_GENAI_USE_GCA":
        return f"unset GOOGLE_GENAI_USE_GCA; {_SET_KEY}; or: {_USE_VERTEX}"
    # The selection in a settings file wins over the variables of the process.
    key = f"put into {auth.chosen_by}: {_CHOOSE_KEY}, and {_SET_KEY}"
    return f"{key}; or remove the selection there, and {_USE_VERTEX}"


def _refused(auth: Auth) -> Finding:
    if auth.chosen_by == "GOOGLE_GEMINI_BASE_URL":
        what = "GOOGLE_GEMINI_BASE_URL is set and no key: the CLI takes the URL for a gateway"
        return fail(f"{what} and refuses", _SET_KEY, "AUTH")
    what = f"{auth.chosen_by} chooses {auth.choice!r}, which the CLI refuses headless"
    return fail(what, f"put into {auth.chosen_by}: {_CHOOSE_KEY}", "AUTH")


def _none(options: Options, env: Mapping[str, str]) -> Finding:
    home = home_of(options, env)
    if found := dotenv_variables(options, home).get("GEMINI_API_KEY"):
        file = home / ".gemini" / "settings.json"
        what = f"the key in {found[1]} is read too late: no way to log in is chosen by then"
        return fail(what, f"put into {file}: {_CHOOSE_KEY}", "AUTH")
    if env.get("GOOGLE_CLOUD_PROJECT") or env.get("GOOGLE_API_KEY"):
        what = "Vertex AI is half set up: GOOGLE_GENAI_USE_VERTEXAI must be the word true"
        return fail(what, "export GOOGLE_GENAI_USE_VERTEXAI=true", "AUTH")
    return fail("no way to log in: no key, no Vertex AI, no account", _SET_KEY, "AUTH")


@check_of("base url")
def base_url_check(options: Options, env: Mapping[str, str]) -> Finding:
    """Where is the key sent, and would the CLI still know how to log in?"""
    if url := env.get("GOOGLE_GEMINI_BASE_URL"):
        return _set_url(auth_mode(options, env), _host(url), options, env)
    home = home_of(options, env)
    value, file = dotenv_variables(options, home).get("GOOGLE_GEMINI_BASE_URL", ("", Path()))
    if value and file.parent.parent != home:
        what = f"{file} would send prompts and the API key to {_host(value)}"
        return warn(
            f"{what}: geminorum ignores it, plain `gemini` does not", f"rm {shlex.quote(str(file))}"
        )
    return ok(f"set by {file}" if value else "not set: Google's own")


def _set_url(auth: Auth, host: str, options: Options, env: Mapping[str, str]) -> Finding:
    if auth.mode == "api_key" and auth.chosen_by == "GEMINI_API_KEY":
        file = home_of(options, env) / ".gemini" / "settings.json"
        what = "geminorum chooses the API key for its runs; plain `gemini` would exit with 41"
        return warn(f"{host}; {what}", f"put into {file}: {_CHOOSE_KEY}")
    if auth.mode == "refused":
        what = f"{host}, but no way to log in is chosen: the CLI exits with 41"
        return fail(what, _SET_KEY, "AUTH")
    return ok(host)


def _host(url: str) -> str:
    # Not the whole of it: a URL may carry a password.
    return urlsplit(url).hostname or "something that is not a URL"
