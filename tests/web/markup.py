"""What a browser would find in a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, NamedTuple

VOID = {"input", "meta", "link", "br", "hr", "img", "rect"}


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    texts: list[str]

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def __getitem__(self, name: str) -> Any:  # type: ignore[override]
        return self.attributes[name]


class Markup(HTMLParser):
    """The elements of a page with their texts; each text counts for all elements around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, [])
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag in [one.tag for one in self._open]:
            while self._open.pop().tag != tag:
                pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.texts.append(data)

    def all(self, tag: str, **wanted: str) -> list[Element]:
        """Those with these attributes; `class_` has to be one of the classes."""
        return [one for one in self.elements if one.tag == tag and _has(one, wanted)]

    def one(self, tag: str, **wanted: str) -> Element:
        (found,) = self.all(tag, **wanted)
        return found

    def has_foreign_markup(self) -> bool:
        """Did anything that a session contains become an element that acts or loads?"""
        scripts = [one for one in self.all("script") if "/static/" not in one.attributes["src"]]
        acting = [one for one in self.elements if one.tag in ("img", "iframe", "object", "embed")]
        names = {name for one in self.elements for name in one.attributes}
        handlers = [name for name in names if name.startswith("on") or name == "style"]
        links = [one for one in self.all("a") if "javascript:" in one.attributes.get("href", "")]
        return bool(scripts or acting or handlers or links)


def _has(element: Element, wanted: dict[str, str]) -> bool:
    for name, value in wanted.items():
        found = element.attributes.get(name.rstrip("_").replace("_", "-"))
        if found is None or (value not in found.split() if name == "class_" else value != found):
            return False
    return True
