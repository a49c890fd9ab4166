"""A prompt of text and files to the content that the API takes."""

from __future__ import annotations

import base64
import mimetypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geminorum.errors import InvalidPrompt
from geminorum.hints import advice, python_only
from geminorum.prompt import Blob, Link, Prompt, PromptFile
from geminorum.system.regular_file import UnfitFile, read_bytes
from geminorum.wire.genai.answer import Part
from geminorum.wire.genai.request import Content, as_json, check_content, user

_LARGEST_FILE = 100 * 1024 * 1024
_MEDIA = ("image/", "audio/", "application/pdf")
_PIECES = "text, Path(…), Blob(data, mime_type) or Link(uri)"


def content_of(prompt: Prompt, folder: Path) -> Content:
    """The content; refuses what is empty, missing or nothing that the API could read.

    Paths are meant from `folder`.
    """
    if isinstance(prompt, Mapping):
        check_content(prompt, "the prompt")
        return as_json(prompt, "the prompt")
    if isinstance(prompt, PromptFile):
        raise InvalidPrompt(
            "the Api transport has no tool that could read a PromptFile",
            hint=python_only(f"pass the file itself: [{str(prompt.before)!r}, Path(…)]"),
        )
    alone = isinstance(prompt, str | os.PathLike | Blob | Link)
    pieces: Any = [prompt] if alone else prompt
    if not isinstance(pieces, list | tuple):
        raise InvalidPrompt(
            f"the prompt is a {type(prompt).__name__}", hint=python_only(f"pass {_PIECES}")
        )
    parts = [_part(piece, folder) for piece in pieces]
    if not any(part.get("text", "x").strip() for part in parts):
        raise InvalidPrompt(
            "the prompt is empty", hint=advice("pass some text[ to {run() or ask()}]")
        )
    return user(parts)


def _part(piece: object, folder: Path) -> Part:
    match piece:
        case str():
            # A lone surrogate cannot be sent; a question mark in its place can.
            return {"text": piece.encode("utf-8", "replace").decode("utf-8")}
        case Blob(data=bytes() | bytearray() as data, mime_type=str(kind)) if data and "/" in kind:
            return _inline(bytes(data), kind)
        case Link(uri=str(uri)) if uri:
            told = {"fileUri": uri, "mimeType": piece.mime_type or mimetypes.guess_type(uri)[0]}
            return {"fileData": {key: value for key, value in told.items() if value}}
        case os.PathLike():
            return _file(folder / piece)
        case _:
            raise InvalidPrompt(
                f"{piece!r:.100} in the prompt", hint=python_only(f"pass {_PIECES}")
            )


def _file(path: Path) -> Part:
    kind, packing = mimetypes.guess_type(path.name)
    if packing is not None:
        kind = f"application/{packing}"
    try:
        data = read_bytes(path, _LARGEST_FILE)
    except UnfitFile as error:
        hint = python_only("upload a large file with the Files API and pass Link(uri)")
        raise InvalidPrompt(str(error), hint=hint) from error
    except OSError as error:
        raise InvalidPrompt(
            f"cannot read {str(path)!r}: {error.strerror or error}", hint="check the path"
        ) from error
    if kind is not None and kind.startswith(_MEDIA):
        return _inline(data, kind)
    return _text_or(kind, path, data)


def _text_or(kind: str | None, path: Path, data: bytes) -> Part:
    """Text, whatever it is called: a name may mislead (`.ts`), and the models know few names."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError as error:
        if kind is not None:
            return _inline(data, kind)
        raise InvalidPrompt(
            f"what is in {str(path)!r}? Its name does not say",
            hint=python_only("pass Blob(data, mime_type)"),
        ) from error


def _inline(data: bytes, kind: str) -> Part:
    return {"inlineData": {"mimeType": kind, "data": base64.b64encode(data).decode()}}
