"""The shape of an answer: which shapes can be asked for, and which answers fit."""

import dataclasses
import datetime
import enum
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminorum.errors import InvalidAnswer, InvalidOptions
from geminorum.schema import shape_of


def shown(value: object) -> str:
    """Without addresses: workers side by side have to find the same names."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class Day(msgspec.Struct):
    date: datetime.date
    degrees: Annotated[float, msgspec.Meta(ge=-90, le=60)]


class Forecast(msgspec.Struct):
    city: str
    days: list[Day] = []


class Tree(msgspec.Struct):
    name: str
    children: list["Tree"] = []


@dataclasses.dataclass
class Person:
    name: str
    born: datetime.date | None = None


class Movie(TypedDict):
    title: str
    year: int


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Pair(NamedTuple):
    left: int
    right: int


class Item(pydantic.BaseModel):
    price: float


class Order(pydantic.BaseModel):
    items: list[Item]
    placed: datetime.date | None = None

    @pydantic.field_validator("items")
    @classmethod
    def not_empty(cls, items):
        if not items:
            raise ValueError("an order has items")
        return items


class Lost(msgspec.Struct):
    nowhere: "Nowhere"  # noqa: F821


class Callback(pydantic.BaseModel):
    function: Callable[[], int]


class Node(pydantic.BaseModel):
    below: list["Node"] = []


TYPED = [
    (Forecast, {"city": "Kiel"}, Forecast("Kiel")),
    (
        Forecast,
        {"city": "Kiel", "days": [{"date": "2026-01-02", "degrees": 3}]},
        Forecast("Kiel", [Day(datetime.date(2026, 1, 2), 3.0)]),
    ),
    (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
    (Person, {"name": "Ada", "born": "1815-12-10"}, Person("Ada", datetime.date(1815, 12, 10))),
    (Movie, {"title": "M", "year": 1931.0}, {"title": "M", "year": 1931}),
    (Mood, "good", Mood.GOOD),
    (Pair, [1.0, 2], Pair(1, 2)),
    (Literal["a", "b"], "b", "b"),
    (list[int], [1.0, 2], [1, 2]),
    (dict[str, Mood], {"x": "bad"}, {"x": Mood.BAD}),
    (dict[int, str], {"1": "x"}, {1: "x"}),
    (int | None, None, None),
    (Optional[Person], {"name": "x"}, Person("x")),  # noqa: UP045
    (str, "text", "text"),
    (NewType("Celsius", float), 3, 3.0),
    (Annotated[int, msgspec.Meta(ge=0)], 3, 3),
    (Any, {"a": 1}, {"a": 1}),
    (bool, True, True),
    (Order, {"items": [{"price": 2}]}, Order(items=[Item(price=2)])),
    (list[Item], [{"price": 2}], [Item(price=2)]),
    (Node, {"below": [{}]}, Node(below=[Node()])),
]


class TestTypes:
    @pytest.mark.parametrize(("wanted", "data", "value"), TYPED, ids=str)
    def test_an_answer_becomes_the_type(self, wanted, data, value):
        shape = shape_of(wanted)
        for form in (data, json.dumps(data), json.dumps(data).encode()):
            if isinstance(form, str) and form is data:
                continue  # text is always JSON
            read = shape.read(form)
            assert read == value
            assert type(read) is type(value)

    @pytest.mark.parametrize("wanted", [wanted for wanted, _, _ in TYPED], ids=str)
    def test_the_root_is_written_out_and_every_reference_leads_somewhere(self, wanted):
        """Gemini wants to see the root's type, and nothing beside a reference."""
        schema = shape_of(wanted).schema
        assert schema.get("type") or schema.get("anyOf") or wanted is Any
        assert "$ref" not in schema
        for name in re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)):
            assert name in schema["$defs"]
        for part in _objects(schema):
            assert "$ref" not in part or len(part) == 1

    def test_a_class_gives_its_name(self):
        assert [shape_of(kind).name for kind in (Forecast, Order, Movie)] == [
            "Forecast",
            "Order",
            "Movie",
        ]
        assert shape_of(list[int]).name == "answer"
        assert repr(shape_of(Forecast)) == "Shape('Forecast')"

    def test_the_schema_is_the_types(self):
        assert shape_of(Person).schema == {
            "title": "Person",
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "born": {
                    "anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                    "default": None,
                },
            },
            "required": ["name"],
        }
        assert shape_of(Mood).schema == {
            "title": "Mood",
            "type": "string",
            "enum": ["bad", "good"],
        }

    def test_a_single_literal_of_pydantic_is_an_enum(self):
        """Gemini's list of keywords has no `const`; a property may still have that name."""
        model = pydantic.create_model("M", kind=Literal["x"], const=str)
        properties = shape_of(model).schema["properties"]
        assert properties["kind"] == {"title": "Kind", "type": "string", "enum": ["x"]}
        assert properties["const"] == {"title": "Const", "type": "string"}

    @given(st.builds(Person, st.text(), st.none() | st.dates()))
    def test_what_goes_out_as_json_comes_back_as_it_was(self, person):
        assert shape_of(Person).read(msgspec.json.encode(person)) == person


