"""Random folders and random edits, each from a seed, and what a folder is byte for byte."""

from __future__ import annotations

import os
import random
import shutil
import stat
from pathlib import Path

PARTS = [
    *(
        "a",
        "b",
        "src",
        "main.py",
        "README",
        "Makefile",
        "makefile",
        "-rf",
        "--help",
        " space ",
        "tab\t",
    ),
    *(
        "new\nline",
        "quote'\"",
        "back\\slash",
        "$(touch x)",
        "*",
        "é",
        "e\u0301",
        "日本",
        "🐍",
        "con",
        "dot.",
    ),
    *(
        "..hidden",
        "...",
        ".keep",
        ".gitattributes",
        "\udcff\udcfe",
        "bad\udc80utf",
        "x" * 120,
        "~",
        "#x#",
    ),
    *("HEAD", "config", "%41", "a:b", "\u202egpj"),
]


def contents_of(
    folder: Path, ignoring: tuple[str, ...] = (".git",)
) -> dict[str, tuple[object, ...]]:
    """Every name below a folder: its kind, its mode, and its bytes or its target."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if one not in ignoring]
        for name in (*folders, *(one for one in files if one not in ignoring)):
            path = os.path.join(place, name)  # noqa: PTH118
            found[os.path.relpath(path, folder)] = _state(path)
    return found


def _state(path: str) -> tuple[object, ...]:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return "link", os.readlink(path)  # noqa: PTH115
    if stat.S_ISDIR(mode):
        return ("folder",)
    return "file", stat.S_IMODE(mode), Path(path).read_bytes()


class Scribe:
    """Writes a random folder, and edits it at random."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random = folder, random.Random(seed)

    def write(self, names: int = 12) -> None:
        """A folder with about so many files, links and empty folders."""
        for _ in range(names):
            self._random.choice([self._add_file] * 4 + [self._add_link, self._add_folder])()

    def edit(self, edits: int = 8) -> None:
        every = (
            *(self._add_file, self._add_file, self._change, self._change, self._delete),
            *(
                self._rename,
                self._rename_folder,
                self._toggle_mode,
                self._add_link,
                self._add_folder,
            ),
            *(
                self._file_to_link,
                self._swap_file_and_folder,
                self._delete_folder,
                self._same_again,
            ),
        )
        for _ in range(edits):
            self._random.choice(every)()

    def _bytes(self) -> bytes:
        pick = self._random
        return pick.choice(
            [
                lambda: b"",
                lambda: b"one\ntwo\nthree\n",
                lambda: b"one\r\ntwo\r\n",
                lambda: b"no newline %d" % pick.randrange(9),
                lambda: pick.randbytes(pick.randrange(300)),
                lambda: b"\0" * pick.randrange(5000),
                lambda: b"mixed\r\nends\nof\rlines",
                lambda: b"\xef\xbb\xbfmark",
            ]
        )()

    def _paths(self) -> list[Path]:
        """All that may be edited."""
        found = []
        for place, folders, files in os.walk(self._folder):
            folders[:] = [one for one in folders if one not in (".git", "node_modules")]
            found += [Path(place) / one for one in (*folders, *files) if one != "key.secret"]
        return found

    def _folders(self) -> list[Path]:
        below = [one for one in self._paths() if one.is_dir() and not one.is_symlink()]
        return [self._folder, *below]

    def _files(self) -> list[Path]:
        return [one for one in self._paths() if one.is_symlink() or not one.is_dir()]

    def _one(self, paths: list[Path]) -> Path | None:
        return self._random.choice(sorted(paths)) if paths else None

    def _free(self) -> Path | None:
        folder = self._one(self._folders()) or self._folder
        path = folder / self._random.choice(PARTS)
        too_deep = len(path.relative_to(self._folder).parts) > 5
        return None if os.path.lexists(path) or too_deep else path

    def _add_file(self) -> None:
        if path := self._free():
            path.write_bytes(self._bytes())
            path.chmod(self._random.choice([0o644, 0o644, 0o755]))

    def _add_folder(self) -> None:
        if path := self._free():
            path.mkdir()

    def _add_link(self) -> None:
        if path := self._free():
            path.symlink_to(self._target(path))

    def _target(self, link: Path) -> str:
        """Up to the top at most, and down to something that may be there."""
        depth = len(link.relative_to(self._folder).parts) - 1
        up = self._random.randrange(depth + 1)
        place = link.parents[up]
        down = self._random.choice(
            [*sorted(one.name for one in place.iterdir() if one.name != ".git"), "nowhere", "."]
        )
        return "../" * up + self._random.choice(["", "./"]) + down + self._random.choice(["", "/"])

    def _change(self) -> None:
        path = self._one([one for one in self._files() if not one.is_symlink()])
        if path:
            path.write_bytes(
                self._random.choice([path.read_bytes() + self._bytes(), self._bytes()])
            )

    def _same_again(self) -> None:
        """Written anew, with the same bytes: no change."""
        path = self._one([one for one in self._files() if not one.is_symlink()])
        if path:
            data, mode = path.read_bytes(), path.stat().st_mode
            path.unlink()
            path.write_bytes(data)
            path.chmod(stat.S_IMODE(mode))

    def _delete(self) -> None:
        if path := self._one(self._files()):
            path.unlink()

    def _delete_folder(self) -> None:
        if path := self._one(self._folders()[1:]):
            shutil.rmtree(path)

    def _rename(self) -> None:
        old, new = self._one([one for one in self._files() if not one.is_symlink()]), self._free()
        if old and new:
            old.rename(new)

    def _rename_folder(self) -> None:
        # To the same depth: links in it would lead elsewhere otherwise.
        if old := self._one(self._folders()[1:]):
            new = old.parent / self._random.choice(PARTS)
            if not os.path.lexists(new):
                old.rename(new)

    def _toggle_mode(self) -> None:
        path = self._one([one for one in self._files() if not one.is_symlink()])
        if path:
            path.chmod(stat.S_IMODE(path.stat().st_mode) ^ 0o111)

    def _file_to_link(self) -> None:
        """Or a link to a file."""
        if path := self._one(self._files()):
            was_link = path.is_symlink()
            path.unlink()
            if was_link:
                path.write_bytes(self._bytes())
            else:
                path.symlink_to(self._target(path))

    def _swap_file_and_folder(self) -> None:
        path = self._one([*self._files(), *self._folders()[1:]])
        if path is None:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            self._random.choice(
                [lambda: path.write_bytes(b"was a folder"), lambda: path.symlink_to("nowhere")]
            )()
        else:
            path.unlink()
            path.mkdir()
            if self._random.random() < 0.7:
                (path / "inside").write_bytes(self._bytes())
