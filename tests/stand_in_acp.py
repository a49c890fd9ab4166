"""A stand-in for `gemini --acp`: a real program that speaks the protocol, but for one bad habit.

Started as `stand_in_acp.py HABIT [the CLI's own arguments]`; each habit is a function below.
"""

import json
import os
import sys
import time

SESSION = "00000000-1111-4222-8333-444444444444"
LONGEST_LIFE = 300


def say(**message: object) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(words: str) -> None:
    update = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": words},
    }
    say(method="session/update", params={"sessionId": SESSION, "update": update})


def reply(request: dict, **result: object) -> None:
    say(id=request["id"], result=result)


def quota(tokens: int = 10) -> dict:
    count = {"input_tokens": tokens, "output_tokens": 1}
    usage = [{"model": "gemini-2.5-flash", "token_count": count}]
    return {"quota": {"token_count": count, "model_usage": usage}}


def well_behaved(request: dict) -> None:
    text("Hello")
    reply(request, stopReason="end_turn", _meta=quota())


def garbled(request: dict) -> None:
    os.write(1, b"this is no message\n[1, 2]\n\xff\xfe\n")
    well_behaved(request)


def strange(request: dict) -> None:
    """Speaks of things that nobody has heard of, asks for what was not offered."""
    update = {"sessionUpdate": "weather_update", "sky": "blue"}
    say(method="session/update", params={"sessionId": SESSION, "update": update})
    say(id=77, method="fs/read_text_file", params={"sessionId": SESSION, "path": "/etc/passwd"})
    answer = json.loads(sys.stdin.readline())
    assert answer["id"] == 77, answer
    text(answer["error"]["message"])
    reply(request, stopReason="end_turn", _meta=quota())


def deaf(request: dict) -> None:
    """Begins to speak, and hears nothing any more."""
    text("Once upon a time")
    time.sleep(LONGEST_LIFE)


def asking(request: dict) -> None:
    call = {"toolCallId": "write_file__1", "title": "Writing", "kind": "edit"}
    options = [
        {"optionId": "proceed_once", "kind": "allow_once", "name": "Allow"},
        {"optionId": "cancel", "kind": "reject_once", "name": "Reject"},
    ]
    params = {"sessionId": SESSION, "toolCall": call, "options": options}
    say(id=0, method="session/request_permission", params=params)
    answer = json.loads(sys.stdin.readline())
    text(json.dumps(answer["result"]["outcome"]))
    reply(request, stopReason="end_turn", _meta=quota())


def odd(request: dict) -> None:
    say(id=request["id"], result=["no", "object"])


def refusing(request: dict) -> None:
    reply(request, stopReason="refusal")


HABITS = {
    "well_behaved": well_behaved,
    "garbled": garbled,
    "strange": strange,
    "deaf": deaf,
    "asking": asking,
    "odd": odd,
    "refusing": refusing,
}


def serve(answer_prompt) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                reply(request, protocolVersion=1, agentInfo={"name": "s", "version": "0.61.0"})
            case "session/new":
                reply(request, sessionId=SESSION, models={"currentModelId": "gemini-2.5-flash"})
            case "session/prompt":
                answer_prompt(request)
            case _ if "id" in request and "method" in request:
                reply(request)


def main() -> None:
    habit = sys.argv[1]
    if habit == "silent":
        time.sleep(LONGEST_LIFE)
    if habit == "of another time":
        request = json.loads(sys.stdin.readline())
        reply(request, protocolVersion=2)
        time.sleep(LONGEST_LIFE)
    if habit == "of the time before":
        request = json.loads(sys.stdin.readline())
        reply(request, protocolVersion=1, agentInfo={"name": "gemini-cli", "version": "0.40.1"})
        time.sleep(LONGEST_LIFE)
    if habit == "without --acp":
        os.write(2, b"Unknown argument: acp\n\nUsage: gemini [options] [command]\n")
        os._exit(1)
    if habit == "dying at once":
        os.write(2, b"FatalAuthenticationError: no key here\n")
        os._exit(41)
    serve(HABITS[habit])


if __name__ == "__main__":
    main()
