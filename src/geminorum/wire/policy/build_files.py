"""A tool call to whether it writes a build file, which CLI 0.61 lets no headless agent do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_WRITING_WORDS = {"write", "edit", "replace", "patch", "update", "create", "append", "save"}
_NAMES = {
    *("BUILD", "BUILD.bazel", "WORKSPACE", "WORKSPACE.bazel", "MODULE.bazel", ".bazelrc"),
    *(".blazerc", "Makefile", "makefile", "GNUmakefile", "CMakeLists.txt", "package.json"),
    *("package-lock.json", "pnpm-lock.yaml", "yarn.lock", "bun.lockb", "setup.py", "setup.cfg"),
    *("pyproject.toml", "go.mod", "go.sum", "Cargo.toml", "Cargo.lock", "pom.xml"),
    *("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    *("Dockerfile", "Containerfile"),
}
_ENDINGS = (".bzl", ".bazel", ".bzlmod", ".mk", ".cmake")


def is_build_file(tool: str, arguments: Mapping[str, Any]) -> bool:
    given = (arguments.get(key) for key in ("file_path", "path", "filePath", "file"))
    path = next((value for value in given if value is not None), None)
    words = re.split("[^a-z0-9]+", tool.lower())
    if not isinstance(path, str) or _WRITING_WORDS.isdisjoint(words):
        return False
    name = PurePosixPath(path.strip().replace("\\", "/")).name
    return (
        name in _NAMES
        or name.startswith(("Dockerfile.", "Containerfile."))
        or name.lower().endswith(_ENDINGS)
    )
