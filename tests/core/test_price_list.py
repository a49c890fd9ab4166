"""Prices are read from the data file of `genai_prices`, and are the ones that the library tells."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROVIDER = "\n    Provider(\n"
LIBRARY = Path(str(find_spec("genai_prices").origin)).parent

# Ours first: once the library is loaded, it is asked itself.
EVERY_PRICE = """
import json, re, sys
from datetime import UTC, datetime, timedelta
from geminorum import cost, price_list
from geminorum.events import ModelRequest

text = sys.stdin.read()
days = {datetime(*map(int, day.split(", ")), tzinfo=UTC) for day in
        re.findall(r"datetime.date\\(([^)]*)\\)", text)}
moments = sorted({day + timedelta(milliseconds=off) for day in days for off in (-1, 0)})
steps = {int(start) for start in re.findall(r"Tier\\(start=(\\d+)", text)}
lengths = sorted({1, 10**6, *(step + off for step in steps for off in (0, 1))})
words = set(re.findall(r"='((?:gemini|gemma|claude)[^' ]*)'", text))
names = sorted({*words, *(word + end for word in words for end in ("-001", ":free")),
                *(word.upper() for word in words), *(f"models/{word}" for word in words),
                "", "my-model", "gpt-5", "gemini", "auto"})
# One with a date without dashes is left to the library if the file does not know it.
dated = [*(word + "-20260401" for word in words), *(one for one in names if "-20" in one)]
names = [one for one in names if one not in dated]

def row(model, moment):
    prices = model.get_prices(moment)
    return [repr(cost._step(price, length)) for length in lengths for price in
            (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok)]

def everything(find):
    found = {name: find(name) for name in names}
    models = {model.id + str(model.context_window): model for model in found.values() if model}
    return ({name: model and model.id for name, model in found.items()},
            {id: [row(model, moment) for moment in moments] for id, model in models.items()},
            [(one.id, one.context_window, bool(one.deprecated))
             for one in price_list.google_models()])

def requests():
    for name in sorted(word for word in words if word.startswith("gemini-")):
        for length in lengths:
            yield ModelRequest(input=length, cached=length // 3, output=7, thoughts=9, tool=2,
                               total=length + 18, model=name)

ours, usd = everything(price_list.find_model), [cost.request_usd(one) for one in requests()]
used = "genai_prices" in sys.modules
dated = {name: price_list.find_model(name) for name in dated}
import genai_prices
assert price_list.find_model("gemini-2.5-flash").__class__.__module__ == "genai_prices.types"
theirs = everything(price_list.find_model)
disagreeing = []
for request, mine in zip(requests(), usd, strict=True):
    counts = genai_prices.Usage(input_tokens=request.input + 2, cache_read_tokens=request.cached,
                                output_tokens=16)
    told = genai_prices.calc_price(counts, request.model, provider_id="google").total_price
    if mine is not None and mine != told:
        disagreeing.append([request.model, request.input, str(mine), str(told)])
differing = [name for name in ours[0] if ours[0][name] != theirs[0][name]]
for name, model in dated.items():
    told = price_list.find_model(name)
    differing += [name] if (model and model.id) != (told and told.id) else []
print(json.dumps([used, differing, ours[1] == theirs[1], ours[2] == theirs[2], disagreeing,
                  len(ours[1]), len(moments), len(lengths), sum(one is not None for one in usd)]))
"""


def test_every_price_is_the_library_s_for_every_model_length_and_date():
    told = output_of(EVERY_PRICE, said=shortened(LIBRARY / "data.py"))
    used, differing, rows_agree, lists_agree, disagreeing, *counts = json.loads(told)
    assert not used
    assert (differing, rows_agree, lists_agree, disagreeing) == ([], True, True, [])
    models, moments, lengths, priced = counts
    assert models > 50
    assert min(moments, lengths) > 4
    assert priced > 100


PRICED_ANEW = """
import sys
from decimal import Decimal
from geminorum import cost
from geminorum.events import ModelRequest

request = ModelRequest(input=10**6, total=10**6, model="gemini-2.5-flash")
before = cost.request_usd(request)
from genai_prices import data_snapshot, types
row = types.ModelInfo("gemini-2.5-flash", types.ClauseEquals("gemini-2.5-flash"),
    prices=types.ModelPrice(input_mtok=Decimal(7), output_mtok=Decimal(8)))
google = types.Provider("google", "Google", "", models=[row])
data_snapshot.set_custom_snapshot(data_snapshot.DataSnapshot([google], True))
print(before, cost.request_usd(request))
"""


def test_prices_that_the_program_has_updated_count():
    """`genai_prices.UpdatePrices` fetches newer ones."""
    before, after = output_of(PRICED_ANEW).split()
    assert (before, after) == ("0.3", "7")


ASKED = """
import sys
from geminorum import cost, models
from geminorum.events import ModelRequest

known = cost.request_usd(ModelRequest(input=10**6, total=10**6, model="gemini-2.5-flash"))
unknown = cost.request_usd(ModelRequest(input=10**6, total=10**6, model="my-model"))
print(known, unknown, len(models.known()), "genai_prices" in sys.modules)
"""


def test_a_price_needs_no_library_to_be_loaded():
    known, unknown, count, is_loaded = output_of(ASKED).split()
    assert (known, unknown, is_loaded) == ("0.3", "None", "False")
    assert int(count) > 10


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        # Each is the same data to Python.
        ("\n    Provider(\n", "\n   Provider(\n"),
        ("\n        models=[\n            ModelInfo(\n", "\n        models=[ModelInfo(\n"),
        ("\n            ModelInfo(\n", "\n            ModelInfo(**dict(),\n"),
        ("\n                match=", "\n                 match="),
        ("input_mtok=Decimal(", "input_mtok=0 + Decimal("),
        ("StartDateConstraint(", "StartDateConstraint(*[], "),
    ],
    ids=lambda text: text.strip(),
)
def test_a_file_in_another_form_is_left_to_the_library(tmp_path, ours, theirs):
    shutil.copytree(LIBRARY, tmp_path / "genai_prices", ignore=lambda *_: ["data.py"])
    changed = shortened(LIBRARY / "data.py").replace(ours, theirs)
    (tmp_path / "genai_prices" / "data.py").write_text(changed)
    known, unknown, count, is_loaded = output_of(ASKED, path=tmp_path).split()
    assert (known, unknown, is_loaded) == ("0.3", "None", "True")
    assert int(count) > 10


def test_without_a_price_list_there_is_no_price_and_a_reason(tmp_path):
    (tmp_path / "genai_prices").mkdir()
    (tmp_path / "genai_prices" / "__init__.py").touch()
    code = "from geminorum.transports.turns.bill import price_of\n"
    code += "from geminorum.events import Tokens, Usage\n"
    code += "share = Tokens(input=5, total=5)\n"
    code += "print(price_of(Usage(by_model={'gemini-2.5-flash': share}), None, None))"
    assert output_of(code, path=tmp_path).startswith("the price list cannot be read: ")


def shortened(data: Path) -> str:
    """The library's data with the providers that are looked at; Python takes long for all."""
    head, *providers = data.read_text().split(PROVIDER)
    kept = [one for one in providers if re.match(r" *id='(google|anthropic)'", one)]
    return PROVIDER.join([head, *kept]).removesuffix("]\n") + "]\n"


def output_of(code: str, *, said: str = "", path: Path | None = None) -> str:
    """What a new interpreter prints: this one may have loaded the library."""
    env = dict(os.environ)
    if path is not None:
        env["PYTHONPATH"] = os.pathsep.join([str(path), env.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=said, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout
