"""Typed decoding from several threads at once."""

import ast
import subprocess
import sys
from pathlib import Path

import geminorum

SOURCE = Path(geminorum.__file__).parent

# In a process of its own, because a failure is a segmentation fault.
FIRST_USES = """
import sys, threading
import msgspec
from geminorum.runtime import typed

sys.setswitchinterval(1e-6)

def new_type():
    inner = msgspec.defstruct("Inner", [(f"field{n}", int, 0) for n in range(20)])
    return msgspec.defstruct("Outer", [("all", list[inner], []), ("named", dict[str, inner], {})])

def convert(kind, barrier, found):
    barrier.wait()
    found.append(typed.convert({"all": [{"field1": 3}]}, kind).all[0].field1)
    found.append(typed.decode(b'{"all": [{"field1": 3}]}', kind).all[0].field1)

for kind in [new_type() for _ in range(100)]:
    barrier, found = threading.Barrier(4), []
    threads = [threading.Thread(target=convert, args=(kind, barrier, found)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3] * 8, found
"""


def test_threads_may_decode_a_type_for_the_first_time_at_once():
    done = subprocess.run([sys.executable, "-c", FIRST_USES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# In a process of its own, because a failure waits for itself.
WITHIN_ANOTHER = """
import msgspec
from geminorum.runtime import typed

class Inner(msgspec.Struct):
    number: int

class Lazy:
    @property
    def kind(self):
        return type(typed.decode(b'{"number": 1}', Inner).number)

lazy = Lazy()

class Outer(msgspec.Struct):
    number: "lazy.kind"

print(typed.decode(b'{"number": 3}', Outer).number)
"""


def test_a_type_may_be_described_while_the_annotations_of_another_are_evaluated():
    command = [sys.executable, "-c", WITHIN_ANOTHER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.stdout == "3\n", done.stderr


def test_nothing_in_the_library_describes_a_type_to_msgspec_without_the_lock():
    """The command does, in its only thread."""
    found = {
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.name != "typed.py" and "apps" not in path.relative_to(SOURCE).parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and is_typed_decoding(node)
    }
    assert found == set()


def is_typed_decoding(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name == "msgspec.json.decode":
        return any(keyword.arg == "type" for keyword in call.keywords)
    return name == "msgspec.convert" or (name.startswith("msgspec.") and name.endswith("Decoder"))
