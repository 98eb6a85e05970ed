"""One real build on a deployed board, by whatever worker it has: submitted, waited for, its log read."""

import time

from ops.account import Stop

PIPELINE = "infra-verify"
WORDS = "callboard was here"
ENDED = {"success", "failed", "cancelled", "timed_out"}
POLL_SECONDS = 2


def build(board, repository, ref, seconds):
    """Runs it; (what is checked, what is wrong or None), one after the other."""
    step = {"name": "speak", "commands": [f"echo {WORDS}"]}
    board.must("PUT", f"/api/v1/pipelines/{PIPELINE}", {"repository": repository, "default_ref": ref, "steps": [step]})
    id = board.must("POST", "/api/v1/builds", {"pipeline": PIPELINE})["id"]
    ended = wait(board, id, seconds)
    yield f"build {id} succeeds", None if ended["status"] == "success" else why(ended)
    yield "its step ended with 0", None if [step.get("exit_code") for step in ended.get("steps") or []] == [0] else f"{ended.get('steps')}"
    yield "its log has what the step said", None if said(board, id) else "it has not"
    if ended["status"] in ENDED:
        board.must("DELETE", f"/api/v1/pipelines/{PIPELINE}")


def wait(board, id, seconds):
    """The build as it ended, or as it is when the time is over; then it is cancelled."""
    end = time.monotonic() + seconds
    while True:
        now = board.must("GET", f"/api/v1/builds/{id}")
        if now["status"] in ENDED:
            return now
        if time.monotonic() > end:
            board.call("POST", f"/api/v1/builds/{id}/cancel", {})
            return now
        time.sleep(POLL_SECONDS)


def why(build):
    words = [build["status"], build.get("end_reason"), build.get("error_message"), build.get("waiting_for")]
    return ": ".join(word for word in words if word)


def said(board, id):
    try:
        chunks = board.must("GET", f"/api/v1/builds/{id}/logs")["chunks"]
    except Stop:
        return False
    return any(WORDS in str(chunk) for chunk in chunks)
