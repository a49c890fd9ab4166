"""A Markdown export shows what was said, and nothing of it acts when it is rendered."""

import re
from html import unescape

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from geminorum.events import (
    Done,
    Error,
    Event,
    ModelRequest,
    PermissionRequest,
    Text,
    Thinking,
    Tokens,
    ToolResult,
    ToolUse,
    Usage,
    UserMessage,
)
from geminorum.sessions import export

OURS = re.compile(r"</?(?:details|summary|code|b|sub)>")
WEB = re.compile(r"(?:https?|mailto):|(?![a-z][a-z0-9+.-]*:)", re.I)
PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a <b onclick=x>b</b>",
    "\\<img src=x onerror=alert(1)>",
    "\\\\<img src=x onerror=alert(1)>",
    "<!-- -->",
    "<?php ?>",
    "<![CDATA[x]]>",
    "<div\nonclick=x>",
    "</details>",
    "<javascript:alert(1)>",
    "[a](javascript:alert(1))",
    "[a](  \njavascript:alert(1))",
    "[a](<javascript:alert(1)>)",
    "[a](JaVaScRiPt&colon;alert(1))",
    "[a](java&#9;script:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "[a](javascript\\:alert(1))",
    "[a](data:text/html,x)",
    f"[a]({'&Tab;' * 100}javascript:alert(1))",
    "[a](vbscript:x)",
    "[a](file:///etc/passwd)",
    "![a](https://evil.example/p.png)",
    "![a][r]\n\n[r]: https://evil.example/p.png",
    "[a][r]\n\n[r]: javascript:alert(1)",
    "[a][r]\n\n[r]:\n  <javascript:alert(1)>",
    "> [r]: javascript:alert(1)\n\n[r]",
    "- x\n\n  <img src=x>",
    "\t<img src=x>",
    "    <img src=x>",
    "```\n<img src=x>",
    "`<img src=x>",
    "`` ` <img src=x> `",
    "| a | b |\n|---|---|\n| `x | <img src=y>` |",
    "| ` | b |\n|---|---|\n| `<img src=y>` | c |",
    "<details>\n\n```\n</details>\n\n<img src=x>",
    "> ```\n<img src=x>",
    "1. a\n\n       <img src=x>",
    "[r]: javascript:alert(1)",
    "<a\rhref='javascript:alert(1)'>x</a>",
]
BITS = st.sampled_from([*PAYLOADS, "`", "``", "```", "~~~", "\n", "\n\n", "- ", "> ", "    ", "|"])
HOSTILE = st.lists(BITS, min_size=1, max_size=5).map("".join)


def everywhere(text: str) -> list[Event]:
    """The text wherever a model, a server or a repository can put it."""
    request = ModelRequest(1, 1, total=2, model=text, timestamp=7)
    usage = Usage(1, 1, total=2, by_model={text: Tokens(1, 1, total=2)}, requests=(request,))
    return [
        UserMessage(text),
        Thinking(text, timestamp=7),
        Text("- a list"),
        Text(text, timestamp=7),
        PermissionRequest(text, reason=text, decision="deny"),
        ToolUse(text, "1", {"command": text, text: text}, timestamp=7),
        ToolResult("1", output=text, content=f"content {text}"),
        Text("[r] and ![r]"),
        Error(text, hint=text),
        Done("error", usage=usage),
    ]


def readers() -> list[MarkdownIt]:
    """As a page's readers may be: HTML and every address pass."""
    plain = MarkdownIt("commonmark", {"html": True})
    tables = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for reader in (plain, tables):
        reader.validateLink = lambda url: True
    return [plain, tables]


def acting(paper: str) -> list[str]:
    """What would act on a page that is made of the paper."""
    found = []
    for reader in readers():
        blocks = reader.parse(paper)
        for token in [*blocks, *(child for block in blocks for child in block.children or [])]:
            if token.type in ("html_block", "html_inline"):
                left = OURS.sub("", token.content)
                found += re.findall(r"<[A-Za-z/!?].*", left)
            if token.type == "image":
                found.append(token.content)
            if token.type == "link_open" and not WEB.match(str(token.attrs["href"])):
                found.append(str(token.attrs["href"]))
    return found


@pytest.mark.parametrize("text", PAYLOADS)
def test_nothing_that_is_said_acts_on_the_page(text):
    assert acting(export(everywhere(text), "markdown", title=text)) == []


@settings(max_examples=150)
@given(HOSTILE)
@example("[r]: javascript:alert(1)")
def test_nothing_acts_in_whatever_combination(text):
    assert acting(export(everywhere(text), "markdown", title=text)) == []


@pytest.mark.parametrize("text", ["<b>bold</b> & a < b", "\\<i>", "5 <= 6 &lt; 7", "![a](b)"])
def test_what_was_said_is_still_to_be_read(text):
    paper = export([Text(text)], "markdown")
    page = unescape(re.sub(r"</?p>", "", readers()[0].render(paper)))
    shown = text.replace("\\<", "<").replace("&lt;", "<").replace("![a](b)", '!<a href="b">a</a>')
    assert shown in page


@pytest.mark.parametrize(
    "code",
    [
        "```html\n<script>let a = `x`</script>\n```",
        "~~~\n![a](javascript:x) \\<b>\n~~~",
        "Use `<script>` and ``a ` <b>`` here.",
        "- a list with\n  ```\n  <b>\n  ```",
        "text\n\n    <indented code>\n",
        "| a | b |\n|---|---|\n| `<b>` | ![no image] |",
    ],
)
def test_code_stays_to_the_letter(code):
    assert code.replace("![no image]", "\\![no image]") in export([Text(code)], "markdown")


def test_links_to_the_web_stay_links():
    text = "[a](https://ok.example) [b](mailto:a@b.example) [c](notes.md)\n\n[d]\n\n[d]: http://x"
    assert text in export([Text(text)], "markdown")


def test_a_long_text_of_openers_is_read_in_time_that_grows_with_it():
    """Ended by the suite's own limit where it is not."""
    for text in ("`" * 3 + "a`" * 30_000, "[a](" * 20_000, "<" * 50_000, "\\" * 50_000):
        assert acting(export([Text(text)], "markdown")) == []
