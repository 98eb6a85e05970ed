"""The database's migrations and the first tokens, each kept in Secrets Manager. Where a run was killed, the next one leaves no token that nobody holds."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from ops import secrets
from ops.account import Stop, say

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKSPACE = "default"
PLAN = {
    "minutes_per_month": 10_000, "build_seconds_max": 1800, "running_max": 16, "pending_max": 1000, "previews_max": 0,
    "preview_seconds_max": 3600,
}
FIRST = {"worker-token": {"kind": "worker"}, "api-token": {"kind": "api", "workspace": WORKSPACE}}
TRIES, TRY_SECONDS = 30, 2


def callboard(named):
    """The command that migrates."""
    for path in [named] if named else [ROOT / "target/release/callboard", ROOT / "target/debug/callboard", shutil.which("callboard")]:
        if path and os.access(path, os.X_OK):
            return str(path)
    raise Stop("there is no `callboard` to migrate with; make it with ./localstack/build, or name it with --callboard", 69)


def migrate(account, command):
    """Brings the settings' database to this release; makes the operator's token if there is none."""
    held, _ = secrets.read(account, "settings")
    token, _ = secrets.read(account, "operator-token")
    with tempfile.TemporaryDirectory(prefix="callboard-") as private:
        file = pathlib.Path(private) / "operator.token"
        asked = [command, "migrate"] + ([] if token else ["--operator-token-file", str(file)])
        # The address has a password: it is no argument, and what the command says of it is not shown.
        done = subprocess.run(asked, env=os.environ | {"DATABASE_URL": json.loads(held)["database_url"]}, capture_output=True, text=True)
        if done.returncode != 0:
            raise Stop("the migrations can't be applied; run `callboard migrate` by hand with the same DATABASE_URL to see why")
        say("database", "migrated")
        if not token:
            secrets.write(account, "operator-token", file.read_text().strip())


class Board:
    """The deployed board's HTTP API."""

    def __init__(self, url, token=None):
        self.url, self.token = url.rstrip("/"), token

    def call(self, method, path, body=None):
        """(status, JSON of the answer)."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=35) as answer:
                return answer.status, parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, parsed(error.read())
        except OSError as error:
            raise Stop(f"the board at {self.url} does not answer: {error}") from error

    def must(self, method, path, body=None):
        status, answer = self.call(method, path, body)
        if status >= 400:
            raise Stop(f"the board answers {method} {path} with {status}: {answer.get('detail') or answer.get('code') or 'it does not say why'}")
        return answer


def parsed(text):
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def ready(board):
    """Waits until the board can reach its database: functions that have just been made take a while."""
    for _ in range(TRIES):
        status, _ = board.call("GET", "/readyz")
        if status == 200:
            return
        time.sleep(TRY_SECONDS)
    raise Stop(f"{board.url}/readyz answers {status}, not 200; the log of the function board says why")


def first(account, url):
    """Makes the workspace, a worker's and a web-app's token, each if there is none."""
    operator, _ = secrets.read(account, "operator-token")
    if not operator:
        raise Stop(f"the secret {account.secret('operator-token')} is not there; run infra/deploy with --migrate, or keep an operator's token there", 3)
    board = Board(url, operator)
    ready(board)
    make_workspace(board)
    for word, wanted in FIRST.items():
        if secrets.read(account, word)[0]:
            say(word, f"{account.secret(word)} is as it was")
        else:
            make(account, board, word, wanted)


def make_workspace(board):
    names = [one["slug"] for one in board.must("GET", "/api/v1/admin/workspaces")["workspaces"]]
    if WORKSPACE in names:
        say("workspace", f"{WORKSPACE} is as it was")
    else:
        board.must("PUT", f"/api/v1/admin/workspaces/{WORKSPACE}", {"plan": PLAN})
        say("workspace", f"{WORKSPACE} made")


def make(account, board, word, wanted):
    name = f"kept in {account.secret(word)}"
    # A run that was killed here has made one that nobody holds.
    for id in lost(board.must("GET", "/api/v1/admin/tokens")["tokens"], name):
        board.must("DELETE", f"/api/v1/admin/tokens/{id}")
        say(word, "one that nobody holds is revoked")
    secrets.write(account, word, board.must("POST", "/api/v1/admin/tokens", wanted | {"name": name})["token"])


def lost(tokens, name):
    """The ids of the valid tokens of that name."""
    return [one["id"] for one in tokens if one["name"] == name and not one.get("revoked_at")]
