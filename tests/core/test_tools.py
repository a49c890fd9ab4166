"""Python functions as tools: what a model is told about them, and what a call of one gives."""

from __future__ import annotations

import array
import asyncio
import collections
import contextvars
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import re
import threading
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum.errors import InvalidOptions
from geminorum.tools import Tool, ToolOutcome, call, tools_of


def shown(value: object) -> str:
    """Without addresses: workers side by side have to find the same names."""
    return re.sub(r" at 0x[0-9a-f]+", "", ascii(value))


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(msgspec.Struct):
    """Somewhere."""

    city: str
    near: list[Place] = []


@dataclasses.dataclass
class Span:
    first: datetime.date
    days: int = 1


class Wind(TypedDict, total=False):
    speed: float


class Point(NamedTuple):
    x: int
    y: int


class Gauge(pydantic.BaseModel):
    label: str


class Station(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    since: datetime.date
    gauges: list[Gauge] = []


def weather(city: str, days: int = 3, *, unit: Literal["c", "f"] = "c") -> str:
    """Tells the weather.

    Anywhere on Earth.

    Args:
        city: where; a name
            or: a postcode
        days (int, optional): how many

    Returns:
        str: what to wear
    """
    return f"{city}/{days}/{unit}"


def run(tool: Tool | Any, arguments: Any = None) -> ToolOutcome:
    return asyncio.run(call(tool if isinstance(tool, Tool) else Tool.of(tool), arguments))


def property_of(hint: Any, default: Any = dataclasses.MISSING) -> dict[str, Any]:
    """What a model is told about a parameter with this hint."""

    def f(x): ...

    f.__annotations__ = {"x": hint}
    if default is not dataclasses.MISSING:
        f.__defaults__ = (default,)
    return Tool.of(f).schema["properties"]["x"]


def given_to(hint: Any, value: Any) -> Any:
    """The value that a function with this hint gets, when a model sends `value`."""
    got = []

    def f(x):
        got.append(x)

    f.__annotations__ = {"x": hint}
    outcome = run(Tool.of(f), {"x": value})
    assert outcome.status == "success", outcome
    return got[0]


class TestDeclaring:
    def test_a_function_is_told_as_it_is_written(self):
        """S2-13: name, docstring, parameters, types and defaults of a function become its
        declaration."""
        tool = Tool.of(weather)
        assert (tool.name, tool.function) == ("weather", weather)
        assert tool.description == "Tells the weather.\n\nAnywhere on Earth."
        assert tool.schema == {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where; a name or: a postcode"},
                "days": {"type": "integer", "description": "how many", "default": 3},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            },
            "required": ["city"],
            "additionalProperties": False,
        }

    def test_name_and_description_can_be_given(self):
        tool = Tool.of(weather, name="Wetter.heute:v-1", description="Das Wetter")
        assert (tool.name, tool.description) == ("Wetter.heute:v-1", "Das Wetter")

    @pytest.mark.parametrize(
        ("hint", "told"),
        [
            (str, {"type": "string"}),
            (bool, {"type": "boolean"}),
            (float, {"type": "number"}),
            (Any, {}),
            (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
            (Literal["a", 1], {"enum": [1, "a"]}),
            (list[str], {"type": "array", "items": {"type": "string"}}),
            (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
            (datetime.date, {"type": "string", "format": "date"}),
            (Annotated[int, msgspec.Meta(ge=0)], {"type": "integer", "minimum": 0}),
            (Annotated[str, "a name"], {"type": "string", "description": "a name"}),
            (
                Annotated[int, 7, "a count", msgspec.Meta(le=9)],
                {"type": "integer", "maximum": 9, "description": "a count"},
            ),
            (Unit, {"$ref": "#/$defs/Unit"}),
            (
                Annotated[Unit, "which"],
                {"anyOf": [{"$ref": "#/$defs/Unit"}], "description": "which"},
            ),
        ],
        ids=str,
    )
    def test_hints_become_json_schema(self, hint, told):
        """S2-13: each type hint becomes the matching JSON Schema."""
        assert property_of(hint) == told

    def test_classes_are_told_beside_the_arguments(self):
        def f(place: Place, span: Span, unit: Unit, wind: Wind, at: Point, where: Station): ...

        schema = Tool.of(f).schema
        assert schema["type"] == "object"
        assert sorted(schema["$defs"]) == ["Gauge", "Place", "Point", "Span", "Unit", "Wind"]
        assert schema["$defs"]["Unit"] == {
            "title": "Unit",
            "type": "string",
            "enum": ["celsius", "fahrenheit"],
        }
        assert schema["properties"]["where"]["properties"]["gauges"]["items"] == {
            "$ref": "#/$defs/Gauge"
        }

    def test_nothing_stands_beside_a_reference(self):
        """Gemini refuses a `$ref` with company."""

        def f(a: Annotated[Place, msgspec.Meta(description="x")], b: Place):
            """.

            Args:
                b: the other
            """

        properties = Tool.of(f).schema["properties"]
        reference = {"$ref": "#/$defs/Place"}
        assert properties["a"] == {"anyOf": [reference], "description": "x"}
        assert properties["b"] == {"anyOf": [reference], "description": "the other"}

    @pytest.mark.parametrize(
        "default", [None, [1], Unit.C, float("inf"), b"x", object()], ids=shown
    )
    def test_a_default_that_json_cannot_tell_only_makes_it_optional(self, default):
        assert "default" not in property_of(Any, default)

    def test_annotated_goes_before_the_docstring(self):
        def f(city: Annotated[str, "annotated"]):
            """.

            Args:
                city: written
            """

        assert Tool.of(f).schema["properties"]["city"]["description"] == "annotated"

    @pytest.mark.parametrize("doc", [None, "", "Args:\n    nobody: known", "Args:\n", "Args: x"])
    def test_odd_docstrings_do_no_harm(self, doc):
        def f(city: str): ...

        f.__doc__ = doc
        assert Tool.of(f).schema["properties"] == {"city": {"type": "string"}}

    def test_a_function_without_parameters_has_an_empty_object(self):
        def now() -> str: ...

        assert Tool.of(now).schema == {
            "type": "object",
            "properties": {},
            "required": [],
            "additionalProperties": False,
        }

    def test_a_schema_can_be_written_by_hand(self):
        """S2-13: ToolSchema is name, description, inputSchema; nobody has to have a function."""
        schema = {"type": "object", "properties": {"q": {"type": "string"}}}
        assert Tool("search", "Searches", schema) == Tool("search", "Searches", schema, None)


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, by: int) -> int:
        """Adds."""
        self.count += by
        return self.count

    @classmethod
    def zero(cls) -> int:
        return 0

    @staticmethod
    def twice(number: int) -> int:
        return number * 2

    def __call__(self, by: int) -> int:
        return self.add(by)


async def patient(city: str) -> str:
    await asyncio.sleep(0)
    return f"{city} at last"


def logged(function):
    @functools.wraps(function)
    def around(*args, **kwargs):
        return ["logged", function(*args, **kwargs)]

    return around


class TestKindsOfFunction:
    def test_methods_of_all_kinds(self):
        counter = Counter()
        assert Tool.of(counter.add).description == "Adds."
        assert [run(counter.add, {"by": 2}).output for _ in range(2)] == [2, 4]
        assert run(Counter.zero).output == 0
        assert run(Counter.twice, {"number": 4}).output == 8

    def test_an_object_that_can_be_called(self):
        tool = Tool.of(Counter(), name="count")
        assert tool.description == "Counts."
        assert run(tool, {"by": 3}).output == 3

    def test_a_partial_asks_only_for_the_rest(self):
        tool = Tool.of(functools.partial(weather, "Kiel"), name="kiel")
        assert list(tool.schema["properties"]) == ["days", "unit"]
        assert tool.description.startswith("Tells the weather.")
        assert run(tool, {"days": 1}).output == "Kiel/1/c"

    def test_a_partial_by_name_can_be_overruled(self):
        tool = Tool.of(functools.partial(weather, city="Kiel"), name="kiel")
        assert tool.schema["required"] == []
        assert [run(tool, {}).output, run(tool, {"city": "Ulm"}).output] == ["Kiel/3/c", "Ulm/3/c"]

    def test_an_async_function_is_awaited(self):
        assert run(patient, {"city": "Kiel"}).output == "Kiel at last"

    def test_an_async_partial_is_awaited(self):
        tool = Tool.of(functools.partial(patient, "Ulm"), name="ulm")
        assert run(tool).output == "Ulm at last"

    def test_a_decorated_function_keeps_its_hints(self):
        assert run(logged(weather), {"city": "Kiel"}).output == ["logged", "Kiel/3/c"]

    def test_a_function_with_a_memory(self):
        tool = Tool.of(functools.cache(weather))
        assert tool.schema == Tool.of(weather).schema
        assert run(tool, {"city": "Kiel"}).output == "Kiel/3/c"

    def test_a_generator_that_a_decorator_makes_a_list_of(self):
        def numbers(count: int):
            yield from range(count)

        @functools.wraps(numbers)
        def listed(**arguments):
            return list(numbers(**arguments))

        assert run(listed, {"count": 2.0}).output == [0, 1]

    def test_an_object_that_decorates(self):
        class Loud:
            def __init__(self, function):
                functools.update_wrapper(self, function)

            def __call__(self, **arguments):
                return self.__wrapped__(**arguments).upper()

        tool = Tool.of(Loud(weather))
        assert (tool.name, tool.description) == ("weather", Tool.of(weather).description)
        assert run(tool, {"city": "Kiel"}).output == "KIEL/3/C"

    def test_a_lambda_with_a_name_and_no_parameters(self):
        assert run(Tool.of(lambda: 7, name="seven")).output == 7

    def test_a_local_class_in_a_hint_is_found_where_the_function_uses_it(self):
        """This module's hints are text, so that the class has to be looked for."""

        class Local(msgspec.Struct):
            size: int

        def f(x: Local) -> bool:
            return type(x) is Local

        assert run(f, {"x": {"size": 1}}).output is True
        assert run(logged(f), {"x": {"size": 1}}).output == ["logged", True]


class TestRefusals:
    def refused(self, function, **more) -> str:
        with pytest.raises(InvalidOptions) as caught:
            Tool.of(function, **more)
        return str(caught.value)

    def test_a_parameter_without_a_hint(self):
        def f(city): ...

        text = self.refused(f)
        assert "parameter city of f has no type hint" in text
        assert "`city: str`" in text

    def test_a_method_without_its_object(self):
        assert "the method of an object" in self.refused(Counter.add)

    def test_stars(self):
        def some(*cities: str): ...
        def any_(**more: str): ...

        assert "*cities" in self.refused(some)
        assert "**more" in self.refused(any_)
        assert "cities: list[str]" in self.refused(some)

    def test_positional_only(self):
        def f(city: str, /): ...

        assert "take the `/` out" in self.refused(f)

    @pytest.mark.parametrize("hint", [object, complex, Place | Span, threading.Thread], ids=str)
    def test_a_hint_that_has_no_json(self, hint):
        def f(good: str, odd): ...

        f.__annotations__ = {"good": str, "odd": hint}
        text = self.refused(f)
        assert "parameter odd of f" in text
        assert "`odd: str`" in text
        assert "schema_hook" not in text

    def test_a_hint_that_nobody_knows(self):
        def f(city: Nowhere): ...  # noqa: F821

        text = self.refused(f)
        assert "type hints of f" in text
        assert "Nowhere" in text

    def test_two_classes_of_one_name(self):
        other = msgspec.defstruct("Gauge", [("a", int)])

        def f(a, b): ...

        f.__annotations__ = {"a": other, "b": Station}
        assert "two types are called Gauge" in self.refused(f)

    @pytest.mark.parametrize("thing", [7, None, "weather"])
    def test_what_is_no_function(self, thing):
        assert "is not a function" in self.refused(thing)

    def test_a_class(self):
        assert "is a class" in self.refused(Counter)

    def test_a_generator(self):
        def f():
            yield 1

        async def g():
            yield 1

        class Called:
            def __call__(self):
                yield 1

        assert "return a list" in self.refused(Called(), name="x")
        assert "return a list" in self.refused(f)
        assert "return a list" in self.refused(g)

    @pytest.mark.parametrize("thing", [lambda: 1, functools.partial(weather, "x"), Counter()])
    def test_what_has_no_name(self, thing):
        assert "name='get_weather'" in self.refused(thing)

    @pytest.mark.parametrize(
        "name", ["", "get weather", "1st", "straße", "x" * 65, "a\n", "-a", "a/b"]
    )
    def test_names_that_the_api_refuses(self, name):
        assert "cannot be the name of a tool" in self.refused(weather, name=name)

    @pytest.mark.parametrize("name", ["x" * 64, "_", "a.b:c-d_1"])
    def test_names_that_the_api_takes(self, name):
        assert Tool.of(weather, name=name).name == name

    @pytest.mark.parametrize("schema", [{}, {"type": "string"}, None, []])
    def test_a_schema_that_is_not_an_objects(self, schema):
        with pytest.raises(InvalidOptions, match="not an object's"):
            Tool("x", "", schema)


class TestSeveral:
    def test_functions_and_tools_in_their_order(self):
        tools = tools_of([weather, Tool.of(patient, name="slow")])
        assert [tool.name for tool in tools] == ["weather", "slow"]
        assert tools_of(()) == ()
        assert tools_of(tools) == tools

    def test_two_of_one_name_are_refused(self):
        with pytest.raises(InvalidOptions, match="two tools have the name weather"):
            tools_of([weather, Tool.of(patient, name="weather")])

    @pytest.mark.parametrize("items", ["weather", weather, Tool.of(weather), 7, {"a": weather}])
    def test_what_is_no_list_is_refused(self, items):
        with pytest.raises(InvalidOptions, match=r"tools=\["):
            tools_of(items)


class TestArguments:
    @pytest.mark.parametrize(
        ("hint", "sent", "got"),
        [
            (int, 3.0, 3),
            (float, 3, 3.0),
            (list[int], [1.0, 2], [1, 2]),
            (dict[int, str], {"1": "a"}, {1: "a"}),
            (set[str], ["a"], {"a"}),
            (tuple[int, str], [1.0, "a"], (1, "a")),
            (datetime.datetime, "2026-01-02T03:04:05", datetime.datetime(2026, 1, 2, 3, 4, 5)),
            (bytes, "aGk=", b"hi"),
            (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
            (uuid.UUID, str(uuid.UUID(int=1)), uuid.UUID(int=1)),
            (Unit, "celsius", Unit.C),
            (Unit | None, None, None),
            (Place, {"city": "a", "near": [{"city": "b"}]}, Place("a", [Place("b")])),
            (Span, {"first": "2026-01-02", "days": 2.0}, Span(datetime.date(2026, 1, 2), 2)),
            (Wind, {"speed": 1}, {"speed": 1.0}),
            (Point, [1.0, 2.0], Point(1, 2)),
            (
                Station,
                {"since": "2026-01-02", "gauges": [{"label": "x"}]},
                Station(since=datetime.date(2026, 1, 2), gauges=[Gauge(label="x")]),
            ),
            (list[Gauge], [{"label": "x"}], [Gauge(label="x")]),
            (Any, {"a": [1.5, None]}, {"a": [1.5, None]}),
        ],
        ids=str,
    )
    def test_a_function_gets_what_its_hint_says(self, hint, sent, got):
        """S2-14: JSON arguments are converted to the types of the hints."""
        value = given_to(hint, sent)
        assert value == got
        assert type(value) is type(got)

    @pytest.mark.parametrize(
        ("sent", "words"),
        [
            ({}, ["'city' (string) is missing"]),
            (None, ["'city' (string) is missing"]),
            ({"city": 7}, ["arguments.city: expected string, got 7"]),
            ({"city": "a", "days": 1.5}, ["arguments.days: expected integer, got 1.5"]),
            ({"city": "a", "days": "3"}, ["arguments.days: expected integer"]),
            ({"city": "a", "days": True}, ["arguments.days: expected integer, got true"]),
            ({"city": "a", "unit": "k"}, ['expected one of "c", "f", got "k"']),
            ({"city": "a", "town": "b"}, ["'town' is unknown", "city, days, unit"]),
            ({"days": "x", "town": 1}, ["'city'", "arguments.days", "'town'"]),
            ([1], ["arguments: expected object, got [1]"]),
            ({"city": None}, ["arguments.city: expected string, got null"]),
        ],
        ids=str,
    )
    def test_wrong_arguments_are_told_so_that_a_model_can_mend_them(self, sent, words):
        """S2-14: wrong arguments give an error result that names each problem, so that the model
        can correct them."""
        outcome = run(weather, sent)
        assert (outcome.status, outcome.error_type) == ("error", "invalid_arguments")
        assert outcome.output.startswith("weather: ")
        for word in words:
            assert word in outcome.output

    @pytest.mark.parametrize(
        ("hint", "sent", "words"),
        [
            (datetime.datetime, "yesterday", "arguments.x"),
            (datetime.datetime, 3, "arguments.x: expected string"),
            (Station, {"since": "never"}, "since"),
            (Gauge | None, {"label": 1}, "arguments.x.label: expected string, got 1"),
            (Place | None, {"city": 1}, "arguments.x.city: expected string, got 1"),
            (dict[int, str], {"one": "a"}, "arguments.x"),
            (Annotated[int, msgspec.Meta(ge=0)], -1, "at least 0"),
            (Annotated[str, msgspec.Meta(pattern="^a+$")], "b", "^a+$"),
            (int, 1e300, "Expected `int`, got `float` - at `arguments.x`"),
            (list[int], [1, "\ud800"], "arguments.x[1]: expected integer"),
        ],
        ids=shown,
    )
    def test_wrong_values_inside_are_told_with_their_place(self, hint, sent, words):
        def f(x): ...

        f.__annotations__ = {"x": hint}
        outcome = run(Tool.of(f), {"x": sent})
        assert outcome.error_type == "invalid_arguments"
        assert words in outcome.output
        assert "errors.pydantic.dev" not in outcome.output

    def test_no_number_that_a_model_sends_makes_the_check_itself_fail(self):
        price = {"type": "number", "multipleOf": 0.01}
        tool = Tool("pay", "", {"type": "object", "properties": {"sum": price}}, lambda sum: sum)
        for number in (1e27, 1e308, 10**40):
            assert run(tool, {"sum": number}) == ToolOutcome("success", number)
        for number in (0.001, 5e-324):
            assert run(tool, {"sum": number}).error_type == "invalid_arguments"

    def test_a_call_that_is_wrong_all_over_is_answered_in_few_words(self):
        names = {"type": "array", "items": {"type": "string"}}
        tool = Tool("tell", "", {"type": "object", "properties": {"x": names}}, lambda x: x)
        assert len(run(tool, {"x": [1] * 100_000}).output) < 1_000

    def test_the_alternative_that_was_meant_is_the_one_that_is_told(self):
        def f(place: Place | None): ...

        assert "null" not in run(f, {"place": {"city": 1}}).output
        assert "object" in run(f, {"place": 7}).output
        assert "null" in run(f, {"place": 7}).output

    def test_the_functions_own_default_holds_for_what_is_left_out(self):
        marker = object()

        def f(x: list[int] = marker) -> bool:
            return x is marker

        assert run(f, {}).output is True

    def test_a_schema_by_hand_is_held_to(self):
        schema = {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
        }
        tool = Tool("double", "", schema, lambda n: n * 2)
        assert run(tool, {"n": 2.0}).output == 4
        assert "'n' (integer) is missing" in run(tool, {}).output
        assert run(tool, {"n": "x"}).error_type == "invalid_arguments"

    @pytest.mark.parametrize(
        "part", [{"type": "text"}, {"not": {}}, {"$ref": "#/$defs/x"}, {"minimum": "3"}], ids=str
    )
    def test_a_schema_by_hand_that_cannot_be_held_to_is_refused(self, part):
        schema = {"type": "object", "properties": {"n": part}}
        with pytest.raises(InvalidOptions, match="schema of tool x cannot be checked"):
            Tool("x", "", schema, lambda n: n)
        assert Tool("x", "", schema).schema == schema  # its caller may know better

    def test_a_tool_that_is_only_declared_cannot_be_called(self):
        with pytest.raises(InvalidOptions, match="only declared"):
            run(Tool("x", "", {"type": "object"}))

    @given(
        st.fixed_dictionaries(
            {
                "city": st.text(),
                "days": st.integers(-(2**53), 2**53),
                "hours": st.lists(st.floats(allow_nan=False, allow_infinity=False)),
                "unit": st.sampled_from(Unit),
                "span": st.builds(Span, st.dates(), st.integers(0, 99)),
                "place": st.recursive(
                    st.builds(Place, st.text()),
                    lambda below: st.builds(Place, st.text(), st.lists(below, max_size=3)),
                ),
                "notes": st.dictionaries(st.text(), st.none() | st.booleans() | st.text()),
            }
        )
    )
    def test_what_goes_out_as_json_arrives_as_it_was(self, sent):
        """S2-14: any arguments survive the way through JSON into the function."""
        got = {}

        def f(
            city: str,
            days: int,
            hours: list[float],
            unit: Unit,
            span: Span,
            place: Place,
            notes: dict[str, bool | str | None],
        ):
            got.update(locals())
            del got["got"]

        outcome = run(f, json.loads(msgspec.json.encode(sent)))
        assert (outcome.status, got) == ("success", sent)


class Money(int): ...


class Odd:
    def __str__(self) -> str:
        return "odd"


class TestOutcomes:
    @pytest.mark.parametrize(
        ("value", "output"),
        [
            (None, None),
            ("grüß", "grüß"),
            (Place("a"), {"city": "a", "near": []}),
            (Span(datetime.date(2026, 1, 2)), {"first": "2026-01-02", "days": 1}),
            (Station(since=datetime.date(2026, 1, 2)), {"since": "2026-01-02", "gauges": []}),
            ([Gauge(label="x")], [{"label": "x"}]),
            (datetime.datetime(2026, 1, 2), "2026-01-02T00:00:00"),
            ({1}, [1]),
            (b"hi", "aGk="),
            ({1: Unit.C}, {"1": "celsius"}),
            (float("nan"), None),
            (2**70, 2**70),
            (Money(5), 5),
            (collections.deque([1]), [1]),
            (collections.ChainMap({"a": 1}), {"a": 1}),
            (array.array("i", [1, 2]), [1, 2]),
            (Odd(), "odd"),
            ([Odd()], ["odd"]),
            ("\ud800", "?"),
            (complex(1, 2), "(1+2j)"),
            (Gauge, "<class 'test_tools.Gauge'>"),
        ],
        ids=shown,
    )
    def test_a_result_becomes_plain_data(self, value, output):
        """S2-15: return values of any kind become JSON data in the tool result."""
        outcome = run(Tool.of(lambda: value, name="x"))
        assert outcome == ToolOutcome("success", output)

    def test_a_result_that_contains_itself_is_told_as_text(self):
        value: list[Any] = []
        value.append(value)
        assert run(Tool.of(lambda: value, name="x")).output == "[[...]]"

    def test_a_function_that_raises_is_an_outcome(self):
        def f():
            raise LookupError("no such city")

        assert run(f) == ToolOutcome("error", "LookupError: no such city", "tool_failed")

    def test_an_async_function_that_raises_is_an_outcome(self):
        async def f():
            raise RuntimeError

        assert run(f) == ToolOutcome("error", "RuntimeError", "tool_failed")

    def test_an_error_of_the_functions_own_types_is_not_the_models_fault(self):
        def f(city: str):
            return msgspec.convert(city, int)

        assert run(f, {"city": "x"}).error_type == "tool_failed"

    @pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
    def test_a_function_cannot_end_the_program_or_the_run(self, kind):
        def f():
            raise kind("no")

        assert run(f).error_type == "tool_failed"

    def test_ctrl_c_passes(self):
        def f():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(f)

    async def test_a_cancellation_of_ours_passes(self):
        async def f():
            await asyncio.Event().wait()

        task = asyncio.create_task(call(Tool.of(f), {}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @pytest.mark.parametrize(
        ("output", "text"),
        [("as it is", "as it is"), ({"a": [1]}, '{"a":[1]}'), (None, "null"), ("ü", "ü")],
    )
    def test_a_person_is_shown_text(self, output, text):
        assert ToolOutcome("success", output).text == text


class TestThreads:
    def test_a_plain_function_does_not_stop_the_loop(self):
        gate = threading.Event()

        def f() -> bool:
            return gate.wait(30)

        async def both():
            asyncio.get_running_loop().call_later(0.01, gate.set)
            return await call(Tool.of(f), {})

        assert asyncio.run(both()).output is True

    def test_a_plain_function_sees_the_callers_context_variables(self):
        tenant = contextvars.ContextVar("tenant", default="nobody")

        def f() -> str:
            return tenant.get()

        async def as_ada():
            tenant.set("ada")
            return await call(Tool.of(f), {})

        assert asyncio.run(as_ada()).output == "ada"

    def test_two_calls_run_at_the_same_time(self):
        both_are_there = threading.Barrier(2)

        def f() -> int:
            return both_are_there.wait(30)

        async def twice():
            tool = Tool.of(f)
            return await asyncio.gather(call(tool, {}), call(tool, {}))

        assert sorted(outcome.output for outcome in asyncio.run(twice())) == [0, 1]

    async def test_a_cancelled_call_does_not_wait_for_the_function(self):
        started, release = threading.Event(), threading.Event()

        def f():
            started.set()
            release.wait()

        calling = asyncio.create_task(call(Tool.of(f), {}))
        while not started.is_set():
            await asyncio.sleep(0.001)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        release.set()
