"""The machine while a load is on it: what it is, its memory, its processors."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType

_SAMPLE_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """The memory and the processor time that all programs together take while the block lasts."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample)
        self._before, self._lowest = _available_mb(), _available_mb()
        self._cpu = _busy_seconds()
        self.memory_mb = self.cpu_seconds = 0.0

    def __enter__(self) -> Watch:
        self._sampler.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._sampler.join()
        self.memory_mb = max(0.0, self._before - self._lowest)
        self.cpu_seconds = _busy_seconds() - self._cpu

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self._lowest = min(self._lowest, _available_mb())


def description() -> str:
    """The processor, as people name it, the memory and the system."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    name = names[0] if names else platform.machine()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"Linux {platform.release().partition('-')[0]}"
    python = f"Python {platform.python_version()}"
    where = f"temporary files on {_file_system(Path(tempfile.gettempdir()))}"
    return f"{os.cpu_count()} cores ({name}), {total:.0f} GB, {system}, {python}, {where}"


def commit() -> str:
    """What is measured, as git names it."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    here = Path(__file__).parent
    return subprocess.run(command, cwd=here, capture_output=True, text=True).stdout.strip()


def _file_system(folder: Path) -> str:
    """Its kind, by the mount that the folder lies on."""
    lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    kinds = {Path(place): kind for _, place, kind, *_ in map(str.split, lines)}
    chain = (folder.resolve(), *folder.resolve().parents)
    return next((kinds[one] for one in chain if one in kinds), "an unknown file system")


def _available_mb() -> float:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("MemAvailable:")]
    return int(line.split()[1]) / 1024


def _busy_seconds() -> float:
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, first[:7])
    return (user + nice + system + irq + softirq) / _TICKS
