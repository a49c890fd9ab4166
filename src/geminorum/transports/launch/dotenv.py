"""`.env` files around the folder: what they would set, and how to keep the CLI from obeying."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from geminorum.detect import CliProgram
from geminorum.environment import upwards
from geminorum.errors import Unsupported
from geminorum.hints import python_only
from geminorum.system.regular_file import UnfitFile, read_text
from geminorum.transports.launch.context import LaunchContext, unfit_file
from geminorum.wire.launch.argv import IGNORE_DOTENV, has

# Every name that the CLI's own reader of `.env` files would find, by its idea of spaces and lines.
_LINE_END = re.compile("[\r\u2028\u2029]")
_NAME = re.compile(
    # What is blank is looked at once, and only within a line: a file may hold nothing else.
    r"^(?:[^\S\n]|\ufeff)*+(?:export[\s\ufeff]++)?([A-Za-z0-9_.-]+)(?=[\s\ufeff]*+=|:[\s\ufeff])",
    re.M,
)


def disarming_variables(context: LaunchContext, program: CliProgram) -> dict[str, str]:
    """What `.env` files around the folder would set, set to nothing: the CLI leaves that alone."""
    if context.transport.dotenv:
        return {}
    home = context.home
    theirs = {one / place for one in (home, home.resolve()) for place in (".env", ".gemini/.env")}
    # The setting that ignores them, if the CLI has it, forgets those beside the settings.
    places = [".gemini/.env"] if has(program.version, IGNORE_DOTENV) else [".gemini/.env", ".env"]
    around = (folder / place for folder in upwards(context.cwd) for place in places)
    texts = [_text(file) for file in around if file not in theirs]
    names = {name for text in texts for name in _NAME.findall(_LINE_END.sub("\n", text))}
    return dict.fromkeys(names - context.env.keys(), "")


def refuse_strange_dotenv(
    context: LaunchContext, program: CliProgram, given: Mapping[str, str]
) -> None:
    """A process that runs has its variables; a folder that comes later may not add to them."""
    strange = disarming_variables(context, program).keys() - given.keys()
    if strange:
        raise Unsupported(
            f"a .env file of {str(context.cwd)!r} would set {min(strange)} for every session of "
            "the process",
            hint=python_only("open it through an Acp() of its own, or allow it: Acp(dotenv=True)"),
        )


def _text(file: Path) -> str:
    try:
        return read_text(file, errors="replace")
    except UnfitFile as error:
        raise unfit_file(error) from error
    except OSError:
        return ""  # What we cannot read, the CLI cannot either.
