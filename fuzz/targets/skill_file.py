"""A SKILL.md, to a skill or to what is wrong with it."""

from __future__ import annotations

from fuzz.scratch import scratch_file
from fuzz.soundness import Unsound
from fuzz.target import Target
from geminorum import skills
from geminorum.errors import InvalidOptions

_SEEDS = (
    b"---\nname: pdf\ndescription: Reads PDF files.\n---\nUse `pdftotext`.\n",
    b'---\r\nname: "a \\u00e9 \\x41 \\U0001F600"\r\n'
    b"description: 'it''s' # why\r\n---\r\nBody\r\n",
    b"---\nname: folded\ndescription: >-\n  one\n  two\n\n    three\n  four\n"
    b"other:\n  - a\n  - b: c\n---\n",
    b"---\n# comment\nname: block\ndescription: |2+\n    indented\n  less\n\n\n---\n",
    b"---\nname: loose\ndescription: with: a colon\n  and more\n  and [more\n"
    b"license: {a: 1}\n---\n",
    b"---\nname: 12\ndescription: 2026-01-01T00:00:00\nname: twice\n---",
)
_WORDS = (
    b"name: ",
    b"description: ",
    b"---\n",
    b"  ",
    b"|",
    b">",
    b"\\U0011ffff",
    b"\\ud800",
    b"- ",
    b": ",
)


def run(data: bytes) -> None:
    file = scratch_file("skill", "SKILL.md", data)
    problems = skills.validate(file)
    try:
        skill = skills.read(file)
    except InvalidOptions as error:
        if error.message not in problems:
            raise Unsound(f"refused for {error.message!r}, but validate says {problems}") from error
        return
    for text in (skill.name, skill.description, skill.body):
        text.encode()


TARGET = Target("skill-file", run, _SEEDS, shape="text", words=_WORDS)
