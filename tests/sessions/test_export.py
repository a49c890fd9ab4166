"""A conversation leaves as Markdown, as a page, as data: nothing lost, nothing that acts."""

import json
import re
from decimal import Decimal
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from geminorum import Options, sync
from geminorum.cost import Price, PriceBook
from geminorum.errors import InvalidOptions
from geminorum.events import (
    Done,
    Error,
    Init,
    ModelRequest,
    PermissionRequest,
    Text,
    TextDelta,
    Thinking,
    Tokens,
    ToolResult,
    ToolUse,
    Unknown,
    Usage,
    UserMessage,
    decode,
)
from geminorum.sessions.exporting import export
from geminorum.sessions.places import files_in, projects_of
from geminorum.sessions.reading import load
from geminorum.testing import Tokens as Spent
from geminorum.views.html import Limits, entry_html
from geminorum.views.html.prose import visible
from geminorum.views.markdown import fenced
from geminorum.views.transcript import transcript_of
from recorded import OURS, RECORDINGS

MODEL = "gemini-2.5-flash"
SAVED = sorted([*(OURS / "full").iterdir(), *(RECORDINGS / "sessions").rglob("*.json*")])
VOID = {"meta", "link", "br", "hr"}
HOSTILE = '</pre></details><script>alert(1)</script><img src=x onerror="alert(1)">'
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


