"""The streams of aiwf's own tests, through the response_provider, give what its tests expect."""

import pytest

from geminorum.contracts.response_provider import GeminiCliProvider


@pytest.mark.parametrize(
    ("name", "text", "files"),
    [
        ("01-single-message", "Hello world", []),
        ("02-two-messages", "Part 1. Part 2.", []),
        ("03-user-ignored", "Response", []),
        ("04-write-file", "", ["/path/to/file.txt"]),
        ("05-replace", "", ["/path/to/edit.txt"]),
        ("06-two-writes", "", ["/path/file1.txt", "/path/file2.txt"]),
        ("07-failed-write-not-tracked", "", ["/path/success.txt"]),
        ("08-malformed-line", "Valid end", []),
        ("09-truncated-tail", "Complete", []),
        ("10-empty", "", []),
        ("11-blank-lines", "Hello", []),
        ("12-mixed", "Creating file... Done!", ["/path/file.txt"]),
        ("13-read-file-not-tracked", "", []),
        ("14-adr-sample-no-tool-id", "...", []),
    ],
)
def test_text_and_written_files(fixtures_folder, name, text, files):
    """S4-2, S4-18 … S4-23, S4-37, S4-41: the text and the files of all fourteen streams."""
    stdout = (fixtures_folder / f"aiwf/{name}.ndjson").read_bytes()
    assert GeminiCliProvider()._parse_ndjson_stream(stdout) == (text, dict.fromkeys(files))
