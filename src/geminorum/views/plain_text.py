"""Text of strangers to text that a terminal, a log or a page shows and does not obey.

A model, a session file or a repository may hold letters that move the cursor, fill the clipboard,
turn the order of letters round, or cannot be seen. They come out as JSON would escape them
(`\\u001b`, `\\u202e`), so JSON stays the same JSON. What people write stays: all scripts, emoji,
accents, tabs and line ends, and the invisible letters that join them where they do join something.
"""

from __future__ import annotations

import re
from functools import cache
from json.encoder import encode_basestring_ascii

# Control characters but tab and line end; format characters; Unicode's "default ignorable" ones;
# halves of pairs and noncharacters.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_JOINERS = "\u180b-\u180d\u180f\u200b-\u200d\ufe00-\ufe0f"
"""Hidden too, but where they are at work."""
_EMOJI = "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299"
_EMOJI += "\U0001f000-\U0001faff"
_MONGOLIAN = "\u1820-\u18aa"
_JOINED = f"\u0620-\u08ff\u0900-\u0dff{_MONGOLIAN}"
"""Arabic and its neighbours, the scripts of India: letters that change where they touch."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff"
"""Thai, Lao, Burmese, Khmer: words stand without spaces."""
_VIRAMA = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca"
_IDEOGRAPHS = "\u2200-\u22ff\u3000-\u303f\u4e00-\u9fff\uff00-\uff60"
# Each of these is seen by what it does to its neighbours.
_AT_WORK = "|".join(
    (
        f"(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}]\ufe0f))\u200d(?=[{_EMOJI}])",
        f"(?<=[{_EMOJI}])[\ufe0e\ufe0f]",
        "(?<=[0-9#*])[\ufe0e\ufe0f](?=\u20e3)",
        f"(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])",
        f"(?<=[{_VIRAMA}])[\u200c\u200d]",
        f"(?<=[{_UNSPACED}])[\u200b-\u200d](?=[{_UNSPACED}])",
        f"(?<=[{_MONGOLIAN}])[\u180b-\u180d\u180f]",
        f"(?<=[{_IDEOGRAPHS}])[\ufe00-\ufe02]",
    )
)
# England, Scotland, Wales: a black flag and the name of the country in letters that nobody sees.
_COUNTRIES = "|".join(
    "".join(chr(0xE0000 + ord(letter)) for letter in name) for name in ("gbeng", "gbsct", "gbwls")
)
_ANY = re.compile(f"[{_HIDDEN}{_JOINERS}]")
_SHOWN = f"(\U0001f3f4(?:{_COUNTRIES})\U000e007f)|(?:[{_HIDDEN}]|(?!{_AT_WORK})[{_JOINERS}])+"


@cache
def _shown() -> re.Pattern[str]:
    """Compiled where a text needs it: few do, and it takes 7 ms, which every command would wait."""
    return re.compile(_SHOWN)


def printable(text: str) -> str:
    """The text with an escape for each letter that acts or hides; lines end in a newline."""
    text = text.replace("\r\n", "\n")
    return _shown().sub(_spelled, text) if _ANY.search(text) else text


def printable_line(text: str) -> str:
    """… on one line: for names and paths, which have no business to hold a line end."""
    return printable(text).replace("\n", r"\n").replace("\t", r"\t")


def _spelled(found: re.Match[str]) -> str:
    return found[0] if found[1] else encode_basestring_ascii(found[0])[1:-1]


_EMPTY_LINES = re.compile(r"\n(?:[^\S\n]*\n){3,}")
_SPACES = re.compile(r"[^\S\n]{21,}")


def without_padding(text: str) -> str:
    """Many spaces or empty lines as their number: what follows must not be out of sight."""
    text = _EMPTY_LINES.sub(lambda run: f"\n…{run[0].count(chr(10)) - 1} empty lines…\n", text)
    return _SPACES.sub(lambda run: f" …{len(run[0])} spaces… ", text)
