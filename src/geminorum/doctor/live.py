"""Does the model answer a real prompt?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminorum.doctor.finding import Finding, check_of, fail, ok, warn
from geminorum.environment import environment_of
from geminorum.errors import GeminorumError, RunTimeout
from geminorum.hints import advice
from geminorum.options import Options
from geminorum.redaction import redacted, secrets_in
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from geminorum import sync
    from geminorum.transports import Transport
else:
    sync = lazy_module("geminorum.sync")

PROMPT = "Respond with: hello"


@check_of("live")
def live_check(
    options: Options | None = None, via: Transport | None = None, timeout: float = 20.0
) -> Finding:
    """Asks the model for a hello, in a separate session. Costs a few tokens."""
    options = (options or Options()).changed(timeout=timeout, resume=None, session_id=None)
    try:
        result = sync.ask(PROMPT, options, via=via)
    except GeminorumError as error:
        return _failed(error, options, timeout)
    took = f"{result.model or 'the model'} answered in {result.duration:.1f} s"
    if "hello" in result.text.lower():
        return ok(took)
    return warn(f"{took}, but not with a hello: {result.text[:80]!r}", "ask it something yourself")


def _failed(error: GeminorumError, options: Options, timeout: float) -> Finding:
    fix = error.hint or "fix what the message names"
    detail = f"{error.code}: {error.message or type(error).__name__}"
    if isinstance(error, RunTimeout):
        seconds = f"{timeout * 3:g}"
        call = f"doctor.check(live=True, live_timeout={seconds})"
        fix = advice("{doctor.live_timeout=seconds|call}", seconds=seconds, call=call)
        # A CLI that waits between attempts says so on stderr only.
        if last := error.stderr.strip().rpartition("\n")[2]:
            detail = f"{detail}; its last output: {last[:300]}"
    return fail(redacted(detail, secrets_in(environment_of(options))), fix, error.code)
