"""A stand-in for `gemini --acp`: a real program that speaks the protocol, but for one bad habit.

Started as `stand_in_acp.py HABIT [the CLI's own arguments]`; each habit is a function below. The
habit `plan FILE` answers as the file says, and notes there what it heard.
"""

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

SESSIONS = (f"{os.getpid():08d}-1111-4222-8333-{number:012d}" for number in itertools.count())
LONGEST_LIFE = 300


def say(**message: object) -> None:
    os.write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(request: dict, words: str) -> None:
    content = {"type": "text", "text": words}
    tell(request, sessionUpdate="agent_message_chunk", content=content)


def tell(request: dict, **update: object) -> None:
    session = request["params"]["sessionId"]
    say(method="session/update", params={"sessionId": session, "update": update})


def reply(request: dict, **result: object) -> None:
    say(id=request["id"], result=result)


def quota(tokens: int = 10) -> dict:
    count = {"input_tokens": tokens, "output_tokens": 1}
    usage = [{"model": "gemini-2.5-flash", "token_count": count}]
    return {"quota": {"token_count": count, "model_usage": usage}}


def well_behaved(request: dict) -> None:
    text(request, "Hello")
    reply(request, stopReason="end_turn", _meta=quota())


def garbled(request: dict) -> None:
    os.write(1, b"this is no message\n[1, 2]\n\xff\xfe\n")
    well_behaved(request)


def strange(request: dict) -> None:
    """Speaks of things that nobody has heard of, asks for what was not offered."""
    tell(request, sessionUpdate="weather_update", sky="blue")
    wish = {"sessionId": request["params"]["sessionId"], "path": "/etc/passwd"}
    say(id=77, method="fs/read_text_file", params=wish)
    answer = json.loads(sys.stdin.readline())
    assert answer["id"] == 77, answer
    text(request, answer["error"]["message"])
    reply(request, stopReason="end_turn", _meta=quota())


def deaf(request: dict) -> None:
    """Begins to speak, and hears nothing any more."""
    text(request, "Once upon a time")
    time.sleep(LONGEST_LIFE)


def telling(request: dict) -> None:
    """Says 410 words, leaves a file in its folder to say so, and hears nothing any more."""
    for number in range(410):
        text(request, f"{number} ")
    os.close(os.open("said", os.O_CREAT))
    time.sleep(LONGEST_LIFE)


def asking(request: dict) -> None:
    call = {"toolCallId": "write_file__1", "title": "Writing", "kind": "edit"}
    options = [
        {"optionId": "proceed_once", "kind": "allow_once", "name": "Allow"},
        {"optionId": "cancel", "kind": "reject_once", "name": "Reject"},
    ]
    params = {"sessionId": request["params"]["sessionId"], "toolCall": call, "options": options}
    say(id=0, method="session/request_permission", params=params)
    # A cancel comes before the answer.
    answer = next(one for one in map(json.loads, sys.stdin) if "result" in one)
    text(request, json.dumps(answer["result"]["outcome"]))
    reply(request, stopReason="end_turn", _meta=quota())


def waiting_at_go(request: dict) -> None:
    """Says Hello, but to a prompt of Go only that it has begun."""
    if "Go" in json.dumps(request["params"]["prompt"]):
        text(request, "Begun")
    else:
        well_behaved(request)


def deaf_after_one(request: dict) -> None:
    well_behaved(request)
    time.sleep(LONGEST_LIFE)


def at_a_tool(request: dict) -> None:
    """Uses a tool that takes its time."""
    call = {"toolCallId": "run_shell_command__1", "title": "make", "kind": "execute"}
    tell(request, sessionUpdate="tool_call", status="in_progress", **call)
    time.sleep(2)
    tell(request, sessionUpdate="tool_call_update", status="completed", **call)
    text(request, "Built")
    reply(request, stopReason="end_turn", _meta=quota())


def odd(request: dict) -> None:
    say(id=request["id"], result=["no", "object"])


def refusing(request: dict) -> None:
    reply(request, stopReason="refusal")


def interrupted(request: dict) -> None:
    """Dies before the end of its line."""
    text(request, "Once")
    session = request["params"]["sessionId"]
    content = {"type": "text", "text": " upon a time"}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    params = {"sessionId": session, "update": update}
    os.write(1, json.dumps({"method": "session/update", "params": params}).encode())
    os._exit(1)


def halved(request: dict) -> None:
    """Speaks in half characters, and asks in them."""
    text(request, "smile \ud83d")
    text(request, "\ude00 ")
    call = {"toolCallId": "write_file__1", "title": "\ud83d", "kind": "edit"}
    call["locations"] = [{"path": "a\ud83d"}]
    options = [{"optionId": "proceed_once", "kind": "allow_once", "name": "\ud83d"}]
    params = {"sessionId": request["params"]["sessionId"], "toolCall": call, "options": options}
    say(id=0, method="session/request_permission", params=params)
    answer = json.loads(sys.stdin.readline())
    text(request, answer["result"]["outcome"]["optionId"])
    reply(request, stopReason="end_turn", note="\ud83d", _meta=quota())


def refusing_in_halves(request: dict) -> None:
    say(id=request["id"], error={"code": 400, "message": "no \ud83d"})


HABITS = {
    "well_behaved": well_behaved,
    "garbled": garbled,
    "strange": strange,
    "deaf": deaf,
    "telling": telling,
    "asking": asking,
    "at_a_tool": at_a_tool,
    "odd": odd,
    "refusing": refusing,
    "interrupted": interrupted,
    "halved": halved,
    "refusing in halves": refusing_in_halves,
    "deaf after one": deaf_after_one,
    "waiting at Go": waiting_at_go,
    "slow to open": well_behaved,
    "never open": well_behaved,
}


def serve(answer_prompt) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                reply(request, protocolVersion=1, agentInfo={"name": "s", "version": "0.61.0"})
            case "session/new":
                models = {"currentModelId": "gemini-2.5-flash"}
                opened = {"sessionId": next(SESSIONS), "models": models}
                if sys.argv[1] == "slow to open":
                    threading.Timer(1.0, reply, [request], opened).start()
                elif sys.argv[1] != "never open":
                    reply(request, **opened)
            case "session/prompt":
                answer_prompt(request)
            case _ if "id" in request and "method" in request:
                reply(request)


def follow(file: str) -> None:
    """Answers each method with the messages that the plan has for it, `"$id"` and `"$session"`
    filled in; what it hears goes to FILE.heard."""
    answers = json.loads(Path(file).read_text())
    with Path(f"{file}.heard").open("a", buffering=1) as heard:
        for line in sys.stdin:
            heard.write(line)
            request = json.loads(line)
            usual = [{"id": "$id", "result": {}}] if "method" in request else []
            session = request.get("params", {}).get("sessionId")
            for message in answers.get(request.get("method"), usual):
                known = {"$id": request.get("id"), "$session": session}
                say(**json.loads(json.dumps(message), object_hook=lambda d, k=known: filled(d, k)))
                if "id" in message and "method" in message:
                    heard.write(sys.stdin.readline())


def filled(message: dict, known: dict) -> dict:
    return {
        key: known.get(value, value) if isinstance(value, str) else value
        for key, value in message.items()
    }


def main() -> None:
    habit = sys.argv[1]
    if habit.startswith("plan "):
        follow(habit.removeprefix("plan "))
        return
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
