"""Our words to the API's: contents, tools and settings of a request, checked before it leaves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from geminorum.errors import InvalidOptions, InvalidPrompt, Unsupported
from geminorum.hints import advice, python_only
from geminorum.options import Options
from geminorum.tools import Tool, ToolOutcome
from geminorum.wire.effort import thinking
from geminorum.wire.genai.answer import FunctionCall, Part
from geminorum.wire.model_names import ALIASES, is_routed

Content = Mapping[str, Any]
"""A Content as the API writes it: `{"role": "user", "parts": [{"text": "Hi"}]}`."""

DEFAULT_MODEL = "gemini-2.5-flash"
_THOUGHTLESS = re.compile(r"gemini-1|gemini-2\.0|gemma|learnlm|.*(?:image|tts|audio|embedding)")
_NO_MODEL = re.compile(r"[?&#%\s]|\.\.|^/|/$")


def model_of(options: Options) -> str:
    """The model's name without its `models/`; refuses what would lead to another address."""
    wanted = options.model or DEFAULT_MODEL
    if is_routed(wanted):
        hint = (
            f"name a model, or one of {', '.join(sorted(ALIASES))}; the default is {DEFAULT_MODEL}"
        )
        raise Unsupported(f"model={wanted!r} is for the CLI's router, which Api lacks", hint=hint)
    name = ALIASES.get(wanted, wanted).removeprefix("models/")
    if _NO_MODEL.search(name) or not name:
        raise InvalidOptions(
            f"model={wanted!r} cannot be the name of a model", hint=f"for example {DEFAULT_MODEL!r}"
        )
    return name


def checked_history(history: object) -> list[Content]:
    """The history, if the API would take it; otherwise an error that says which part is wrong."""
    if isinstance(history, str | Mapping) or not isinstance(history, Sequence):
        hint = python_only('history=[{"role": "user", "parts": [{"text": "Hi"}]}, …]')
        raise InvalidPrompt(f"history is a {type(history).__name__}", hint=hint)
    for number, content in enumerate(history):
        check_content(content, f"history[{number}]")
    whole: list[Content] = [
        {"role": "user", **as_json(content, f"history[{at}]")} for at, content in enumerate(history)
    ]
    if whole and whole[0]["role"] != "user":
        raise InvalidPrompt(
            "the history starts with the model's turn",
            hint=python_only("begin it with what the user said, as the API demands"),
        )
    return whole


def check_content(content: object, where: str) -> None:
    """Refuses what is no Content."""
    hint = python_only('{"role": "user", "parts": [{"text": "…"}]}')
    if not isinstance(content, Mapping):
        raise InvalidPrompt(f"{where} is a {type(content).__name__}", hint=hint)
    if content.get("role", "user") not in ("user", "model"):
        raise InvalidPrompt(
            f"{where} has the role {content['role']!r}", hint=python_only("user or model")
        )
    parts = content.get("parts")
    if not isinstance(parts, list | tuple) or not parts:
        raise InvalidPrompt(f"{where} has no parts", hint=hint)
    for part in parts:
        _check_part(part, where)


def _check_part(part: object, where: str) -> None:
    if not isinstance(part, Mapping) or not part:
        raise InvalidPrompt(f"{where} has the part {part!r}", hint=python_only('{"text": "…"}'))
    for kind in ("functionCall", "functionResponse"):
        told = part.get(kind)
        if told is not None and not (isinstance(told, Mapping) and told.get("name")):
            raise InvalidPrompt(
                f"{where} has a {kind} without a name",
                hint=python_only(f'{{"{kind}": {{"id": …, "name": …, …}}}}'),
            )


def user(parts: list[Part]) -> Content:
    return {"role": "user", "parts": parts}


def model(parts: list[Part]) -> Content:
    return {"role": "model", "parts": parts}


def results(answers: Iterable[tuple[FunctionCall, Mapping[str, Any]]]) -> Content:
    """What the tools gave, in one content: the API refuses parallel results in several."""
    return user(
        [
            {"functionResponse": {"id": call.id, "name": call.name, "response": dict(response)}}
            for call, response in answers
        ]
    )


def response_of(outcome: ToolOutcome) -> Mapping[str, Any]:
    """A tool's outcome under the keys that the models were taught."""
    return {"output" if outcome.status == "success" else "error": outcome.output}


def prompt_text(content: Content) -> str:
    """What a person would read of it; anything but text by its kind."""
    return "\n".join(_shown(part) for part in content["parts"])


def _shown(part: Mapping[str, Any]) -> str:
    if isinstance(text := part.get("text"), str):
        return text
    kind = next(iter(part), "nothing")
    told = part.get(kind)
    named = told.get("mimeType") or told.get("name") if isinstance(told, Mapping) else None
    return f"[{named or kind}]"


def config_of(
    options: Options,
    tools: Sequence[Tool],
    own: Mapping[str, Any],
    *,
    schema: Mapping[str, Any] | None = None,
    thoughts: bool | None = None,
) -> dict[str, Any]:
    """The SDK's GenerateContentConfig as plain data; the caller's `own` goes before ours."""
    name = model_of(options)
    config: dict[str, Any] = {
        # The SDK would call functions itself, and ask again on its own.
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
        "system_instruction": options.system_prompt,
        "thinking_config": _thinking(options, name, thoughts),
        "tools": [*(own.get("tools") or ()), *_declared(tools)] or None,
    }
    if schema is not None:
        config |= {"response_mime_type": "application/json", "response_json_schema": dict(schema)}
    config |= {key: value for key, value in own.items() if key != "tools"}
    return {key: value for key, value in config.items() if value is not None}


def _thinking(options: Options, name: str, thoughts: bool | None) -> dict[str, Any] | None:
    # A model that does not think refuses to be asked how. One that we have no name for may.
    thinks = name.startswith("gemini-") and not _THOUGHTLESS.match(name)
    wanted: dict[str, Any] = {}
    if thinks if thoughts is None else thoughts:
        wanted["include_thoughts"] = True
    if options.effort is not None and _THOUGHTLESS.match(name):
        raise Unsupported(
            f"{name!r} does not think",
            hint=advice("leave {Options.effort} out, or take another model"),
        )
    if options.effort is not None:
        told = thinking(options.effort, name)
        names = {"thinkingLevel": "thinking_level", "thinkingBudget": "thinking_budget"}
        wanted |= {names[key]: value for key, value in told.items()}
    return wanted or None


def _declared(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    if not tools:
        return []
    declarations = [
        {"name": tool.name, "description": tool.description, "parameters_json_schema": tool.schema}
        for tool in tools
    ]
    return [{"function_declarations": declarations}]


def as_json(content: Content, where: str) -> Content:
    """The content as plain JSON values, bytes in base64; refuses what has no place there."""
    try:
        plain: Content = msgspec.json.decode(msgspec.json.encode(dict(content)))
    except (TypeError, ValueError, RecursionError) as error:
        hint = python_only("dicts, lists, strings, numbers, True, False, None; bytes become base64")
        raise InvalidPrompt(f"{where} is not JSON: {error}", hint=hint) from error
    return plain