class Page(HTMLParser):
    """Reads a page as a browser would, and notes what should not be there."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.tags, self.pieces = [], [], [], []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        last = self.open.pop() if self.open else None
        if last != tag:
            self.problems.append(f"</{tag}> closes <{last}>")

    def handle_data(self, data):
        if "style" not in self.open:
            self.pieces.append(data)

    @property
    def text(self):
        return "".join(self.pieces)

    def attributes(self, name):
        return [attrs[name] for _, attrs in self.tags if name in attrs]


def page_of(events, **more):
    text = export(events, "html", **more)
    page = Page(text)
    assert page.problems == []
    return page


def worked(**more):
    """One call and its result, and an answer."""
    return [
        UserMessage("Do it"),
        ToolUse("run_shell_command", "1", {"command": "ls"}),
        ToolResult("1", "run_shell_command", **{"output": "a.txt", **more}),
        Text("Done."),
        Done("success"),
    ]


def check_every_format(session):
    page = page_of(session)
    assert session.title[:40] in page.text
    assert export(session, "markdown").startswith("# ")
    assert json.loads(export(session, "sharegpt"))["id"] == session.id
    lines = export(session, "jsonl").splitlines()
    assert [decode(line).type for line in lines] == [e.type for e in session.events()]
    assert all(json.loads(line) for line in export(session, "claude").splitlines())


def check_all_is_on_the_page(session):
    page, paper = page_of(session), export(session, "markdown")
    for event in session.events():
        if isinstance(event, UserMessage):
            assert event.text in page.text
        if isinstance(event, Text):
            assert event.text in paper
        if isinstance(event, ToolResult) and event.content:
            assert event.content in page.text
            assert event.content in paper


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem[-14:])
def test_every_saved_session_leaves_in_every_format(path):
    """S3-44, S3-45, B-5: sessions of four CLI versions."""
    check_every_format(load(path))


@pytest.mark.parametrize("name", ["0.11.3-tour.json", "0.61.0-at-once.jsonl"])
def test_what_was_said_thought_and_done_is_on_the_page(name):
    check_all_is_on_the_page(load(OURS / "full" / name))


def test_an_unknown_format_is_refused_with_those_there_are():
    with pytest.raises(InvalidOptions, match="no format 'pdf'") as caught:
        export([], "pdf")
    assert "sharegpt" in caught.value.hint


def test_nothing_at_all_can_be_exported():
    assert "Nobody said anything" in page_of([]).text
    assert export([], "markdown") == "# Gemini session\n"
    assert export([], "jsonl") == ""


def test_the_page_loads_nothing_and_runs_nothing():
    text = "![pixel](https://evil.example/p.png) [out](https://ok.example) <http://ok.example/2>"
    page = page_of([Text(text), Done("success")])
    policies = [a["content"] for _, a in page.tags if "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert not {"script", "img", "iframe", "object", "base", "form"} & {t for t, _ in page.tags}
    assert page.attributes("src") == []
    loads = [attrs["href"] for tag, attrs in page.tags if tag == "link"]
    assert loads == ["data:,"]
    style = export([], "html").partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    outside = [href for href in page.attributes("href") if href.startswith("http")]
    assert outside == [*("https://evil.example/p.png", "https://ok.example", "http://ok.example/2")]


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "data:text/html,x", "data:image/png;base64,AA", "file:///e"]
)
def test_a_link_that_could_act_stays_text(address):
    page = page_of([Text(f"[a]({address}) ![b]({address}) <{address}>\n\n[c]\n\n[c]: {address}")])
    assert address in page.text
    assert not any(address in href for href in page.attributes("href"))


@settings(max_examples=60)
@given(ANY_TEXT)
def test_any_text_stands_on_the_page_as_text(text):
    text = HOSTILE + text
    page = page_of(
        [
            UserMessage(text),
            Thinking(text),
            PermissionRequest(text, reason=text, decision="deny"),
            ToolUse(text, "1", {"x": f"argument {text}", text: 1}),
            ToolResult("1", output=f"output {text}", content=f"content {text}"),
            Text(text),
            Error(f"error {text}", hint=f"hint {text}"),
            Done("error"),
        ],
        title=text,
    )
    for where in ("", "argument ", "output ", "content ", "error ", "hint "):
        assert visible(where + text) in page.text
    plain = page_of(worked())
    new = {tag for tag, _ in page.tags} - {tag for tag, _ in plain.tags}
    assert not {"script", "img"} & new
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)


OPENERS = ["```", "~~~~", "<!--", "<pre>", "<?", "<!X", "<![CDATA[", "- ", "> ", "    ", "\n", "a"]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(OPENERS), max_size=8).map("".join))
def test_whatever_a_text_leaves_open_markdown_goes_on_after_it(text):
    paper = export([Text(text), UserMessage("the end"), Thinking(text), Text("x")], "markdown")
    shown = unescape(paper).replace("\\!", "!")
    assert all(line.strip() in shown for line in text.split("\n"))
    tokens = MarkdownIt("commonmark").parse(paper)
    top = [
        tokens[n + 1].content
        for n, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0
    ]
    assert "User" in top
    assert top[-1] == "Gemini"


def test_a_thought_cannot_end_its_fold():
    paper = export([Thinking("a </details> b <!-- c"), Text("x")], "markdown")
    page = Page(MarkdownIt("commonmark").render(paper))
    assert page.problems == []
    assert "a </details> b <!-- c" in page.text


def test_a_thought_that_the_session_file_tells_late_stands_first():
    request = ModelRequest(1, 1, total=2, model=MODEL, timestamp=7)
    usage = Usage(1, 1, total=2, by_model={MODEL: Tokens(1, 1, total=2)}, requests=(request,))
    events = [
        ToolUse("glob", "1", {"pattern": "*"}, timestamp=5),
        Thinking("thought before", timestamp=7),
        ToolResult("1", "glob", timestamp=9),
        Done("success", usage=usage),
    ]
    page = page_of(events)
    assert page.text.index("thought before") < page.text.index("glob")
    assert page.attributes("class").count("answer") == 1
    assert "1 in1 out" in page.text


@given(st.text("`a\n", max_size=40))
def test_nothing_ends_a_fence_but_the_fence(text):
    [block] = MarkdownIt("commonmark").parse(fenced(text, "text"))
    assert block.type == "fence"
    assert block.content.removesuffix("\n") == text.removesuffix("\n")


def test_a_control_character_is_shown_by_its_picture():
    page = page_of(worked(output="red\x1b[31m\r\nnext\x00\ud800"))
    assert "red␛[31m\nnext␀\ufffd" in page.text


def test_a_letter_that_hides_or_turns_others_round_is_spelled_out_on_a_page():
    page = page_of(worked(output="pay \u202emoc.knab\u2066 a\u200bb \U000e0041"))
    assert r"pay \u202emoc.knab\u2066 a\u200bb \udb40\udc41" in page.text


def test_an_edit_is_shown_as_a_diff_from_what_was_asked():
    events = [
        ToolUse("replace", "1", {"file_path": "a.py", "old_string": "a\nb", "new_string": "a\nc"}),
        ToolResult("1", "replace"),
        ToolUse("write_file", "2", {"file_path": "b.py", "content": "x\ny\n"}),
        ToolResult("2", "write_file"),
    ]
    marked = re.findall(r'<span class="(came|went)">([^<]*)\n', export(events, "html"))
    assert marked == [("went", "-b"), ("came", "+c"), ("came", "+x"), ("came", "+y")]
    assert "```diff\n--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n```" in export(
        events, "markdown"
    )


def test_an_edit_that_failed_changed_nothing():
    wish = {"file_path": "a.py", "old_string": "secret", "new_string": "c"}
    events = [ToolUse("replace", "1", wish), ToolResult("1", status="denied", output="no")]
    page = page_of(events)
    assert "diff" not in page.attributes("class")
    assert "secret" in page.text
    assert "denied" in page.text


def test_a_saved_edit_knows_the_whole_change():
    call = {"id": "1", "name": "replace", "resultDisplay": {"fileDiff": DIFF}}
    frame = msgspec.Raw(json.dumps({"id": "m", "type": "gemini", "toolCalls": [call]}).encode())
    wish = {"file_path": "a.py", "old_string": "b", "new_string": "c"}
    events = [ToolUse("replace", "1", wish), ToolResult("1", "replace", frame=frame)]
    assert "--- a.py\tCurrent\n+++ a.py\tProposed\n@@ -1,2 +1,2 @@\n around" in page_of(events).text
    assert "Index:" not in export(events, "markdown")


DIFF = (
    "Index: a.py\n====\n--- a.py\tCurrent\n+++ a.py\tProposed\n@@ -1,2 +1,2 @@\n around\n-b\n+c\n"
)


def test_each_answer_has_what_it_consumed_beside_it():
    asked = [
        ModelRequest(1000, 10, 400, 100, total=1110, model=MODEL, timestamp=5),
        ModelRequest(2000, 20, total=2020, model=MODEL, timestamp=9),
    ]
    usage = Usage(
        *(3000, 30, 400, 100, 0, 3130),
        by_model={MODEL: Tokens(3000, 30, 400, 100, 0, 3130)},
        exact=True,
        requests=tuple(asked),
    )
    prices = PriceBook({MODEL: Price(Decimal(1), Decimal(10), Decimal("0.1"))})
    # Two answers in a row, without a tool between them: their times tell them apart.
    events = [Text("first", timestamp=5), Text("second", timestamp=9), Done("success", usage=usage)]
    page = page_of(events, prices=prices)
    assert "1,000 in, 400 cached10 out, 100 thoughts$0.001740" in page.text
    assert "2,000 in20 out$0.002200" in page.text
    assert "$0.003940" in page.text
    assert "1,000 in · 400 cached · 10 out · 100 thoughts · $0.001740" in export(
        events, "markdown", prices=prices
    )


def test_an_unknown_price_is_not_nothing():
    usage = Usage(10, 1, total=11, by_model={"gemini-zz": Tokens(10, 1, total=11)})
    page = page_of([Text("x"), Done("success", usage=usage)])
    assert "not known" in page.text
    assert "$0" not in page.text


def test_pieces_of_an_answer_count_only_where_it_was_never_finished():
    whole = [TextDelta("Hel"), TextDelta("lo"), Text("Hello")]
    assert export(whole, "markdown").count("Hello") == 1
    assert "Hel" in export([TextDelta("H"), TextDelta("el")], "markdown")


def test_an_answer_that_never_came_and_one_nobody_asked_for_are_told():
    assert "unanswered" in page_of([ToolUse("glob", "1", {"pattern": "*"})]).text
    assert "lonely" in page_of([ToolResult("2", "glob", output="lonely")]).text


def test_what_the_program_says_first_is_folded_and_what_is_unknown_kept():
    frame = b'{"id":"1","type":"user","content":[{"text":"<session_context>today"}]}'
    context = Unknown("session_context", frame=msgspec.Raw(frame))
    page = page_of([context, Unknown("new", frame=msgspec.Raw(b'{"type":"new"}'))])
    assert "What the CLI told the model first" in page.text
    assert "<session_context>today" in page.text
    assert '{"type":"new"}' in page.text


def test_a_long_session_has_contents_and_every_message_an_anchor():
    events = [e for n in range(5) for e in (UserMessage(f"Question {n}"), Text(f"Answer {n}"))]
    page = page_of(events)
    anchors = set(page.attributes("id"))
    assert {f"m{n}" for n in range(1, 11)} <= anchors
    inside = [href[1:] for href in page.attributes("href") if href.startswith("#")]
    assert set(inside) <= anchors
    assert "contents" in anchors
    assert "contents" not in page_of(events[:4]).attributes("id")


def test_the_page_can_be_read_by_everybody():
    page = page_of(worked())
    assert page.attributes("lang") == ["en"]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    style = export([], "html")
    assert "prefers-color-scheme: dark" in style
    assert "details::details-content" in style.partition("@media print")[2]


def test_the_models_headings_stand_below_the_pages_own():
    page = page_of([Text("# Big\n\n###### Small")])
    tags = [tag for tag, _ in page.tags]
    assert (tags.count("h1"), "h4" in tags, "h6" in tags) == (1, True, True)


def test_sharegpt_has_four_speakers_and_marks_for_tools():
    frame = b'{"id":"1","type":"user","content":"<session_context>"}'
    events = [
        Init(session_id="s"),
        Unknown("session_context", frame=msgspec.Raw(frame)),
        UserMessage("Look"),
        Thinking("Hm"),
        ToolUse("read_file", "1", {"file_path": "a"}),
        ToolResult("1", "read_file", output="shown", content="</tool_response>"),
        Text("Seen."),
    ]
    saved = json.loads(export(events, "sharegpt"))
    assert saved["id"] == "s"
    said = [(turn["from"], turn["value"]) for turn in saved["conversations"]]
    call = '<tool_call>{"name":"read_file","arguments":{"file_path":"a"}}</tool_call>'
    assert said == [
        ("system", "<session_context>"),
        ("human", "Look"),
        ("gpt", f"<think>\nHm\n</think>\n{call}"),
        ("tool", said[3][1]),
        ("gpt", "Seen."),
    ]
    [inner] = re.findall("<tool_response>(.*?)</tool_response>", said[3][1])
    assert json.loads(inner) == {
        "name": "read_file",
        "status": "success",
        "content": "</tool_response>",
    }


@pytest.mark.gemini_cli
def test_a_real_run_reads_the_same_live_and_saved(fake_gemini, real_transport, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo\n")
    spent = Spent(prompt=1000, cached=400, output=10, thoughts=100)
    edit = {"file_path": "a.txt", "old_string": "two", "new_string": "2", "instruction": "x"}
    fake_gemini.say(
        {"functionCall": {"name": "replace", "args": edit}},
        thoughts=["**Plan**\n\nEdit the file."],
        tokens=spent,
    )
    fake_gemini.calls(("run_shell_command", {"command": "cat a.txt"}), tokens=spent)
    fake_gemini.say("It is **done**.", tokens=spent)
    options = Options(
        env=fake_gemini.env, home=fake_gemini.home, cwd=workspace, model=MODEL, approval="yolo"
    )
    with sync.run("Edit it", options, via=real_transport) as live:
        seen = list(live)
    [project] = projects_of(fake_gemini.home, workspace)
    saved = load(files_in(project)[0], workspace)
    for page in (page_of(seen), page_of(saved)):
        assert page.text.count("1,000 in, 400 cached10 out, 100 thoughts$0.000467") == 3
        for words in ("-two", "+2", "cat a.txt", "It is done.", "$0.001401"):
            assert words in page.text
    assert "Plan" in page_of(saved).text
    assert " one\n-two\n+2\n" in page_of(saved).text


def test_a_changed_line_may_look_like_a_file_s_name():
    from geminorum.views.diffs import counts

    diff = "--- a.txt\n+++ a.txt\n@@ -1,1 +1,2 @@\n--- two\n+++ one\n+++ three"
    assert counts(diff) == (2, 1)
    assert counts("+one\n-two") == (1, 1)


# ---- parts of a page, cut to what there is room for


def shown(*events, **limits) -> str:
    entries = transcript_of(events).entries
    return "".join(entry_html(entry, n, limits=Limits(**limits)) for n, entry in enumerate(entries))


def test_a_long_text_is_cut_and_the_page_says_so():
    for event in (UserMessage("x" * 100), Text("x" * 100), Thinking("x" * 100), Error("x" * 100)):
        page = shown(event, characters=30)
        assert "x" * 30 in page
        assert "x" * 95 not in page  # The line above folded thoughts is short anyway.
        assert "70 more characters are left out here" in page
        assert "left out" not in shown(event, characters=100)
        assert "left out" not in shown(event)


def test_of_a_call_every_text_is_cut():
    use = ToolUse("write_file", "a", {"file_path": "f", "content": "new\n" * 50, "note": "n" * 200})
    page = shown(use, ToolResult("a", output="o" * 200, content="c" * 200), characters=40)
    assert [len(found) for found in re.findall(r"[noc]{41,}", page)] == []
    assert page.count("left out here") == 4


def test_of_an_answer_with_many_calls_some_are_shown_and_the_rest_is_counted():
    page = shown(*(ToolUse("ls", str(number)) for number in range(50)), parts=20)
    assert page.count("<details") == 20
    assert "30 more parts of this answer are left out" in page


def test_what_is_cut_in_the_middle_of_an_escape_stays_text():
    page = shown(Text("<script>alert(1)</script>"), characters=9)
    assert "<script" not in page
