"""Where a CLI starts: variables, home, folders and the settings that lie there."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any

from geminorum.environment import environment_of, home_of
from geminorum.errors import ConfigError, InvalidOptions
from geminorum.options import Options
from geminorum.system.regular_file import UnfitFile, read_text
from geminorum.transports.launch.steering import steering_in
from geminorum.transports.launch.transport import CliTransport
from geminorum.wire.launch.settings_file import limits_turns, parsed_settings
from geminorum.wire.policy.toml_writer import Steering

SETTINGS_FILE = ".gemini/settings.json"
_SYSTEM_SETTINGS = {
    "linux": Path("/etc/gemini-cli/settings.json"),
    "darwin": Path("/Library/Application Support/GeminiCli/settings.json"),
}


class LaunchContext:
    """The surroundings of one start. Each is looked up once, when it is first needed."""

    def __init__(
        self, transport: CliTransport, options: Options, env: Mapping[str, str] | None = None
    ) -> None:
        self.transport, self.options = transport, options
        self.env = environment_of(options) if env is None else env
        self.home = home_of(options, self.env)
        self.cwd = working_folder(options)

    def with_options(self, options: Options) -> LaunchContext:
        """Returns the same surroundings for options that name the same folders and variables."""
        other = copy.copy(self)
        other.options = options
        return other

    @cached_property
    def system_settings_file(self) -> Path:
        named = self.env.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
        default = _SYSTEM_SETTINGS.get(sys.platform, _SYSTEM_SETTINGS["linux"])
        return Path(named) if named else default

    @cached_property
    def settings_above(self) -> dict[Path, Mapping[str, Any]]:
        """Settings that override those of the run: the system's and those of a trusted folder."""
        files = [self.system_settings_file]
        if self.options.trust_workspace is not None:
            files.append(self.cwd / SETTINGS_FILE)
        return {file: settings_in(file) for file in files}

    @cached_property
    def user_settings(self) -> Mapping[str, Any]:
        return settings_in(self.home / SETTINGS_FILE)

    @cached_property
    def folder_settings(self) -> Mapping[str, Any]:
        """Settings of the folder, trusted or not."""
        return settings_in(self.cwd / SETTINGS_FILE)

    @property
    def _all_settings(self) -> list[Mapping[str, Any]]:
        return [self.transport.settings, self.user_settings, *self.settings_above.values()]

    @property
    def has_turn_limit(self) -> bool:
        """Does a setting of the caller, the user, the system or a trusted folder limit turns?"""
        return any(map(limits_turns, self._all_settings))

    @cached_property
    def folders(self) -> list[Path]:
        """The folders that the caller and the user let the agent work in, `cwd` first.

        An untrusted folder's own settings add none: the CLI does not read them either.
        """
        named = [folder for one in self._all_settings for folder in _included_by(one, self.env)]
        named += [*_included_by_flag(self.transport.extra_args)]
        named += map(str, self.options.include_directories)
        named += self.env.get("GEMINI_CLI_IDE_WORKSPACE_PATH", "").split(os.pathsep)
        return [self.cwd, *_placed(named, self.cwd)]

    @cached_property
    def agent_folders(self) -> tuple[Path, ...]:
        """Every folder that the CLI may let its file tools write in, if they may write at all."""
        named = _included_by(self.folder_settings, self.env)
        return (*self.folders, self.home / ".gemini" / "tmp", *_placed(named, self.cwd))

    @cached_property
    def steering(self) -> Steering:
        """Ways to the files that steer runs in the folders of the agent."""
        found = steering_in(self.folders)
        if not self.transport.gemini_folder:
            return found
        return found._replace(files=frozenset(), links=frozenset(), is_open=True)


def working_folder(options: Options) -> Path:
    cwd = Path(options.cwd or ".").expanduser().absolute()
    if not cwd.is_dir():
        hint = "name the folder it lies in" if cwd.exists() else f"mkdir -p {cwd}"
        raise InvalidOptions(f"cwd {str(cwd)!r} is not a folder", hint=hint)
    for extra in options.include_directories:
        if not (cwd / extra).is_dir():
            raise InvalidOptions(f"include_directories: {str(extra)!r} is not a folder")
    return cwd


def settings_in(file: Path) -> dict[str, Any]:
    """The settings in a file; empty if it is broken, which the CLI itself will refuse."""
    try:
        return parsed_settings(read_text(file))
    except UnfitFile as error:
        raise unfit_file(error) from error
    except (OSError, ValueError):
        return {}


def unfit_file(error: UnfitFile) -> ConfigError:
    """The CLI might read what we cannot."""
    return ConfigError(f"the CLI would read it, but {error}", hint="remove it, or replace it")


def _included_by(settings: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    context = settings.get("context")
    listed = context.get("includeDirectories") if isinstance(context, Mapping) else None
    names = listed if isinstance(listed, list | tuple) else [listed]
    return [Template(name).safe_substitute(env) for name in names if isinstance(name, str)]


def _included_by_flag(words: Sequence[str]) -> Iterator[str]:
    for word, following in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag in ("--include-directories", "--includeDirectories"):
            yield from (value if equals else following).split(",")


def _placed(names: Iterable[str], cwd: Path) -> list[Path]:
    return [cwd / Path(name.strip()).expanduser() for name in names if name.strip()]