def _objects(part: Any) -> list[dict[str, Any]]:
    if isinstance(part, dict):
        return [part, *(found for value in part.values() for found in _objects(value))]
    return [found for item in part for found in _objects(item)] if isinstance(part, list) else []


def wrong(wanted: Any, data: Any) -> str:
    with pytest.raises(InvalidAnswer) as caught:
        shape_of(wanted).read(data)
    assert caught.value.hint is not None
    return caught.value.message


class TestWrongAnswers:
    @pytest.mark.parametrize(
        ("wanted", "data", "words"),
        [
            (Forecast, {}, "the answer does not fit: answer: 'city' (string) is missing"),
            (Forecast, {"city": 1}, "answer.city: expected string, got 1"),
            (Forecast, {"city": "x", "days": [{}]}, "answer.days[0]: 'date' (string) is missing"),
            (
                Forecast,
                {"city": "x", "days": [{"date": "2026-01-02", "degrees": 61}]},
                "answer.days[0].degrees: must be at most 60, got 61",
            ),
            (Person, {"name": "x", "born": "long ago"}, "Invalid RFC3339 encoded date"),
            (Person, {"name": "x", "born": "long ago"}, "`answer.born`"),
            (Mood, '"fine"', 'expected one of "bad", "good", got "fine"'),
            (list[int], [1.5], "answer[0]: expected integer, got 1.5"),
            (list[int], {"a": 1}, "answer: expected array"),
            (int, True, "answer: expected integer, got true"),
            (Order, {"items": []}, "an order has items"),
            (Order, {"items": [{"price": "much"}]}, "answer.items[0].price: expected number"),
        ],
        ids=str,
    )
    def test_the_message_says_where_and_what(self, wanted, data, words):
        assert words in wrong(wanted, data)

    def test_several_things_are_told_at_once(self):
        text = wrong(Movie, {"year": "old"})
        assert "'title'" in text
        assert "answer.year" in text

    def test_no_message_grows_without_end(self):
        assert len(wrong(list[int], ["x" * 10_000] * 10_000)) < 1_000

    @pytest.mark.parametrize(
        "text", ["", "Sure! Here it is:", "{", '{"city": }', b"\xff", "NaN", "[1] [2]"], ids=shown
    )
    def test_what_is_not_json_is_told_so(self, text):
        assert "not JSON" in wrong(Forecast, text)

    def test_nesting_without_end_is_an_answer_that_does_not_fit(self):
        schema = {"items": {"$ref": "#"}}
        assert "nested too deeply" in wrong(schema, "[" * 100_000 + "]" * 100_000)

    @pytest.mark.parametrize(
        "text",
        [
            '```json\n{"city": "Kiel"}\n```',
            '\n```\n{"city": "Kiel"}\n```\n',
            '```json\r\n{"city":\r\n"Kiel"}\r\n```',
        ],
    )
    def test_an_answer_that_is_fenced_as_a_whole_is_read(self, text):
        assert shape_of(Forecast).read(text) == Forecast("Kiel")

    def test_fences_inside_a_string_are_text(self):
        text = json.dumps({"city": "```json\n{}\n```"})
        assert shape_of(Forecast).read(text).city == "```json\n{}\n```"

    def test_plain_data_that_json_does_not_know_is_told(self):
        assert "answer.city: expected string" in wrong(Forecast, {"city": object()})


