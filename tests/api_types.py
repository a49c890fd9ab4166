"""What a type checker has to know about the API. Read by mypy and pyright, never run."""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_type

from geminorum import (
    Acp,
    Allow,
    Event,
    Options,
    PermissionRequest,
    Policy,
    Result,
    ask,
    connect,
    run,
    sync,
)


@dataclass
class Invoice:
    total: float


class Row(TypedDict):
    city: str


def may_i(request: PermissionRequest) -> Allow:
    return Allow()


async def the_answer_has_the_type_of_the_schema() -> None:
    options = Options(output_schema=Invoice)
    assert_type((await ask("Read it", options)).data, Invoice)
    assert_type((await ask("Read it", Options(output_schema=list[Row]))).data, list[Row])
    assert_type((await ask("Read it", options.changed(model="flash"))).data, Invoice)
    async with run("Read it", options) as live:
        assert_type([event async for event in live], list[Event])
    assert_type(live.result.data, Invoice | None)
    async with connect(options, via=Acp(), decide=may_i) as chat:
        assert_type((await chat.ask("Read it")).data, Invoice)
        assert_type(chat.session_id, str | None)


def the_same_without_await() -> None:
    options = Options(output_schema=Invoice)
    assert_type(sync.ask("Read it", options).data, Invoice)
    with sync.run("Read it", options) as live:
        assert_type(list(live), list[Event])
    assert_type(live.result.data, Invoice | None)
    with sync.connect(options, decide=may_i) as chat:
        assert_type(chat.ask("Read it").data, Invoice)
        assert_type(chat.session_id, str | None)


def without_a_schema_of_python_it_is_anything(maybe: Options | None) -> None:
    assert_type(sync.ask("Hi"), Result[Any])
    assert_type(sync.ask("Hi", Options()), Result[Any])
    assert_type(sync.ask("Hi", maybe), Result[Any])
    assert_type(sync.ask("Hi", Options(output_schema={"type": "object"})), Result[Any])


def options_take_what_the_pages_show(tools: list[str]) -> None:
    options = Options(
        allowed_tools=["read_file"],
        disallowed_tools=tools,
        approval="acceptEdits",
        include_directories=["a", "b"],
        policy=Policy(),
    )
    assert_type(options.policy, Policy | None)
    Options(policy="ask")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Options(approval="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_pool_without_await_names_its_limits() -> None:
    sync.Pool(Acp(), size=2, spare=False)
    sync.Pool(Acp(), sise=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def an_event_is_narrowed_by_its_type(event: Event) -> str:
    if event.type == "text" or event.type == "text_delta":
        return event.text
    if event.type == "permission_decision":
        assert_type(event.decision, Literal["allow", "allow_always", "deny"])
    match event.type:
        case "tool_use":
            return event.name
        case "done":
            return event.status
        case _:
            return ""


def a_result_lists_its_tools(result: Result) -> list[str]:
    return [call.name for call in result.tools if call.status == "success"]
