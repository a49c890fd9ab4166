"""Hints as data: what to do next, for people who write Python, type flags or fill in a config.

A hint is a plain string in Python's words, such as `raise Options(timeout=…)`. `advice` makes it
from a template and remembers the template by the text, so that `render` can say the same in the
words of another audience, however the string got there: in an exception, an event or JSON.

In a template, braces hold what is said differently to each audience, and brackets a clause that is
left out for an audience that has no word for something in it:

    raise {Options.timeout=…}[; what arrived is in {.result}]

- `{Options.timeout=…}` names a field; Python says `Options(timeout=…)`.
- `{Options.timeout}` is the same without a value; Python says `timeout`.
- `{install|python -m geminorum.install}` has the words for Python after the bar.
- `{folder}` is replaced by the keyword argument of that name, which may be another hint;
  `{Options.cwd=folder}` has it as value. The words after a bar may be such a name, too.
- Anything else, `{.result}` or `{None}`, is Python that no other audience can type.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeAlias

Vocabulary: TypeAlias = Callable[[str, str], str | None]
"""What an audience types for a field, "Options.timeout", and its value; None: it cannot.

The value is "…" where the hint leaves it open, and empty where it has none."""

_Made: TypeAlias = tuple[str, dict[str, str]]
"""What a hint was made of: the template and its values."""

_JOINTS = ("; ", ", or ", ", ", " or ")
_MAX_FILLED = 512

# Found by the text of the hint. A subclass of str could carry it, but msgspec and PyYAML refuse to
# write one.
_constant: dict[str, _Made] = {}
"""Hints without values: as many as the source has templates."""
_filled: OrderedDict[str, _Made] = OrderedDict()
"""Hints with values, the newest last. One that was forgotten is shown in Python's words."""


def advice(template: str, /, **values: str) -> str:
    """Makes a hint from a template; see the top of this module. Returns Python's words for it."""
    if "{" not in template:
        return template
    text = "".join(_in_python(template, values))
    _remember(text, template, values)
    return text


def python_only(words: str) -> str:
    """Makes a hint that only somebody who writes Python can follow.

    A constant of a module is `advice("{…}")` instead, which is never forgotten.
    """
    return advice("{python=words}", words=words)


def render(hint: str | None, vocabulary: Vocabulary) -> str | None:
    """Says a hint in the words of an audience; None if nothing is left for it.

    A string that `advice` did not make is returned as it is.
    """
    made = _made_of(hint or "")
    if made is None:
        return hint
    template, values = made
    clauses: list[list[str | None]] = [[]]
    for text, reference in _pieces(template):
        for part in text.replace("[", "\0[\0").replace("]", "\0]\0").split("\0"):
            if part == "[":
                clauses.append([])
            elif part == "]":
                clause = clauses.pop()
                clauses[-1] += [] if None in clause else clause
            else:
                clauses[-1].append(part)
        if reference is not None:
            clauses[-1].append(_spoken(reference, values, vocabulary))
    whole = clauses[0]
    return None if None in whole else _joined("".join(filter(None, whole)))


def changed(hint: str, change: Callable[[str], str]) -> str:
    """The hint with its text changed, by a redactor for example; other audiences see it too."""
    text = change(hint)
    template, values = _made_of(hint) or ("", {})
    if text != hint and values:
        _remember(text, template, {name: changed(value, change) for name, value in values.items()})
    return text


def _made_of(hint: str) -> _Made | None:
    return _constant.get(hint) or _filled.get(hint)


def _remember(hint: str, template: str, values: dict[str, str]) -> None:
    if not values:
        _constant[hint] = template, values
        return
    # Not move_to_end: another thread may have dropped it.
    _filled.pop(hint, None)
    _filled[hint] = template, values
    while len(_filled) > _MAX_FILLED:
        _filled.popitem(last=False)


def _pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """The text up to each reference, and the reference; None behind the last text."""
    text, brace, rest = template.partition("{")
    while brace:
        end = rest.index("}")
        while rest.count("{", 0, end) > rest.count("}", 0, end):
            end = rest.index("}", end + 1)
        yield text, rest[:end]
        text, brace, rest = rest[end + 1 :].partition("{")
    yield text, None


def _in_python(template: str, values: dict[str, str]) -> Iterator[str]:
    for text, reference in _pieces(template):
        yield text.replace("[", "").replace("]", "")
        if reference is not None:
            yield _python_for(reference, values)


def _python_for(reference: str, values: dict[str, str]) -> str:
    name, value, words = _parsed(reference)
    if name in values:
        return values[name]
    if words is not None:
        return values.get(words, words)
    if name == "python":
        return values[value]
    if not _is_field(name):
        return reference
    owner, _, field = name.partition(".")
    if not value:
        return field
    return f"{owner}({field}={repr(values[value]) if value in values else value})"


def _spoken(reference: str, values: dict[str, str], vocabulary: Vocabulary) -> str | None:
    name, value, _ = _parsed(reference)
    if name in values:
        # A hint in a hint.
        return render(values[name], vocabulary)
    return vocabulary(name, values.get(value, value))


def _parsed(reference: str) -> tuple[str, str, str | None]:
    """The name, the value, and the words for Python where the template has them."""
    source, bar, words = reference.partition("|")
    name, _, value = source.partition("=")
    return name, value, words if bar else None


def _is_field(name: str) -> bool:
    owner, _, field = name.partition(".")
    return owner.isidentifier() and owner[0].isupper() and field.isidentifier()


def _joined(text: str) -> str | None:
    """Without the commas and semicolons to clauses that were left out; None if nothing is left."""
    for joint in _JOINTS:
        text = text.replace(f": {joint}", ": ")
    text = text.strip()
    for joint in _JOINTS:
        text = text.removeprefix(joint.lstrip()).removesuffix(joint.rstrip())
    return None if not text or text.endswith(":") else text
