"""An HTTP answer that is no success, to the Error that says so: a header's value, then the body."""

from __future__ import annotations

from fuzz.seeds import more_seeds
from fuzz.soundness import require_sound
from fuzz.target import Target
from geminorum.wire.genai.verdict import refusal

_SEEDS = (
    b'7\n{"error":{"code":429,"message":"retry in 12.5s","status":"RESOURCE_EXHAUSTED","details":'
    b'[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.07s"},'
    b'{"violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]}]}}',
    b'Wed, 21 Oct 2026 07:28:00 GMT\n[{"error":{"code":400,"message":"API key not valid",'
    b'"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]',
    b'Wed, 21 Oct 2026 07:28:00 -0000\n{"error":"text only"}',
    b"1e3\n<html><body>502 Bad Gateway</body></html>",
)


def run(data: bytes) -> None:
    header, _, body = data.partition(b"\n")
    headers = {"retry-after": header.decode("latin-1"), "location": header.decode("latin-1")}
    for status in (302, 400, 429, 503):
        require_sound([refusal(status, "Phrase", headers, body), refusal(status, "", {}, data)])


TARGET = Target("api-refusal", run, (*_SEEDS, *more_seeds("body")), words=(b" +9999", b"9" * 30))
