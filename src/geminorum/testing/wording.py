"""Text of any length that never repeats itself; reproducible."""

import random

_WORDS = (
    "amber basil cedar delta ember fjord grove heron indigo juniper kestrel lichen maple "
    "nectar opal pebble quartz river saffron tundra umber velvet willow xenon yarrow zephyr "
    "anchor beacon candle drift engine feather garnet harbour island jacket kettle lantern "
    "meadow needle orchard paper quiver ribbon shelter timber uncle valley window yonder "
    "almond bridge"
)


def prose(n_chars: int, *, seed: int = 0) -> str:
    """Returns exactly `n_chars` characters of made-up sentences.

    The Gemini CLI stops a run whose text repeats itself ("Loop detected"), so a long scripted
    answer cannot be `"x" * n`. The same `seed` gives the same text.
    """
    source = random.Random(seed)  # nosec B311  # the same text each time is what it is for
    sentences: list[str] = []
    length = 0
    while length < n_chars:
        sentence = _sentence(source)
        sentences.append(sentence)
        length += len(sentence)
    return "".join(sentences)[:n_chars]


def _sentence(source: random.Random) -> str:
    return " ".join(source.choices(_WORDS.split(), k=9)).capitalize() + ". "
