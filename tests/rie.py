"""Each function's zip in AWS's Runtime Interface Emulator, called with events of API Gateway, over real Postgres by TLS, its secrets
in a Secrets Manager of the test's own. To be run by ./tests/run aws, which makes what it needs."""

import hashlib
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import uuid
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ZIPS = ROOT / "target/functions/x86_64"
RIE = ROOT / "target/aws/rie/aws-lambda-rie-x86_64"
ADMIN = os.environ["CALLBOARD_TEST_POSTGRES"]
# From the contract: an instance is up in less. A busy machine may need more, so that it is told and not asserted.
INIT_GOAL_MS = 20

SECRETS = {"key": "k1:" + "07" * 32, "database": json.dumps({"username": "functions", "password": uuid.uuid4().hex})}
PIPELINE = {"repository": "https://git.example/acme/app.git", "steps": [{"name": "test", "commands": ["make test"]}]}


class SecretsManager(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_signed = self.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 Credential=")
        answer = json.dumps({"SecretString": SECRETS[asked["SecretId"]]}).encode() if is_signed else b"{}"
        self.send_response(200 if is_signed else 400)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def sql(statements, url=ADMIN):
    # The password is on no command line.
    done = subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", url], input=statements, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"tests/rie.py: Postgres: {done.stderr}")
    return done.stdout.strip()


def with_tls(directory):
    """Gives the server a certificate, which is its own authority, and the functions a user that gets in by TLS and password only."""
    key, certificate = directory / "key.pem", directory / "ca.pem"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=tests", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*request, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    rules = "hostssl all functions 127.0.0.1/32 scram-sha-256\nhost all functions all reject\nhost all all 127.0.0.1/32 trust"
    for name, text in [("server.crt", certificate.read_text()), ("server.key", key.read_text()), ("pg_hba.conf", rules)]:
        lines = text.strip().replace("\n", "', '")
        sql(f"copy (select unnest(array['{lines}'])) to program 'umask 077; cat >{name}.new; mv {name}.new {name}'")
    password = json.loads(SECRETS["database"])["password"]
    sql(f"create role functions login password '{password}'; grant all on all tables in schema public to functions; grant all on all sequences in schema public to functions")
    sql("alter system set ssl = on")
    sql("select pg_reload_conf()")
    return certificate.read_text()


def operator():
    """The first token, as ./infra/deploy would make it."""
    token = "cbo_" + uuid.uuid4().hex * 2
    digest = hashlib.sha256(token.encode()).hexdigest()
    sql(f"insert into tokens (id, digest, kind) values ('{digest[:8]}', '\\x{digest}', 'operator')")
    return token


class Function:
    """A function's zip in an emulator of its own. One call at a time: the emulator can't do two."""

    def __init__(self, name, settings, directory):
        self.name, self.out = name, open(directory / f"{name}.log", "w+")
        code = directory / name
        with zipfile.ZipFile(ZIPS / f"{name}.zip") as archive:
            archive.extractall(code)
        (code / "bootstrap").chmod(0o755)
        self.port = free_port()
        addresses = ["--runtime-interface-emulator-address", f"127.0.0.1:{self.port}", "--runtime-api-address", f"127.0.0.1:{free_port()}"]
        env = {"PATH": os.environ["PATH"], "AWS_LAMBDA_FUNCTION_NAME": name, "AWS_LAMBDA_FUNCTION_TIMEOUT": "30", **settings}
        self.process = subprocess.Popen([RIE, *addresses, "./bootstrap"], cwd=code, env=env, stdout=self.out, stderr=self.out, start_new_session=True)
        self.wait()
        self.first_ms = None

    def wait(self):
        for _ in range(500):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError(f"the emulator of {self.name} does not listen")

    def send(self, event):
        url = f"http://127.0.0.1:{self.port}/2015-03-31/functions/function/invocations"
        began = time.monotonic()
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(event).encode()), timeout=60) as answer:
            said = json.load(answer)
        took = (time.monotonic() - began) * 1000
        self.first_ms = took if self.first_ms is None else self.first_ms
        return said

    def call(self, verb, path, token="", body=None):
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json", "host": "board.example"}
        whom = {"method": verb, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "test"}
        context = {
            "accountId": "123456789012", "apiId": "api", "domainName": "board.example", "domainPrefix": "board", "http": whom, "requestId": "1",
            "routeKey": "$default", "stage": "$default", "time": "01/Dec/2026:00:00:00 +0000", "timeEpoch": 1796083200000,
        }
        event = {"version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": headers, "requestContext": context}
        answer = self.send({**event, "body": "" if body is None else json.dumps(body), "isBase64Encoded": False})
        text = answer.get("body") or "null"
        return answer.get("statusCode"), json.loads(text) if text[:1] in "{[n" else text

    def said(self):
        return (pathlib.Path(self.out.name)).read_text()

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.out.close()