SCHEMA = {
    "title": "Basket",
    "type": "object",
    "properties": {
        "fruit": {"type": "array", "items": {"$ref": "#/$defs/fruit"}, "minItems": 1},
        "note": {"type": ["string", "null"], "maxLength": 5},
    },
    "required": ["fruit"],
    "additionalProperties": False,
    "$defs": {
        "fruit": {
            "type": "object",
            "properties": {"kind": {"enum": ["apple", "pear"]}, "grams": {"minimum": 1}},
            "required": ["kind"],
        }
    },
}


class TestJsonSchemas:
    def test_an_answer_that_fits_stays_plain_data(self):
        data = {"fruit": [{"kind": "pear", "grams": 200.0}], "note": None}
        shape = shape_of(SCHEMA)
        assert shape.name == "Basket"
        assert shape.schema == SCHEMA
        assert shape.read(json.dumps(data)) == data

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ({}, "answer: 'fruit' (array) is missing"),
            ({"fruit": []}, "answer.fruit: must have at least 1 items, has 0"),
            ({"fruit": [{}]}, "answer.fruit[0]: 'kind' is missing"),
            (
                {"fruit": [{"kind": "plum"}]},
                'answer.fruit[0].kind: expected one of "apple", "pear"',
            ),
            ({"fruit": [{"kind": "pear", "grams": 0}]}, "must be at least 1, got 0"),
            ({"fruit": [{"kind": "pear"}], "note": "too long"}, "at most 5 characters, has 8"),
            ({"fruit": [{"kind": "pear"}], "note": 1}, "expected string or null, got 1"),
            ({"fruit": [{"kind": "pear"}], "x": 1}, "'x' is unknown; known are fruit, note"),
        ],
        ids=str,
    )
    def test_an_answer_that_does_not_fit_is_told_why(self, data, words):
        assert words in wrong(SCHEMA, data)

    @pytest.mark.parametrize(
        ("schema", "good", "bad"),
        [
            ({"type": "integer"}, [1, 1.0, -(2**70)], [True, 1.5, "1", None]),
            ({"type": "number"}, [1, 1.5], [True, "1"]),
            ({"type": "boolean"}, [True], [1, 0, None]),
            ({"type": "null"}, [None], [False, 0, ""]),
            ({"const": 1}, [1, 1.0], [True, "1", [1]]),
            ({"const": {"a": 1, "b": [2]}}, [{"b": [2], "a": 1}], [{"a": 1}]),
            ({"enum": [1, None, "a"]}, [1, None, "a"], [True, "b", 0]),
            ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, ["a", 3], [2]),
            ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, [1, 3.5], [3, 2.5]),
            ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, [3], [2, 3.5]),
            ({"exclusiveMinimum": 3, "exclusiveMaximum": 5}, [4, "x"], [3, 5]),
            ({"minimum": 3, "maximum": 5}, [3, 5], [2.9, 5.1]),
            ({"multipleOf": 0.1}, [0.3, 1], [0.35]),
            ({"minLength": 2, "maxLength": 3}, ["ab", "äöü", 1], ["a", "abcd"]),
            ({"pattern": "b+"}, ["abba", 1], ["aa"]),
            ({"minItems": 1, "maxItems": 2}, [[1], [1, 2], "abc"], [[], [1, 2, 3]]),
            ({"uniqueItems": True}, [[1, True, "1"], []], [[1, 1.0], [{}, {}]]),
            ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}, []], [{}, {"a": 1, "b": 2}]),
            ({"propertyNames": {"pattern": "^x"}}, [{"x1": 1}], [{"a": 1}]),
            ({"additionalProperties": {"type": "string"}}, [{"a": "b"}], [{"a": 1}]),
            ({"prefixItems": [{"type": "null"}], "items": False}, [[None], []], [[1], [None, 1]]),
            ({"prefixItems": [{"const": 1}], "items": {"const": 2}}, [[1, 2, 2]], [[1, 1]]),
            ({"properties": {"a": {"const": 1}}}, [{"a": 1}, {"b": 2}, []], [{"a": 2}]),
            ({"required": ["a"]}, [{"a": None}, 3], [{}]),
            ({"items": {"$ref": "#"}, "type": "array"}, [[[[]]]], [[[1]]]),
            ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, [1], [2]),
            (
                {"items": {"$ref": "#/definitions/n"}, "definitions": {"n": {"const": 1}}},
                [[1]],
                [[2]],
            ),
            ({"properties": {"a": False, "b": True}}, [{"b": 1}], [{"a": 1}]),
            ({}, [1, None, {}], []),
            ({"title": "x", "format": "email", "default": 3, "examples": [1]}, ["no mail"], []),
        ],
        ids=str,
    )
    def test_each_keyword_lets_through_what_it_should_and_nothing_else(self, schema, good, bad):
        shape = shape_of(schema)
        for data in good:
            text = json.dumps(data)
            assert shape.read(text) == data, text
        for data in bad:
            assert "does not fit" in wrong(schema, json.dumps(data)), data

    @pytest.mark.parametrize(
        "keyword",
        ["if", "not", "patternProperties", "dependentRequired", "contains", "nullable", "minItem"],
    )
    def test_a_keyword_that_would_be_passed_over_is_refused_by_name(self, keyword):
        with pytest.raises(InvalidOptions, match=f"'{keyword}' is unknown") as caught:
            shape_of({"type": "object", "properties": {"a": {keyword: {}}}})
        assert "schema.properties.a" in str(caught.value)
        assert caught.value.hint is not None

    def test_a_property_may_be_called_like_a_keyword(self):
        schema = {"type": "object", "properties": {"not": {"type": "string"}, "$ref": {}}}
        assert shape_of(schema).read({"not": "x", "$ref": 1}) == {"not": "x", "$ref": 1}

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "text"},
            {"type": []},
            {"minimum": "3"},
            {"minLength": -1},
            {"multipleOf": 0},
            {"required": "a"},
            {"properties": ["a"]},
            {"anyOf": []},
            {"enum": []},
            {"pattern": "("},
            {"$ref": "#/$defs/missing"},
            {"$ref": "https://example.com/schema"},
            {"$ref": "#"},
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            },
            {"$ref": "#/enum", "enum": [1]},
            {"items": {"items": {"type": "text"}}},
        ],
        ids=str,
    )
    def test_a_broken_schema_is_refused_before_anything_is_asked(self, schema):
        with pytest.raises(InvalidOptions, match="cannot be checked"):
            shape_of(schema)

    def test_a_reference_at_the_root_is_written_out(self):
        tree = {"type": "object", "properties": {"a": {"$ref": "#/$defs/tree"}}}
        shape = shape_of({"$ref": "#/$defs/tree", "$defs": {"tree": tree}})
        assert shape.schema == {**tree, "$defs": {"tree": tree}}
        leaf = {"type": "string"}
        assert shape_of({"$ref": "#/$defs/leaf", "$defs": {"leaf": leaf}}).schema == leaf

    def test_the_callers_schema_is_not_changed(self):
        given_schema = json.loads(json.dumps(SCHEMA))
        shape_of(given_schema)
        assert given_schema == SCHEMA

    @pytest.mark.parametrize("wanted", [Forecast, Tree, Person, Movie, Mood, Pair, Order, Node])
    def test_the_schemas_that_we_write_are_schemas_that_we_can_check(self, wanted):
        shape_of(shape_of(wanted).schema)


