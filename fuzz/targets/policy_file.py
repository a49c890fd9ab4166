"""A policy file in TOML, to its rules, to verdicts, and to one list with the caller's."""

from __future__ import annotations

from fuzz.scratch import scratch_file
from fuzz.target import Target
from geminorum import Options, Policy
from geminorum.errors import ConfigError
from geminorum.policies import Rules, toml_of
from geminorum.wire.policy.toml_reader import table_of
from geminorum.wire.policy.user_rules import stricter, user_policy

_SEEDS = (
    b'[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = ["git status", "ls"]\n'
    b'decision = "allow"\npriority = 100\nmodes = ["default", "yolo"]\nallow_redirection = true\n\n'
    b'[[rule]]\ntoolName = ["write_file", "replace"]\ndecision = "deny"\npriority = 500\n'
    b'denyMessage = "no"\ninteractive = false\n',
    b'[[rule]]\ntoolName = "run_shell_command"\ncommandRegex = "git (?<verb>log|diff)( -[a-z]+)?"\n'
    b'decision = "ask_user"\npriority = 10\n\n[[rule]]\nmcpName = "files"\ntoolName = "*"\n'
    b'decision = "allow"\npriority = 3\nsubagent = "x"\n'
    b"toolAnnotations = { readOnlyHint = true }\n",
    b'[[rule]]\ntoolName = "*"\nargsPattern = "\\"file_path\\":\\"[^\\"]*[.]env\\""\n'
    b'decision = "deny"\npriority = 999\n\n[[safety_checker]]\ntoolName = "*"\npriority = 1\n'
    b'[safety_checker.checker]\ntype = "in-process"\nname = "allowed-path"\n',
)
_WORDS = (
    *(
        b"[[rule]]\n",
        b"a.b.c",
        b"(",
        b")",
        b"*",
        b"{99999999999}",
        b"[[a]",
        b"(?i)",
        b"(?<a>",
        b"\\\\",
    ),
    *(
        b"'''",
        b'"""',
        b"{1,2}",
        b"1979-05-27T07:32:00Z",
        b"inf",
        b"nan",
        b"0x",
        b"[a-",
        b"&&",
        b"||",
    ),
)
_OURS = table_of(toml_of(Options(policy=Policy(shell_execute="allow"))))["rule"]


def run(data: bytes) -> None:
    rules = Rules.read(scratch_file("policy", "policy.toml", data))
    rules.verdict("run_shell_command", {"command": "git status > file"})
    rules.verdict("mcp_files_read", {"a": 1})
    try:
        users = user_policy([data.decode()], {"tools": {"exclude": ["glob"]}})
        users.word_on("write_file", interactive=False)
        stricter(users.rules, _OURS)
    except ValueError:
        pass


TARGET = Target("policy-file", run, _SEEDS, (ConfigError,), shape="toml", words=_WORDS)