class Emulated(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        directory = pathlib.Path(self.directory.name)
        service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SecretsManager)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        settings = {
            "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "example", "AWS_SESSION_TOKEN": "session",
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": f"http://127.0.0.1:{service.server_port}",
            "CALLBOARD_DATABASE_URL": ADMIN.replace("callboard@", "functions@"), "CALLBOARD_DATABASE_CA": with_tls(directory),
            "CALLBOARD_DATABASE_SECRET": "database", "CALLBOARD_KEY_SECRET": "key",
        }
        self.functions = {zipped.stem: Function(zipped.stem, settings, directory) for zipped in sorted(ZIPS.glob("*.zip"))}
        self.addCleanup(service.server_close)
        self.addCleanup(service.shutdown)
        self.addCleanup(self.directory.cleanup)
        for function in self.functions.values():
            self.addCleanup(function.end)

    def ok(self, name, verb, path, token="", body=None, status=200):
        got, said = self.functions[name].call(verb, path, token, body)
        self.assertEqual(got, status, f"{name}: {verb} {path}: {said}\n{self.functions[name].said()}")
        return said

    def test_a_build_goes_from_its_submission_to_its_end_through_the_zips(self):
        first = operator()
        self.ok("board", "GET", "/readyz")
        self.ok("board", "PUT", "/api/v1/admin/workspaces/acme", first, {}, status=201)
        self.ok("board", "PUT", "/api/v1/admin/workspaces/acme/plan", first, {"minutes_per_month": 100})
        worker = self.ok("board", "POST", "/api/v1/admin/tokens", first, {"kind": "worker"}, status=201)["token"]
        api = self.ok("board", "POST", "/api/v1/admin/tokens", first, {"kind": "api", "workspace": "acme"}, status=201)["token"]
        self.ok("board", "PUT", "/api/v1/pipelines/main", api, PIPELINE, status=201)
        build = self.ok("admission", "POST", "/api/v1/builds", api, {"pipeline": "main"}, status=201)["id"]
        asked = {"claim_id": str(uuid.uuid4()), "worker": {"name": "w", "isolation": ["bubblewrap"]}}
        job = self.ok("claim", "POST", "/internal/worker/claim", worker, asked)
        self.assertEqual(job["build_id"], build)
        path = f"/internal/worker/builds/{build}"
        self.ok("heartbeat", "POST", f"{path}/heartbeat", worker, {})
        self.ok("logs", "POST", f"{path}/logs", job["log_token"], {"chunks": [{"seq": 1, "stream": "stdout", "text": "hi\n"}]})
        self.ok("complete", "POST", f"{path}/complete", worker, {"status": "success", "ran_ms": 1, "last_seq": 1})
        self.assertEqual(self.ok("board", "GET", f"/api/v1/builds/{build}", api)["status"], "success")
        self.assertEqual(self.numbers("complete"), [{"EndedBuilds": 1.0}])
        self.ok("previews", "GET", "/api/v1/previews", api)
        swept = self.functions["reaper"].send({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}})
        self.assertEqual((swept.get("errors"), swept.get("paused")), (0, False), self.functions["reaper"].said())
        self.assertEqual(self.numbers("reaper"), [
            {"Backlog": 0.0, "RunningBuilds": 0.0, "Workers": 1.0, "OldestAge": 0.0, "LapsedLeases": 0.0, "EndedBuilds": 0.0}
        ])
        self.ok("reaper", "POST", "/api/v1/admin/sweep", api, status=401)
        self.ok("reaper", "POST", "/api/v1/admin/sweep", first)
        migrated = self.functions["migrate"].send({"do": "list"})
        self.assertEqual((migrated.get("unknown"), migrated.get("applied")), (None, migrated.get("known")), self.functions["migrate"].said())
        self.assertEqual(sql("select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) where a.usename = 'functions' and not s.ssl"), "0")
        self.tell()

    def numbers(self, name):
        """What the function has told CloudWatch in its log: each line's numbers."""
        lines = [json.loads(line) for line in self.functions[name].said().splitlines() if line.startswith('{"') and '"_aws"' in line]
        for line in lines:
            (directive,) = line.pop("_aws")["CloudWatchMetrics"]
            self.assertEqual((directive["Namespace"], line.pop("FunctionName")), ("Callboard", name))
            self.assertEqual(sorted(metric["Name"] for metric in directive["Metrics"]), sorted(line))
        return lines

    def tell(self):
        print(f"\n{'function':<10} {'INIT ms':>8} {'first answer ms':>16}   (the first answer has INIT, secrets, TLS and a log-in in it)")
        for name, function in self.functions.items():
            # Not what is called Init Duration at the end, which is no time of anything.
            init = re.search(r"INIT REPORT\(durationMs: ([0-9.]+)\)", function.said())
            late = "  more than the goal of 20 ms" if init and float(init[1]) >= INIT_GOAL_MS else ""
            print(f"{name:<10} {init[1] if init else '-':>8} {function.first_ms:>16.1f}{late}")
            self.assertIsNotNone(init, f"{name}: the emulator told no INIT\n{function.said()}")
            self.assertNotIn(json.loads(SECRETS["database"])["password"], function.said())


if __name__ == "__main__":
    unittest.main()