class TestHostileAnswers:
    """The schema is the caller's; the answer is a model's, which may mean harm."""

    def test_a_number_of_any_size_is_held_against_a_multiple(self):
        shape = shape_of({"multipleOf": 0.01})
        for number in ("1e27", "1e308", "-1e300", "0", "3.14", "1" + "0" * 4000):
            assert shape.read(number) == json.loads(number)
        for number in ("0.001", "1e-300", "5e-324"):
            assert "must be a multiple of 0.01" in wrong({"multipleOf": 0.01}, number)
        assert "a multiple of" in wrong({"multipleOf": 0.123456789}, "1e308")

    def test_a_whole_number_is_an_integer_however_it_is_written(self):
        shape = shape_of({"type": "integer", "multipleOf": 0.5})
        assert shape.read("1e308") == 1e308
        assert "expected integer" in wrong({"type": "integer"}, "1e-3")
        assert shape_of({"const": 1e300}).read(str(int(1e300))) == int(1e300)

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
    def test_what_json_has_no_number_for_is_none(self, number):
        assert "expected number" in wrong({"type": "number"}, number)
        assert "expected integer" in wrong({"type": "integer"}, number)
        assert "a multiple of" in wrong({"multipleOf": 2}, number)
        with pytest.raises(InvalidOptions, match=r"schema\.maximum: expected number"):
            shape_of({"maximum": number})

    def test_a_number_that_python_does_not_write_out_is_told_of_all_the_same(self):
        assert "too long to be shown" in wrong({"type": "string"}, 10**5000)
        assert "must differ" in wrong({"uniqueItems": True}, [10**5000, 10**5000])

    @pytest.mark.parametrize("kind", ["anyOf", "oneOf"])
    def test_alternatives_inside_of_each_other_do_not_multiply_the_work(self, kind):
        """Twice as much with every level would never end here."""
        chain = {"properties": {"next": {"$ref": "#"}, "kind": {"const": "a"}}}
        other = {"properties": {"next": {"$ref": "#"}, "kind": {"const": "b"}}}
        link = {"type": "object", "required": ["kind"]}
        schema = {kind: [{"type": "null"}, {**link, **chain}, {**link, **other}]}
        data: Any = None
        for _ in range(80):
            data = {"kind": "b", "next": data}
        assert shape_of(schema).read(json.dumps(data)) == data
        assert "expected" in wrong(schema, json.dumps(data).replace("null", "1"))

    def test_what_is_wrong_everywhere_is_told_in_few_words(self):
        schema = {"items": {"type": "string"}, "additionalProperties": False}
        assert wrong(schema, [1] * 100_000).count("expected string") == 5
        names = {f"{'x' * 100_000}{number}": 1 for number in range(9)}
        assert len(wrong(schema, names)) < 1_000
        below = {"additionalProperties": {"type": "string"}}
        assert len(wrong(below, names)) < 1_000

    def test_a_message_can_be_sent_back_whatever_the_names_are(self):
        text = wrong({"additionalProperties": {"type": "string"}}, {"\ud800": 1})
        assert text.encode()

    def test_a_text_that_is_too_long_is_not_held_against_a_pattern(self):
        """Which would take ages: the caller bounds it by `maxLength`."""
        schema = {"pattern": "^(a+)+$", "maxLength": 20}
        assert wrong(schema, json.dumps("a" * 64 + "b")).endswith("at most 20 characters, has 65")

    def test_a_schema_that_never_ends_is_refused(self):
        deep: dict[str, Any] = {}
        for _ in range(100_000):
            deep = {"items": deep}
        round_about: dict[str, Any] = {}
        round_about["items"] = round_about
        for schema in (deep, round_about):
            with pytest.raises(InvalidOptions, match="nested too deeply"):
                shape_of(schema)


