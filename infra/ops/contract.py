"""The HTTP contract, asked of a deployed board: each documented call reaches a function, and nobody gets in without a token."""

import json
import re

from ops.code import ROOT

DOCUMENT = ROOT / "functions/lib/protocol/openapi.json"
# The reaper's function looks at no token, so that no route leads to it.
NOT_ON_LAMBDA = {("POST", "/api/v1/admin/sweep")}
# No build, preview or token has this id.
NOBODY = "00000000-0000-0000-0000-000000000000"


def calls(document):
    """(method, path, whether it wants a token) of each documented call, its placeholders filled."""
    for path, verbs in document["paths"].items():
        for verb, call in verbs.items():
            # What is said of all holds where a call says nothing; {} among the ways in is none.
            yield verb.upper(), re.sub(r"\{\w+\}", NOBODY, path), {} not in call.get("security", document.get("security", [{}]))


def checks(board, operator, web_app):
    """(what is checked, what is wrong or None), one after the other. The boards differ in their tokens only; `board` has none."""
    document = json.loads(DOCUMENT.read_text())
    for path in ["/healthz", "/readyz"]:
        yield f"GET {path} answers 200", wrong(board.call("GET", path), 200)
    status, served = board.call("GET", "/openapi.json")
    yield "GET /openapi.json is this release's document", None if served == document else f"{status}, and another document"
    for method, path, is_closed in calls(document):
        if (method, path) in NOT_ON_LAMBDA:
            yield f"{method} {path} is not there", wrong(board.call(method, path, {}), 404)
        elif is_closed:
            yield f"{method} {path} wants a token", refusal(board.call(method, path, None if method == "GET" else {}))
    yield "a web-app's token is no operator's", refusal(web_app.call("GET", "/api/v1/admin/tokens"))
    yield "the operator's token lists tokens", wrong(operator.call("GET", "/api/v1/admin/tokens"), 200)
    yield "the web-app's token shows its workspace", wrong(web_app.call("GET", "/api/v1/workspace"), 200)
    yield "an unknown route is 404", wrong(board.call("GET", "/no/such/route"), 404)


def wrong(answer, wanted):
    return None if answer[0] == wanted else f"it answered {answer[0]}, not {wanted}"


def refusal(answer):
    """401 or 403, with a problem's code as every error has it."""
    status, problem = answer
    if status not in {401, 403}:
        return f"it answered {status}, not 401 or 403"
    return None if "code" in problem else f"it answered {status} without a code"
