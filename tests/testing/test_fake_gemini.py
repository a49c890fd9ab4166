"""FakeGemini as its users meet it: over real sockets, with Google's SDK and with the real CLI."""

import asyncio
import contextlib
import gc
import json
import os
import re
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from geminorum.testing import FakeGemini, Request, Say, Tokens, prose
from shared_run import private_place

MODEL = "gemini-3.8-flash"
TRUSTED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Nobody: without it, each client loads all authorities twice, and speaks plain HTTP then."""


@pytest.fixture
def client(fake_gemini: FakeGemini) -> Iterator[Any]:
    with google_client(fake_gemini) as found:
        yield found


def google_client(fake: FakeGemini) -> Any:
    from google import genai

    options = {"base_url": fake.url, "api_version": "v1beta"}
    options |= {"client_args": {"verify": TRUSTED}, "async_client_args": {"ssl": TRUSTED}}
    return genai.Client(api_key="any", vertexai=False, http_options=options)


def post(
    fake: FakeGemini,
    body: object,
    path: str = f"/v1beta/models/{MODEL}:generateContent",
    **headers: str,
) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(fake.url + path, data, headers)
    with opener().open(request, timeout=10) as answer:
        return json.load(answer)


def opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def user(text: str) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": text}]}]}


def text_of(answer: Any) -> str:
    return "".join(part["text"] for part in answer["candidates"][0]["content"]["parts"])


def parts_of(chunks: list[Any]) -> list[Any]:
    return [part for chunk in chunks for part in chunk.candidates[0].content.parts]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def refusal(fake: FakeGemini, body: object, path: str | None = None) -> tuple[int, Any]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(fake, body, path) if path else post(fake, body)
    with caught.value as answer:
        return answer.code, json.load(answer)["error"]


class TestAnswers:
    def test_each_argument_of_say_arrives_as_a_chunk_of_its_own(self, fake_gemini, client):
        fake_gemini.say("Hello ", "world.")
        chunks = list(client.models.generate_content_stream(model=MODEL, contents="Hi"))
        assert [chunk.text for chunk in chunks] == ["Hello ", "world."]
        assert [chunk.candidates[0].finish_reason for chunk in chunks] == [None, "STOP"]

    def test_without_streaming_the_chunks_arrive_as_one_text(self, fake_gemini, client):
        fake_gemini.say("Hello ", "world.", thoughts=["Greet", "ings"])
        answer = client.models.generate_content(model=MODEL, contents="Hi")
        assert [part.text for part in parts_of([answer])] == ["Greetings", "Hello world."]
        assert answer.model_version == MODEL

    def test_thoughts_come_before_the_text(self, fake_gemini, client):
        fake_gemini.say("Hi", thoughts=["Plan: think first"])
        chunks = list(client.models.generate_content_stream(model=MODEL, contents="Hi"))
        found = [(part.text, part.thought) for part in parts_of(chunks)]
        assert found == [("Plan: think first", True), ("Hi", None)]

    def test_the_usage_is_what_the_script_says(self, fake_gemini, client):
        tokens = Tokens(prompt=100, cached=20, output=10, thoughts=20, tool=3)
        fake_gemini.say("a", "b", tokens=tokens, model="gemini-9")
        *_, last = client.models.generate_content_stream(model=MODEL, contents="Hi")
        usage = last.usage_metadata
        assert usage.prompt_token_count == 100
        assert usage.cached_content_token_count == 20
        assert usage.candidates_token_count == 10
        assert usage.thoughts_token_count == 20
        assert usage.tool_use_prompt_token_count == 3
        assert usage.total_token_count == 133
        assert last.model_version == "gemini-9"

    def test_usage_is_estimated_the_same_way_every_time(self, fake_gemini):
        fake_gemini.say("12345678").times(2)
        first, second = post(fake_gemini, user("1234")), post(fake_gemini, user("1234"))
        expected = {"promptTokenCount": 2, "candidatesTokenCount": 2, "totalTokenCount": 4}
        assert first["usageMetadata"] == second["usageMetadata"] == expected

    def test_running_totals_end_with_the_whole(self, fake_gemini, client):
        fake_gemini.say("a", "b", "c", tokens=Tokens(prompt=7, output=9))
        chunks = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert [chunk.usage_metadata.candidates_token_count for chunk in chunks] == [3, 6, 9]

    def test_a_finish_reason_can_be_chosen(self, fake_gemini, client):
        fake_gemini.say("cut sho", finish="MAX_TOKENS")
        answer = client.models.generate_content(model=MODEL, contents="Hi")
        assert answer.candidates[0].finish_reason == "MAX_TOKENS"

    def test_a_blocked_prompt_has_no_candidate(self, fake_gemini, client):
        fake_gemini.block("SAFETY").block("JAILBREAK")
        answer = client.models.generate_content(model=MODEL, contents="Hi")
        assert (answer.prompt_feedback.block_reason, answer.candidates) == ("SAFETY", None)
        [chunk] = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert chunk.prompt_feedback.block_reason == "JAILBREAK"

    def test_a_dict_is_a_part_as_the_api_writes_it(self, fake_gemini):
        image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
        fake_gemini.say("Look: ", image)
        parts = post(fake_gemini, user("draw"))["candidates"][0]["content"]["parts"]
        assert parts == [{"text": "Look: "}, image]

    def test_grounding_travels_with_the_last_chunk(self, fake_gemini):
        fake_gemini.say("Paris.", grounding={"webSearchQueries": ["capital of France"]})
        found = post(fake_gemini, user("?"))["candidates"][0]["groundingMetadata"]
        assert found == {"webSearchQueries": ["capital of France"]}

    def test_line_separators_inside_a_text_survive_streaming(self, fake_gemini, client):
        odd = "one\u2028two\u2029three\u0085four\x0bfive"
        fake_gemini.say(odd)
        [chunk] = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert chunk.text == odd

    def test_a_stream_without_sse_is_a_json_array(self, fake_gemini):
        fake_gemini.say("a", "b", "c")
        found = post(fake_gemini, user("Hi"), f"/v1/models/{MODEL}:streamGenerateContent")
        assert [text_of(each) for each in found] == ["a", "b", "c"]

    def test_chunks_are_sent_as_soon_as_they_are_said(self, fake_gemini, client):
        fake_gemini.hang("first")
        chunks = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert next(chunks).text == "first"

    def test_drip_and_delay_lose_nothing(self, fake_gemini, client):
        fake_gemini.say("a", "b", "c", delay=0.05, drip=0.03)
        chunks = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert [chunk.text for chunk in chunks] == ["a", "b", "c"]

    def test_raw_bytes_are_served_untouched(self, fake_gemini, client):
        fake_gemini.raw(b'data: {"candidates": [{"content": {"parts": [{"text": "x"}]}}]}\r\n\r\n')
        [chunk] = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert chunk.text == "x"

    def test_a_function_can_make_the_answer(self, fake_gemini):
        fake_gemini.reply(lambda request: request.prompt.upper())
        fake_gemini.reply(lambda request: Say((f"{len(request.contents)} content",)))
        assert text_of(post(fake_gemini, user("hi"))) == "HI"
        assert text_of(post(fake_gemini, user("hi"))) == "1 content"

    def test_a_function_that_raises_tells_the_client(self, fake_gemini):
        fake_gemini.reply(lambda request: str(1 / 0))
        code, error = refusal(fake_gemini, user("hi"))
        assert code == 400
        assert "ZeroDivisionError" in error["message"]

    def test_a_value_that_is_no_json_tells_the_client(self, fake_gemini):
        fake_gemini.call("tool", value=object())
        assert "raised TypeError" in refusal(fake_gemini, user("hi"))[1]["message"]


class TestTools:
    def test_the_answer_after_a_call_follows_the_tools_result(self, fake_gemini, client):
        from google.genai import types

        fake_gemini.call("add", a=2, b=3).say("Five.")
        question = types.Content(role="user", parts=[types.Part(text="2 + 3?")])
        asked = client.models.generate_content(model=MODEL, contents=[question])
        call = asked.function_calls[0]
        result = types.FunctionResponse(id=call.id, name=call.name, response={"sum": 5})
        answered = types.Content(role="user", parts=[types.Part(function_response=result)])
        history = [question, asked.candidates[0].content, answered]
        done = client.models.generate_content(model=MODEL, contents=history)

        assert (call.name, call.args) == ("add", {"a": 2, "b": 3})
        assert done.text == "Five."
        last = fake_gemini.requests[-1]
        assert (last.prompt, last.round) == ("2 + 3?", 1)
        assert [(each.name, each.response, each.id) for each in last.tool_results] == [
            ("add", {"sum": 5}, call.id)
        ]

    def test_parallel_calls_arrive_in_one_answer_after_the_text(self, fake_gemini, client):
        fake_gemini.calls(("read", {"path": "a"}), ("read", {"path": "b"}), text="Both.")
        chunks = list(client.models.generate_content_stream(model=MODEL, contents="Hi"))
        text, first, second = parts_of(chunks)
        assert text.text == "Both."
        assert [each.function_call.args["path"] for each in (first, second)] == ["a", "b"]
        assert first.function_call.id != second.function_call.id
        assert chunks[-1].candidates[0].finish_reason == "STOP"

    def test_only_the_first_call_of_gemini_3_is_signed(self, fake_gemini, client):
        fake_gemini.calls(("read", {}), ("read", {}))
        answer = client.models.generate_content(model=MODEL, contents="Hi")
        assert [bool(part.thought_signature) for part in parts_of([answer])] == [True, False]

    def test_calls_of_gemini_2_have_neither_id_nor_signature(self, fake_gemini, client):
        fake_gemini.call("read", path="a")
        answer = client.models.generate_content(model="gemini-2.5-flash", contents="Hi")
        [part] = parts_of([answer])
        assert (part.function_call.id, part.thought_signature) == (None, None)

    def test_a_tool_may_have_any_parameter_name(self, fake_gemini):
        fake_gemini.call("odd", self=1, tool=2, text=3)
        [part] = post(fake_gemini, user("Hi"))["candidates"][0]["content"]["parts"]
        assert part["functionCall"]["args"] == {"self": 1, "tool": 2, "text": 3}


class TestFailures:
    def test_an_error_has_googles_shape(self, fake_gemini, client):
        from google.genai import errors

        fake_gemini.fail(503, "Too busy")
        with pytest.raises(errors.ServerError) as caught:
            client.models.generate_content(model=MODEL, contents="Hi")
        error = caught.value
        assert (error.code, error.status, error.message) == (503, "UNAVAILABLE", "Too busy")

    def test_a_quota_error_says_when_to_retry(self, fake_gemini):
        fake_gemini.fail(429, retry_delay=2.5)
        code, error = refusal(fake_gemini, user("Hi"))
        assert (code, error["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert "Please retry in 2.5s." in error["message"]
        quota, retry = error["details"]
        assert "PerMinute" in quota["violations"][0]["quotaId"]
        assert retry == {
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": "2.5s",
        }

    def test_a_spent_day_is_told_apart_from_a_spent_minute(self, fake_gemini):
        fake_gemini.fail(429, daily=True)
        [quota] = refusal(fake_gemini, user("Hi"))[1]["details"]
        assert "PerDay" in quota["violations"][0]["quotaId"]
        assert quota["violations"][0]["quotaDimensions"]["model"] == MODEL

    def test_a_reason_becomes_error_info(self, fake_gemini):
        fake_gemini.fail(400, "API key not valid.", reason="API_KEY_INVALID")
        [info] = refusal(fake_gemini, user("Hi"))[1]["details"]
        assert info["reason"] == "API_KEY_INVALID"

    def test_a_failure_may_last_for_several_requests(self, fake_gemini):
        fake_gemini.fail(500, times=2).say("Back.")
        assert [refusal(fake_gemini, user("Hi"))[0] for _ in range(2)] == [500, 500]
        assert text_of(post(fake_gemini, user("Hi"))) == "Back."

    def test_a_stream_can_break_with_an_error(self, fake_gemini, client):
        from google.genai import errors

        fake_gemini.fail(503, after=["I was "])
        chunks = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert next(chunks).text == "I was "
        with pytest.raises(errors.ServerError):
            next(chunks)

    def test_a_truncated_stream_ends_without_a_finish_reason(self, fake_gemini, client):
        fake_gemini.truncate("half of an ans")
        [chunk] = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert (chunk.text, chunk.candidates[0].finish_reason) == ("half of an ans", None)

    def test_a_dropped_connection_breaks_the_stream(self, fake_gemini, client):
        fake_gemini.truncate("half of ", drop=True)
        chunks = client.models.generate_content_stream(model=MODEL, contents="Hi")
        assert next(chunks).text == "half of "
        with pytest.raises(Exception, match=r"(?i)incomplete|peer closed"):
            next(chunks)

    def test_a_dropped_connection_breaks_a_whole_answer_too(self, fake_gemini, client):
        fake_gemini.truncate("half of ", drop=True)
        with pytest.raises(Exception, match=r"(?i)incomplete|peer closed"):
            client.models.generate_content(model=MODEL, contents="Hi")

    def test_a_hanging_request_is_recorded_and_never_answered(self, fake_gemini):
        fake_gemini.hang()
        with socket.create_connection(("127.0.0.1", port_of(fake_gemini))) as wire:
            wire.sendall(raw_post(user("Hi")))
            until(lambda: fake_gemini.requests)
            wire.settimeout(0.05)
            with pytest.raises(TimeoutError):
                wire.recv(1)

    def test_a_script_that_ran_out_says_so(self, fake_gemini):
        code, error = refusal(fake_gemini, user("What now?"))
        assert code == 400
        assert "no answer scripted for this request (prompt 'What now?'" in error["message"]
        assert "add fake.say(" in error["message"]

    def test_a_default_answers_when_the_script_ran_out(self):
        with FakeGemini(default="As you wish.") as fake:
            fake.say("First.")
            assert text_of(post(fake, user("a"))) == "First."
            assert text_of(post(fake, user("b"))) == "As you wish."

    @pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
    def test_a_body_that_is_no_json_object_is_refused(self, fake_gemini, body):
        code, error = refusal(fake_gemini, body)
        assert (code, error["status"]) == (400, "INVALID_ARGUMENT")

    @pytest.mark.parametrize(
        "path", ["/", "/v1beta/nothing", f"/v1beta/models/{MODEL}:embedContent"]
    )
    def test_an_unknown_path_is_not_found(self, fake_gemini, path):
        code, error = refusal(fake_gemini, {}, path)
        assert (code, error["status"]) == (404, "NOT_FOUND")


class TestRules:
    def test_a_rule_wins_over_the_main_script(self, fake_gemini):
        fake_gemini.say("main")
        fake_gemini.when("label this").say("cat")
        assert text_of(post(fake_gemini, user("Please label this picture"))) == "cat"
        assert text_of(post(fake_gemini, user("Something else"))) == "main"

    def test_a_rule_can_be_a_pattern_or_a_function(self, fake_gemini):
        fake_gemini.when(re.compile(r"^\d+$")).say("a number")
        fake_gemini.when(lambda request: request.model == "gemini-2.5-pro").say("pro")
        path = "/v1beta/models/gemini-2.5-pro:generateContent"
        assert text_of(post(fake_gemini, user("hi"), path)) == "pro"
        assert text_of(post(fake_gemini, user("42"))) == "a number"

    def test_a_rule_has_a_queue_of_its_own(self, fake_gemini):
        fake_gemini.when("x").say("one").say("two")
        fake_gemini.say("main")
        assert [text_of(post(fake_gemini, user("x"))) for _ in range(3)] == ["one", "two", "main"]

    def test_always_repeats_the_last_answer(self, fake_gemini):
        fake_gemini.when("x").say("one").say("rest").always()
        answers = [text_of(post(fake_gemini, user("x"))) for _ in range(4)]
        assert answers == ["one", "rest", "rest", "rest"]

    def test_always_needs_an_answer_to_repeat(self):
        with pytest.raises(ValueError, match="script one first"):
            FakeGemini().always()

    def test_whenever_serves_every_conversation_from_its_beginning(self, fake_gemini):
        fake_gemini.whenever("count").call("list").say("Three.")
        result = {"functionResponse": {"name": "list", "response": {"n": 3}}}
        call = {"functionCall": {"name": "list", "args": {}}}
        begun = user("count them")
        later = {
            "contents": [
                *begun["contents"],
                {"role": "model", "parts": [call]},
                {"role": "user", "parts": [result]},
            ]
        }
        for body in (begun, begun, later, begun, later):
            [part] = post(fake_gemini, body)["candidates"][0]["content"]["parts"]
            assert ("functionCall" in part) == (body is begun)
        assert not fake_gemini.unused

    def test_what_was_never_served_is_listed(self, fake_gemini):
        fake_gemini.say("one").say("two").fail(500, times=3)
        fake_gemini.when("x").say("rule").always()
        post(fake_gemini, user("Hi"))
        assert [repr(each) for each in fake_gemini.unused] == [
            "Say(chunks=('rule',))",
            "Say(chunks=('two',))",
            "Fail(code=500)",
        ]

    def test_a_repeated_answer_is_unused_until_its_last_time(self, fake_gemini):
        fake_gemini.fail(500, times=2)
        refusal(fake_gemini, user("Hi"))
        assert len(fake_gemini.unused) == 1
        refusal(fake_gemini, user("Hi"))
        assert not fake_gemini.unused

    def test_a_script_may_be_written_before_the_fake_runs(self):
        with FakeGemini().say("ready") as fake:
            assert text_of(post(fake, user("Hi"))) == "ready"


class TestRecords:
    def test_a_request_is_recorded_with_its_parts_picked_out(self, fake_gemini, client):
        from google.genai import types

        fake_gemini.say("ok")
        declared = types.FunctionDeclaration(name="add", description="adds")
        config = types.GenerateContentConfig(
            system_instruction="Be brief.",
            temperature=0.5,
            tools=[types.Tool(function_declarations=[declared])],
        )
        before = time.time()
        list(client.models.generate_content_stream(model=MODEL, contents="Hi", config=config))
        [request] = fake_gemini.requests
        assert (request.model, request.method) == (MODEL, "streamGenerateContent")
        assert request.stream
        assert request.kind == "main"
        assert (request.prompt, request.system, request.tools) == ("Hi", "Be brief.", ("add",))
        assert request.config["temperature"] == 0.5
        assert request.headers["x-goog-api-key"] == "any"
        assert request.body["contents"] == request.contents
        assert before <= request.at <= time.time()

    def test_a_users_own_json_request_is_no_side_call(self, fake_gemini, client):
        fake_gemini.say('{"model_choice": "mine"}')
        schema = {"type": "object", "properties": {"model_choice": {"type": "string"}}}
        config = {"response_mime_type": "application/json", "response_json_schema": schema}
        answer = client.models.generate_content(model=MODEL, contents="Hi", config=config)
        assert answer.text == '{"model_choice": "mine"}'
        assert [request.kind for request in fake_gemini.log] == ["main"]

    def test_a_long_prompt_keeps_a_short_repr(self):
        request = Request("m", "generateContent", "", {}, user("x" * 1000), 0.0)
        assert len(repr(request)) < 200

    def test_tokens_are_counted_without_a_script(self, fake_gemini, client):
        assert client.models.count_tokens(model=MODEL, contents="12345678").total_tokens == 3
        assert fake_gemini.requests == []
        assert [request.kind for request in fake_gemini.log] == ["count"]

    def test_models_are_listed_and_described(self, fake_gemini, client):
        assert f"models/{MODEL}" in [model.name for model in client.models.list()]
        assert client.models.get(model="gemini-x").name == "models/gemini-x"

    @pytest.mark.parametrize(
        "path",
        [
            f"/v1/models/{MODEL}:generateContent",
            f"/v1beta1/projects/p/locations/l/publishers/google/models/{MODEL}:generateContent",
            f"/models/{MODEL}:generateContent",
        ],
    )
    def test_every_spelling_of_the_path_is_served(self, fake_gemini, path):
        fake_gemini.say("here")
        assert text_of(post(fake_gemini, user("Hi"), path)) == "here"
        assert fake_gemini.requests[0].model == MODEL


CLI = {"User-Agent": "GeminiCLI/0.61.0/gemini-2.5-flash (linux; x64; terminal)"}


def wanting(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {**user("Decide"), "generationConfig": {"responseJsonSchema": schema}}


class TestSideCalls:
    @pytest.mark.parametrize(
        ("kind", "body", "answer"),
        [
            ("routing", wanting(model_choice={"type": "string"}), {"model_choice": "flash"}),
            ("routing", wanting(complexity_score={"type": "INTEGER"}), {"complexity_score": 10}),
            ("next_speaker", wanting(next_speaker={"enum": ["model"]}), {"next_speaker": "user"}),
            (
                "loop_check",
                wanting(unproductive_state_confidence={"type": "number"}),
                {"unproductive_state_confidence": 0.0},
            ),
            (
                "side",
                wanting(
                    name={"type": "STRING"},
                    size={"enum": ["small", "big"]},
                    list={"type": "array"},
                    count={"type": "number", "minimum": 1},
                    sure={"type": "boolean"},
                    inner={"type": "object", "properties": {"x": {"type": "integer"}}},
                ),
                {
                    "name": "FakeGemini",
                    "size": "small",
                    "list": [],
                    "count": 1,
                    "sure": False,
                    "inner": {"x": 0},
                },
            ),
        ],
    )
    def test_the_clis_wish_for_json_is_granted(self, fake_gemini, kind, body, answer):
        assert json.loads(text_of(post(fake_gemini, body, **CLI))) == answer
        assert [call.kind for call in fake_gemini.side_calls] == [kind]
        assert fake_gemini.requests == []

    @pytest.mark.parametrize(
        ("kind", "body"),
        [
            ("summary", user("Summarize the user's primary intent")),
            ("compression", user("Generate a new <state_snapshot>")),
            ("web_search", {**user("capital of France"), "tools": [{"googleSearch": {}}]}),
            ("web_fetch", {**user("http://x"), "tools": [{"urlContext": {}}]}),
            ("side", user("Anything")),
        ],
    )
    def test_side_calls_take_no_scripted_answer_unless_named(self, fake_gemini, kind, body):
        fake_gemini.say("main")
        fake_gemini.when().say("any turn")
        assert text_of(post(fake_gemini, body, **CLI)) not in ("main", "any turn")
        fake_gemini.when(kind=kind).say("named")
        assert text_of(post(fake_gemini, body, **CLI)) == "named"
        assert [call.kind for call in fake_gemini.side_calls] == [kind, kind]

    def test_routing_decides_as_told(self):
        with FakeGemini(routing="pro") as fake:
            answer = post(fake, wanting(model_choice={"type": "string"}), **CLI)
        assert json.loads(text_of(answer)) == {"model_choice": "pro"}


class TestConnections:
    def test_one_connection_serves_many_requests(self, fake_gemini):
        fake_gemini.say("a").say("b", "c")
        with socket.create_connection(("127.0.0.1", port_of(fake_gemini))) as wire:
            stream = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
            for path, end in ((None, b"}"), (stream, b"0\r\n\r\n"), (None, b"}")):
                wire.sendall(raw_post(user("Hi"), path))
                received = wire.recv(65536)
                while not received.endswith(end):
                    received += wire.recv(65536)
        assert len(fake_gemini.requests) == 3

    def test_a_chunked_request_is_understood(self, fake_gemini):
        fake_gemini.say("ok")
        body = json.dumps(user("Hi")).encode()
        pieces = b"%x;x=y\r\n%b\r\n3\r\n%b\r\n0\r\n\r\n" % (len(body) - 3, body[:-3], body[-3:])
        head = f"POST /v1/models/{MODEL}:generateContent HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        with socket.create_connection(("127.0.0.1", port_of(fake_gemini))) as wire:
            wire.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n" + pieces)
            assert b"100 Continue" in wire.recv(65536)
            until(lambda: fake_gemini.requests)
        assert fake_gemini.requests[0].prompt == "Hi"

    def test_a_client_that_hangs_up_is_noticed_and_harms_nobody(self, fake_gemini, capfd):
        fake_gemini.say(*(prose(5000, seed=n) for n in range(100)), drip=0.01)
        fake_gemini.hang().say("next")
        stream = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
        for count, path in ((1, stream), (2, None)):
            with socket.create_connection(("127.0.0.1", port_of(fake_gemini))) as wire:
                wire.sendall(raw_post(user("Hi"), path))
                until(lambda count=count: len(fake_gemini.requests) == count)
            until(lambda count=count: len(fake_gemini.abandoned) == count)
        assert fake_gemini.abandoned == fake_gemini.requests
        assert text_of(post(fake_gemini, user("Hi"))) == "next"
        assert capfd.readouterr().err == ""

    def test_rubbish_on_the_wire_harms_nobody(self, fake_gemini, capfd):
        for rubbish in (
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port_of(fake_gemini))) as wire:
                wire.sendall(rubbish)
                assert wire.recv(1) == b""
        fake_gemini.say("fine")
        assert text_of(post(fake_gemini, user("Hi"))) == "fine"
        assert capfd.readouterr().err == ""

    def test_many_clients_are_served_at_once(self, fake_gemini):
        fake_gemini.whenever("n=").reply(lambda request: request.prompt)
        answers: list[str] = []
        ask = [
            threading.Thread(
                target=lambda n=n: answers.append(text_of(post(fake_gemini, user(f"n={n}"))))
            )
            for n in range(30)
        ]
        for thread in ask:
            thread.start()
        for thread in ask:
            thread.join()
        assert sorted(answers) == sorted(f"n={n}" for n in range(30))


class TestLifetime:
    async def test_it_is_an_async_context_manager_too(self):
        async with FakeGemini() as fake:
            fake.say("a", "b")
            client = google_client(fake)
            async with client.aio as live:
                stream = await live.models.generate_content_stream(model=MODEL, contents="Hi")
                assert [chunk.text async for chunk in stream] == ["a", "b"]
            client.close()

    async def test_an_event_loop_can_cancel_a_hanging_request(self):
        async with FakeGemini() as fake:
            fake.hang()
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(fake))
            writer.write(raw_post(user("Hi")))
            while not fake.requests:
                await asyncio.sleep(0.01)
            writer.close()
            await writer.wait_closed()
            while not fake.abandoned:
                await asyncio.sleep(0.01)

    def test_nothing_outlives_the_block(self):
        with FakeGemini():  # whatever is loaded once is loaded now
            pass
        gc.collect()
        before = (set(threading.enumerate()), open_files())
        with FakeGemini() as fake:
            fake.hang().hang("some").say("x", "y", drip=30)
            wires = [socket.create_connection(("127.0.0.1", port_of(fake))) for _ in range(4)]
            for wire in wires[:3]:
                wire.sendall(raw_post(user("Hi"), f"/v1/models/{MODEL}:streamGenerateContent"))
            until(lambda: len(fake.requests) == 3)
            home = fake.home
        for wire in wires:
            wire.close()
        gc.collect()
        assert (set(threading.enumerate()), open_files()) == before
        assert not home.exists()

    def test_connections_that_arrive_while_it_closes_leave_nothing_behind(self, capfd):
        before = set(threading.enumerate())
        wires: list[socket.socket] = []
        for _ in range(30):
            with FakeGemini(default="x") as fake:
                address = ("127.0.0.1", port_of(fake))
                knocking = threading.Thread(target=knock, args=(address, wires))
                knocking.start()
            knocking.join()
        for wire in wires:
            wire.close()
        gc.collect()  # a socket left open would be a ResourceWarning, and that an error
        assert set(threading.enumerate()) == before
        assert capfd.readouterr().err == ""

    def test_a_waiting_client_is_cut_off_when_the_block_ends(self):
        with FakeGemini() as fake:
            fake.hang()
            wire = socket.create_connection(("127.0.0.1", port_of(fake)), timeout=10)
            wire.sendall(raw_post(user("Hi")))
            until(lambda: fake.requests)
        with wire:
            assert wire.recv(1) == b""

    def test_outside_its_block_there_is_no_address(self):
        fake = FakeGemini()
        with pytest.raises(RuntimeError, match="with FakeGemini"):
            _ = fake.env
        with fake, pytest.raises(RuntimeError, match="already running"):
            fake.__enter__()

    def test_the_same_fake_may_run_again(self):
        fake = FakeGemini(default="yes")
        for _ in range(2):
            with fake:
                assert text_of(post(fake, user("Hi"))) == "yes"
        assert len(fake.requests) == 2

    def test_importing_it_loads_nothing_heavy(self):
        code = (
            "import sys, geminorum.testing.pytest_plugin as p;"
            "assert 'geminorum.testing.fake_gemini' not in sys.modules;"
            "assert 'msgspec' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_an_unknown_name_is_an_attribute_error(self):
        import geminorum.testing

        with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
            _ = geminorum.testing.Nothing


class TestHome:
    def test_the_environment_points_a_child_here_and_nowhere_else(self, monkeypatch):
        monkeypatch.setenv("NO_PROXY", "intranet")
        monkeypatch.delenv("no_proxy", raising=False)
        with FakeGemini() as fake:
            env = fake.env
            assert env["GOOGLE_GEMINI_BASE_URL"] == fake.url
            assert env["GEMINI_CLI_HOME"] == str(fake.home)
            assert env["GEMINI_API_KEY"]
            assert env["NO_PROXY"] == env["no_proxy"] == "intranet,127.0.0.1,localhost"

    def test_the_home_is_private_and_keeps_the_cli_quiet(self):
        with FakeGemini(settings={"general": {"maxAttempts": 2}}) as fake:
            settings = json.loads((fake.home / ".gemini" / "settings.json").read_bytes())
            if os.name == "posix":
                assert stat.S_IMODE(fake.home.stat().st_mode) == 0o700
        assert settings == {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {
                "enableAutoUpdate": False,
                "enableAutoUpdateNotification": False,
                "sessionRetention": {"enabled": False},
                "maxAttempts": 2,
            },
        }


class TestProse:
    @pytest.mark.parametrize("length", [0, 1, 77, 5000])
    def test_prose_has_the_length_asked_for_and_is_the_same_every_time(self, length):
        assert len(prose(length)) == length
        assert prose(length) == prose(length)
        assert length < 77 or prose(length) != prose(length, seed=1)

    def test_prose_does_not_repeat_itself(self):
        text = prose(200_000)
        windows = [text[at : at + 50] for at in range(len(text) - 50)]
        assert len(set(windows)) == len(windows)


class Work(NamedTuple):
    events: list[dict[str, Any]]
    requests: list[Request]
    side_calls: list[Request]
    unused: list[Any]
    cwd: Path


@pytest.mark.gemini_cli
class TestRealCli:
    @pytest.fixture(scope="class")
    @classmethod
    def hello(cls, real_cli, quick_start, tmp_path_factory) -> Work:
        """A run on a machine whose proxy answers nobody, and whose model is chosen by another."""
        with private_place(tmp_path_factory) as cwd, FakeGemini(routing="flash") as fake:
            tokens = Tokens(prompt=100, cached=20, output=10, thoughts=20)
            fake.say("Hello ", "world.", thoughts=["Plan"], tokens=tokens)
            proxies = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
            env = {**quick_start, **dict.fromkeys(proxies, "http://127.0.0.1:9")}
            events = cli_run(fake, [*real_cli, "-m", "auto"], env, cwd, "Hi there")
            return Work(events, fake.requests, fake.side_calls, fake.unused, cwd)

    def test_the_cli_says_what_the_script_says(self, hello):
        [request] = hello.requests
        assert said(hello.events) == ["Hello ", "world."]
        assert hello.events[-1]["status"] == "success"
        used = hello.events[-1]["stats"]["models"][request.model]
        assert (used["input_tokens"], used["cached"], used["output_tokens"]) == (100, 20, 10)
        assert (request.prompt, request.kind) == ("Hi there", "main")
        assert "read_file" in request.tools

    def test_the_machines_proxy_does_not_divert_the_cli(self, hello):
        assert said(hello.events) == ["Hello ", "world."]

    def test_routing_does_not_eat_the_script(self, hello):
        assert said(hello.events) == ["Hello ", "world."]
        assert [call.kind for call in hello.side_calls] == ["routing"]
        assert "flash" in hello.requests[0].model

    @pytest.fixture(scope="class")
    @classmethod
    def work(cls, real_cli, quick_start, tmp_path_factory) -> Work:
        """A run with all that a model may do before it answers, for thirty turns."""
        report = {"SummaryOfFindings": "", "ExplorationTrace": [], "RelevantLocations": []}
        with private_place(tmp_path_factory) as cwd, FakeGemini() as fake:
            fake.when(kind="web_search").say("It is Paris.")
            fake.calls(
                ("write_file", {"file_path": "a.txt", "content": "hi"}),
                ("read_file", {"file_path": "missing.txt"}),
            )
            fake.call("google_web_search", query="capital of France")
            fake.call("invoke_agent", agent_name="codebase_investigator", prompt="look")
            fake.call("complete_task", report=report)
            for number in range(31):
                fake.call("list_directory", dir_path=".", ignore=[str(number)])
            fake.say("Done.")
            command = [*real_cli, "-m", "gemini-2.5-flash", "--approval-mode", "yolo"]
            events = cli_run(fake, command, quick_start, cwd, "Write it, look, list")
            return Work(events, fake.requests, fake.side_calls, fake.unused, cwd)

    def test_the_cli_runs_the_tools_and_the_script_goes_on(self, work):
        assert said(work.events) == ["Done."]
        assert (work.cwd / "a.txt").read_text() == "hi"
        results = work.requests[1].tool_results
        assert [each.name for each in results] == ["write_file", "read_file"]
        assert "error" in results[1].response
        assert not work.unused

    def test_a_web_search_can_be_scripted(self, work):
        searches = [call for call in work.side_calls if call.kind == "web_search"]
        assert [call.prompt for call in searches] == ["capital of France"]
        [result] = work.requests[2].tool_results
        assert "It is Paris." in result.response["output"]

    def test_a_subagent_takes_its_answers_from_the_script(self, work):
        assert said(work.events) == ["Done."]
        assert [each.kind for each in work.requests[2:5]] == ["main", "subagent", "main"]
        assert {each.kind for each in work.requests[5:]} == {"main"}

    def test_thirty_turns_bring_a_loop_check_that_lets_the_cli_go_on(self, work):
        assert said(work.events) == ["Done."]
        assert [call.kind for call in work.side_calls] == ["web_search", "loop_check"]

    def test_a_script_that_ran_out_stops_the_cli_at_once(self, run_cli_on):
        """… on the model to which it was routed."""
        with FakeGemini(routing="pro") as fake:
            events = run_cli_on(fake, "Hi", "-m", "auto")
            assert events[-1]["status"] == "error"
            assert "FakeGemini has no answer scripted" in events[-1]["error"]["message"]
            assert [call.kind for call in fake.side_calls] == ["routing"]
            assert ["pro" in request.model for request in fake.requests] == [True]


def cli_run(
    fake: FakeGemini, command: list[str], env: dict[str, str], cwd: Path, prompt: str
) -> list[dict[str, Any]]:
    # A regular file: through a pipe the CLI loses what it has not written when it exits.
    with (fake.home / "stdout").open("w+b") as out, (fake.home / "stderr").open("wb") as err:
        subprocess.run(
            [*command, "--output-format", "stream-json", "--skip-trust"],
            input=prompt.encode(),
            stdout=out,
            stderr=err,
            env={**os.environ, **fake.env, **env},
            cwd=cwd,
            timeout=120,
        )
        out.seek(0)
        return [json.loads(line) for line in out]


@pytest.fixture
def run_cli_on(
    real_cli: list[str], quick_start: dict[str, str], tmp_path: Path
) -> Callable[..., list[dict[str, Any]]]:
    def run(fake: FakeGemini, prompt: str, *args: str) -> list[dict[str, Any]]:
        return cli_run(fake, [*real_cli, *args], quick_start, tmp_path, prompt)

    return run


def said(events: list[dict[str, Any]]) -> list[str]:
    return [event["content"] for event in events if event.get("role") == "assistant"]


def port_of(fake: FakeGemini) -> int:
    return int(fake.url.rpartition(":")[2])


def raw_post(body: object, path: str | None = None) -> bytes:
    data = json.dumps(body).encode()
    target = path or f"/v1beta/models/{MODEL}:generateContent"
    return f"POST {target} HTTP/1.1\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def knock(address: tuple[str, int], wires: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        for _ in range(6):
            wires.append(socket.create_connection(address))
            wires[-1].sendall(raw_post(user("Hi")))


def open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


# ---- calls and responses have to be paired, as with Google


CALL = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
RESPONSE = {"functionResponse": {"name": "look", "response": {"output": "a"}}}


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([[RESPONSE, RESPONSE]], "number of function response parts is equal"),
        ([[{"text": "Never mind."}]], "number of function response parts is equal"),
        ([[RESPONSE], [RESPONSE]], "comes immediately after a function call turn"),
    ],
)
def test_unpaired_function_responses_are_refused(fake_gemini, answers, message):
    """gemini-cli#16984: Google answers 400, and so does the fake, whatever was scripted."""
    fake_gemini.say("Never said.")
    turns = [{"role": "user", "parts": parts} for parts in answers]
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(fake_gemini, {"contents": [*user("Look")["contents"], CALL, *turns]})
    error = json.load(caught.value)["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert message in error["message"]
    assert fake_gemini.unused


def test_paired_function_responses_are_accepted(fake_gemini):
    fake_gemini.say("Seen.")
    turns = [*user("Look")["contents"], CALL, {"role": "user", "parts": [RESPONSE]}]
    assert text_of(post(fake_gemini, {"contents": turns})) == "Seen."


def test_a_prompt_behind_a_response_is_the_prompt(fake_gemini):
    """So the CLI goes on where a turn broke off after a tool."""
    fake_gemini.when("Go on").say("Going on.")
    parts = [RESPONSE, {"text": "Go on"}]
    turns = [*user("Look")["contents"], CALL, {"role": "user", "parts": parts}]
    assert text_of(post(fake_gemini, {"contents": turns})) == "Going on."
    assert (fake_gemini.requests[0].prompt, fake_gemini.requests[0].round) == ("Go on", 0)
