"""What is wrong with the options in a file."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import geminorum
from geminorum.errors import InvalidOptions
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import policies
else:
    policies = lazy_module("geminorum.policies")


def problems_in(data: Any) -> list[str]:
    """What `run --options` would refuse in these options; unknown keys are refused, too."""
    if not isinstance(data, dict):
        return [f'it holds a {type(data).__name__}; write an object: {{"model": "flash"}}']
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            options = geminorum.Options.from_dict(data)
            found = _refused_tools(options)
        except InvalidOptions as error:
            found = [_problem(error)]
    # The library warns and goes on; a file with such a key is refused.
    unknown = [str(warning.message).replace(" is ignored", "", 1) for warning in told]
    return [*unknown, *found]


def _refused_tools(options: geminorum.Options) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A run says these, and goes on.
        try:
            policies.check_tools(options)
        except InvalidOptions as error:
            return [_problem(error)]
    return []


def _problem(error: InvalidOptions) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
