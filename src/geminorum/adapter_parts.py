"""What an adapter of another framework's interface is built from, besides the public names.

`geminorum.contracts` imports from here and from the public modules, nothing else. Programs that
use the library do not need these names; they may change with any version.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminorum.detect import cli_path as cli_path
    from geminorum.doctor.finding import nearest_existing as nearest_existing
    from geminorum.environment import environment_of as environment_of
    from geminorum.environment import home_of as home_of
    from geminorum.hints import Vocabulary as Vocabulary
    from geminorum.hints import render as render
    from geminorum.permissions import rule_of as rule_of
    from geminorum.prompt import delivered as delivered
    from geminorum.redaction import redacted as redacted
    from geminorum.redaction import secrets_in as secrets_in
    from geminorum.runtime.typed import convert as convert
    from geminorum.sessions.places import ID_IN_NAME as ID_IN_NAME
    from geminorum.sessions.places import files_in as files_in
    from geminorum.sessions.places import projects_of as projects_of
    from geminorum.sessions.places import top_of as top_of
    from geminorum.sessions.reading import SUFFIXES as SUFFIXES
    from geminorum.spelling import snake_case as snake_case
    from geminorum.sync import BackgroundLoop as BackgroundLoop
    from geminorum.system.owned_folder import OwnedFolder as OwnedFolder
    from geminorum.transports.launch.command import headless_command as headless_command
    from geminorum.views.files import FileFold as FileFold
    from geminorum.views.messages import of_saved as of_saved
    from geminorum.views.messages import usage_of as usage_of
    from geminorum.wire.broken_json import mended as mended
    from geminorum.wire.causes import cause_of as cause_of
    from geminorum.wire.causes import last_words as last_words
    from geminorum.wire.ending import Ending as Ending
    from geminorum.wire.ending import status_of_exit as status_of_exit
    from geminorum.wire.genai.verdict import ANSWER_STOPPED as ANSWER_STOPPED
    from geminorum.wire.launch.argv import arguments as arguments
    from geminorum.wire.lines import LONGEST_LINE as LONGEST_LINE
    from geminorum.wire.lines import Lines as Lines
    from geminorum.wire.notices import PARSE_ERROR as PARSE_ERROR
    from geminorum.wire.sessions.records import is_spoken as is_spoken
    from geminorum.wire.sessions.records import message_of as message_of
    from geminorum.wire.stream_json.decoder import StreamDecoder as StreamDecoder
    from geminorum.wire.stream_json.verdict import last_events as last_events
    from geminorum.wire.surrogates import whole as whole

# Where each name lives. They are loaded when first asked for: an adapter of the API should not pay
# for the decoder of the CLI's output.
_EXPORTS = {
    # Read a config in another project's spelling.
    "spelling": ("snake_case",),
    "runtime.typed": ("convert",),
    "permissions": ("rule_of",),
    # Plan a command.
    "environment": ("environment_of", "home_of"),
    "detect": ("cli_path",),
    "prompt": ("delivered",),
    "wire.launch.argv": ("arguments",),
    "transports.launch.command": ("headless_command",),
    # Run it for synchronous code, and in a folder that is removed afterwards.
    "sync": ("BackgroundLoop",),
    "system.owned_folder": ("OwnedFolder",),
    "doctor.finding": ("nearest_existing",),
    # Decode output.
    "wire.lines": ("LONGEST_LINE", "Lines"),
    "wire.broken_json": ("mended",),
    "wire.surrogates": ("whole",),
    "wire.stream_json.decoder": ("StreamDecoder",),
    "wire.stream_json.verdict": ("last_events",),
    "views.files": ("FileFold",),
    # Explain how a run ended.
    "wire.ending": ("Ending", "status_of_exit"),
    "wire.causes": ("cause_of", "last_words"),
    "wire.notices": ("PARSE_ERROR",),
    "wire.genai.verdict": ("ANSWER_STOPPED",),
    # Find saved sessions and convert their messages.
    "sessions.places": ("ID_IN_NAME", "files_in", "projects_of", "top_of"),
    "sessions.reading": ("SUFFIXES",),
    "wire.sessions.records": ("is_spoken", "message_of"),
    "views.messages": ("of_saved", "usage_of"),
    # Word hints and messages for the framework's users.
    "hints": ("Vocabulary", "render"),
    "redaction": ("redacted", "secrets_in"),
}
_MODULE_OF = {name: home for home, names in _EXPORTS.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'geminorum.adapter_parts' has no attribute {name!r}")
    value = getattr(import_module(f"geminorum.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
