"""A `.env` file, to variables."""

from __future__ import annotations

from fuzz.scratch import scratch_folder
from fuzz.target import Target
from geminorum import Options
from geminorum.auth import dotenv_variables

_SEEDS = (
    b"GEMINI_API_KEY=abc\nexport GOOGLE_CLOUD_PROJECT='p q' # c\nA=\"x\\ny\"\n\n# comment\nB = 3\n",
    b"A='multi\nline'\nB=`c`\r\nC: d\n",
)


def run(data: bytes) -> None:
    home = scratch_folder("dotenv")
    (home / ".gemini").mkdir(exist_ok=True)
    (home / ".gemini" / ".env").write_bytes(data)
    dotenv_variables(Options(cwd=home), home)


TARGET = Target("dotenv", run, _SEEDS, shape="text", words=(b"=", b"'", b'"', b"export ", b"`"))
