"""A target to findings: mutated inputs for some time, each new failure shrunk and saved."""

from __future__ import annotations

import hashlib
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.growth import Growth, SuperLinear, decoded_growth, random_growth, require_linear
from fuzz.mutations import Choices, by_chance, mutated
from fuzz.soundness import Unsound
from fuzz.target import Target

_ROUND_SECONDS = 3.0
"""Of inputs, and a third of it of inputs that grow, in turns."""
_MAX_ATTEMPT_SECONDS = 20.0
_MAX_SHRINK_SECONDS = 15.0


class TooSlow(BaseException):
    """One input took longer than any should. Not an Exception: nothing may take it for its own."""


@dataclass(frozen=True)
class Finding:
    """An input that a decoder fails on."""

    target: str
    signature: str
    """The kind of exception, and where in geminorum it was raised: the same for the same defect."""
    data: bytes
    traceback: str
    kind: str = "input"
    """Or "growth", whose data says how an input grows."""

    def save(self, folder: Path) -> Path:
        name = hashlib.sha256(self.signature.encode()).hexdigest()[:12]
        file = folder / self.target / f"{name}.{self.kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(self.data)
        file.with_suffix(".txt").write_text(f"{self.signature}\n\n{self.traceback}", "utf-8")
        return file


@dataclass
class Hunt:
    """One target for some seconds. `found` has an input for each defect."""

    target: Target
    seconds: float
    seed: int = 0
    on_progress: Callable[[Hunt], None] = lambda hunt: None
    executions: int = 0
    found: dict[str, Finding] = field(default_factory=dict)
    elapsed: float = 0.0
    _started: float = 0.0

    def run(self) -> None:
        self._started, chance = time.monotonic(), random.Random(self.seed)
        while not self._is_over:
            self._try_inputs(by_chance(chance))
            self._try_growths(chance)

    @property
    def _is_over(self) -> bool:
        self.elapsed = time.monotonic() - self._started
        return self.elapsed >= self.seconds

    def _try_inputs(self, choices: Choices) -> None:
        until = time.monotonic() + _ROUND_SECONDS
        while time.monotonic() < until and not self._is_over:
            self.try_input(mutated(self.target, choices))

    def try_input(self, data: bytes) -> None:
        self.executions += 1
        if (error := failure_of(self.target, data)) is not None:
            self._note(error, data)
        self.on_progress(self)

    def _try_growths(self, chance: random.Random) -> None:
        until = time.monotonic() + _ROUND_SECONDS / 3
        while time.monotonic() < until and not self._is_over:
            growth = random_growth(self.target, chance)
            self.executions += 1
            if (error := failure_of_growth(self.target, growth)) is not None:
                self._note_growth(error, growth)
            self.on_progress(self)

    def _note(self, error: BaseException, data: bytes) -> None:
        signature = signature_of(error)
        if signature not in self.found:
            if not isinstance(error, TooSlow):
                data = shrunk(self.target, data, signature)
                error = failure_of(self.target, data) or error
            self._keep(signature, data, error, "input")

    def _note_growth(self, error: BaseException, growth: Growth) -> None:
        is_slow = isinstance(error, SuperLinear | TooSlow)
        signature = signature_of_growth(growth) if is_slow else signature_of(error)
        if signature not in self.found:
            self._keep(signature, growth.encoded(), error, "growth")

    def _keep(self, signature: str, data: bytes, error: BaseException, kind: str) -> None:
        text = "".join(traceback.format_exception(error))
        self.found[signature] = Finding(self.target.name, signature, data, text, kind)


def failure_of(target: Target, data: bytes) -> BaseException | None:
    """What the input raises, and must not."""
    try:
        with time_limit(_MAX_ATTEMPT_SECONDS):
            target.attempt(data)
    except (Exception, TooSlow) as error:
        return error
    return None


def failure_of_growth(target: Target, growth: Growth) -> BaseException | None:
    """What an input that grows raises; SuperLinear among it."""
    try:
        with time_limit(_MAX_ATTEMPT_SECONDS):
            require_linear(target, growth)
    except (Exception, TooSlow) as error:
        return error
    return None


def shrunk(target: Target, data: bytes, signature: str) -> bytes:
    """The input without all that can be left out while the same defect shows."""
    until, size = time.monotonic() + _MAX_SHRINK_SECONDS, len(data) // 2
    while size and time.monotonic() < until:
        at = 0
        while at < len(data) and time.monotonic() < until:
            shorter = data[:at] + data[at + size :]
            error = failure_of(target, shorter)
            if error is not None and signature_of(error) == signature:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def replayed(target: Target, file: Path) -> BaseException | None:
    """What a saved finding raises today; None where it is fixed."""
    data = file.read_bytes()
    if file.suffix == ".growth":
        return failure_of_growth(target, decoded_growth(data))
    return failure_of(target, data)


def signature_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "geminorum" in Path(frame.filename).parts]
    last = (ours or list(frames))[-1]
    what = str(error).partition(":")[0] if isinstance(error, Unsound) else type(error).__name__
    return f"{what} in {Path(last.filename).name}, {last.name}"


def signature_of_growth(growth: Growth) -> str:
    """By what is repeated: where the time goes is for a person to find out."""
    return f"SuperLinear by {growth.first[:40]!r} and {growth.second[:40]!r}"


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TooSlow in the block after so many seconds of CPU, where there is such a timer."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGPROF, _raise_too_slow)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _raise_too_slow(*_: object) -> None:
    raise TooSlow