class TestPatterns:
    """As JSON Schema means them, which is as ECMAScript does."""

    @pytest.mark.parametrize(
        ("pattern", "good", "bad"),
        [
            (r"^\d$", ["1"], ["\u07c0", "1\n"]),
            (r"^\D$", ["\u07c0", "a"], ["1"]),
            (r"^\w$", ["a", "_"], ["é"]),
            (r"^\W$", ["é", " "], ["a"]),
            (r"^\s$", ["\ufeff", "\u2028", "\xa0", " "], ["a", "\x1c"]),
            (r"^\S$", ["a", "\x1c", "\u200b"], ["\ufeff", " "]),
            (r"^[^\s]$", ["a"], ["\ufeff"]),
            (r"^[\s\S]{2}$", ["\n\ufeff"], ["\n"]),
            (r"^.$", ["a", "\U0001f432"], ["\r", "\u2028", "\n"]),
            (r"a$", ["a"], ["a\n"]),
            (r"^(a)?\1b$", ["aab", "b"], ["ab"]),
            (r"^(?<q>['\"]).*\k<q>$", ["'x'", '"x"'], ["'x\""]),
            (r"^\ud83d\udc32$|^\u{1f600}$", ["\U0001f432", "\U0001f600"], ["x"]),
            (r"^\cA$", ["\x01"], ["A"]),
            (r"[[]|[&&~~||]", ["[", "&", "~"], ["x"]),
            (r"^[]a]$|^[^]b$", ["\nb"], ["a", "]"]),
            (r"^a{2,3}?(?:b|c)(?=d)(?<!x)d$", ["aabd", "aaacd"], ["abd"]),
        ],
        ids=str,
    )
    def test_a_pattern_lets_through_what_it_should(self, pattern, good, bad):
        shape = shape_of({"pattern": pattern})
        assert [shape.read(json.dumps(text)) for text in good] == good
        for text in bad:
            assert "must match" in wrong({"pattern": pattern}, json.dumps(text)), text

    @pytest.mark.parametrize(
        "pattern",
        [
            *(r"\Aa", r"a\Z", r"\a", r"a*+", r"a{2}+", r"a{,3}", r"(?i)a", r"(?P<x>a)", r"(?>a)"),
            *(r"(?#x)", r"\p{L}", r"\N{DASH}", r"\012", r"[+--]", r"(?<=a+)b", "a{99999999999}"),
        ],
    )
    def test_one_that_means_something_else_in_python_is_refused(self, pattern):
        with pytest.raises(InvalidOptions, match="cannot be read: "):
            shape_of({"properties": {"a": {"pattern": pattern}}})


class TestReferences:
    def test_what_stands_beside_a_reference_at_the_root_holds_too(self):
        name = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
        schema = {"$ref": "#/$defs/named", "required": ["age"], "$defs": {"named": name}}
        assert shape_of(schema).read({"name": "x", "age": 1}) == {"name": "x", "age": 1}
        assert "'name' (string) is missing" in wrong(schema, {"age": 1})
        assert "'age' is missing" in wrong(schema, {"name": "x"})
        alone = {"$ref": "#/$defs/named", "additionalProperties": False, "$defs": {"named": name}}
        assert "'name' is unknown" in wrong(alone, {"name": "x"})

    def test_one_into_the_definition_that_the_root_is_leads_there(self):
        parts = {"x": {"$ref": "#/$defs/a/properties/y"}, "y": {"type": "string"}}
        schema = {"$ref": "#/$defs/a", "$defs": {"a": {"properties": parts}}}
        assert "answer.x: expected string" in wrong(schema, {"x": 1})

    def test_one_may_be_written_as_in_an_address(self):
        schema = {"$ref": "#/$defs/a%25b", "$defs": {"a%b": {"const": 1}}}
        assert "expected 1" in wrong(schema, 2)

    @pytest.mark.parametrize(
        ("schema", "words"),
        [
            ({"allOf": [{"$ref": "#"}]}, "leads back to itself"),
            ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "leads back to itself"),
            (
                {
                    "items": {"$ref": "#/$defs/a"},
                    "$defs": {"a": {"oneOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
                },
                "leads back to itself",
            ),
            ({"$ref": "#/default", "default": {"type": "text"}}, "leads to no schema"),
            ({"items": {"$ref": "#/const"}, "const": {"minimum": "1"}}, "leads to no schema"),
            ({"$schema": "https://example.com/other-rules"}, "must match the pattern"),
        ],
        ids=str,
    )
    def test_one_that_cannot_be_followed_is_refused(self, schema, words):
        with pytest.raises(InvalidOptions, match=words):
            shape_of(schema)


class TestRefusals:
    @pytest.mark.parametrize(
        "wanted",
        [None, "Forecast", b"x", 7, True, Forecast("x"), Person("x"), len, lambda: 1, [Forecast]],
        ids=shown,
    )
    def test_what_is_no_type_is_refused_with_what_would_be(self, wanted):
        with pytest.raises(InvalidOptions, match="cannot describe an answer") as caught:
            shape_of(wanted)
        assert "dataclass" in (caught.value.hint or "")

    @pytest.mark.parametrize(
        "wanted", [object, complex, Forecast | Person, type, Lost, Callback], ids=str
    )
    def test_a_type_that_has_no_json_is_refused(self, wanted):
        with pytest.raises(InvalidOptions, match="no JSON Schema can be made"):
            shape_of(wanted)
