"""infra's scripts and template.yaml on LocalStack, with real functions over real Postgres: each script is killed after each step.

Run by `./tests/run aws`, with the Python that localstack/aws/python prints.
"""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "localstack/aws"), str(ROOT / "infra"), str(ROOT / "tests")]

import stack
from aws_git import GitHttps
from ops import changes, quotas, secrets

# What the community edition only says that it has made: by type, how many of it, all with the physical id `unknown`.
PRETENDED = {
    "AWS::ApiGatewayV2::Api": 1, "AWS::ApiGatewayV2::Integration": 7, "AWS::ApiGatewayV2::Route": 38, "AWS::ApiGatewayV2::Stage": 1,
}
STEPS_MAX = 60

running = None
git = None


def setUpModule():
    global running, git
    home = tempfile.TemporaryDirectory(prefix="callboard-aws.", ignore_cleanup_errors=True)
    unittest.addModuleCleanup(home.cleanup)
    path = pathlib.Path(home.name)
    # A step's user clones from here, and Postgres runs as another user.
    path.chmod(0o711)
    git = GitHttps(path / "git")
    unittest.addModuleCleanup(git.close)
    running = stack.Stack(path)
    running.begin()
    unittest.addModuleCleanup(running.ends.close)
    running.zips = stack.zips_of_debug(path / "zips")
    running.said = []


def script(name, *arguments, given=None):
    """(exit code, output) of one of infra's scripts, run to its end."""
    done = subprocess.run(
        running.script(name, *arguments), input=given or "", env=running.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    running.said.append(done.stdout)
    return done.returncode, done.stdout


def is_step(line):
    """Not one of a change set's lines, of which there are many."""
    return not line.startswith("  ")


def killed_after(steps, command, given):
    """Runs it, and kills it with its children once it has said so many steps; its exit code."""
    process = subprocess.Popen(
        command, env=running.environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    process.stdin.write(given)
    process.stdin.close()
    said = 0
    for line in process.stdout:
        running.said.append(line)
        said += is_step(line)
        if said == steps:
            os.killpg(process.pid, signal.SIGKILL)
            break
    process.stdout.close()
    return process.wait()


def killed_at_every_step(command, given=""):
    """Kills it after its first step, then after its second, and so on, until it comes to its end; how often it was killed."""
    for steps in range(1, STEPS_MAX):
        code = killed_after(steps, command, given)
        if code != -signal.SIGKILL:
            if code != 0:
                raise AssertionError(f"run {steps} ended with {code}: {''.join(running.said[-20:])}")
            return steps - 1
    raise AssertionError(f"it was not done after {STEPS_MAX} runs")


def deploy_arguments():
    return ["--zips", running.zips, "--database-url-file", "-", "--migrate", "--api-url", running.door.url]


def settings():
    return json.loads(running.client("secretsmanager").get_secret_value(SecretId="callboard-settings-us-east-1")["SecretString"])


def memory(function="board"):
    return running.client("lambda").get_function_configuration(FunctionName=f"callboard-{function}-us-east-1")["MemorySize"]


def board(method, path, token=None):
    from ops.tokens import Board

    return Board(running.door.url, token).call(method, path)


class Deployed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        code, said = script("deploy", *deploy_arguments(), "--dry-run", given=running.database_url)
        cls.dry = code, said, changes_left()
        cls.kills = killed_at_every_step(running.script("deploy", *deploy_arguments()), running.database_url)

    def test_a_dry_run_shows_the_change_set_and_makes_nothing(self):
        code, said, left = self.dry
        self.assertEqual((code, left), (0, ([], [], [])), said)
        self.assertIn("  add     Reaper AWS::Lambda::Function", said)

    def test_it_was_killed_at_each_of_its_steps(self):
        self.assertGreaterEqual(self.kills, 8)

    def test_a_second_run_changes_nothing(self):
        before = settings()
        code, said = script("deploy", *deploy_arguments(), given=running.database_url)
        self.assertEqual(code, 0, said)
        for words in ["0 of 8 zips uploaded", "callboard is as the template says", "settings-us-east-1 is as it was", "worker-token-us-east-1 is as it was"]:
            self.assertIn(words, said)
        self.assertEqual(settings(), before)

    def test_the_kept_tokens_are_valid_and_no_other_of_their_name_is(self):
        tokens = running.tokens()
        answer = board("GET", "/api/v1/admin/tokens", tokens["CALLBOARD_OPERATOR_TOKEN"])
        self.assertEqual(answer[0], 200)
        valid = collections.Counter(one["name"] for one in answer[1]["tokens"] if not one.get("revoked_at"))
        for word in ["worker-token", "api-token"]:
            self.assertEqual(valid[f"kept in callboard-{word}-us-east-1"], 1)
        self.assertEqual(board("GET", "/api/v1/workspace", tokens["CALLBOARD_API_TOKEN"])[0], 200)

    def test_only_these_resources_are_pretended(self):
        pages = running.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName="callboard")
        found = [one["ResourceType"] for page in pages for one in page["StackResourceSummaries"] if one["PhysicalResourceId"] == "unknown"]
        self.assertEqual(dict(collections.Counter(found)), PRETENDED)

    def test_the_template_has_no_function_url(self):
        self.assertNotIn("AWS::Lambda::Url", (ROOT / "infra/template.yaml").read_text())

    def test_the_reaper_is_called_by_its_rule_and_by_its_queue(self):
        # The rule is of one minute; its two targets call twice.
        end = time.monotonic() + 300
        while calls_of_the_reaper() < 2 and time.monotonic() < end:
            time.sleep(3)
        self.assertGreaterEqual(calls_of_the_reaper(), 2)

    def test_a_parameter_is_changed_and_stays_when_it_is_not_given(self):
        for arguments in [["--set", "MemoryMib=512"], []]:
            code, said = script("deploy", *deploy_arguments(), *arguments, given=running.database_url)
            self.assertEqual((code, memory()), (0, 512), said)

    def test_a_real_worker_builds_and_the_contract_holds(self):
        doctor = subprocess.run([ROOT / "target/debug/callboard-worker", "doctor"], capture_output=True, text=True)
        if doctor.returncode != 0:
            skip("sandbox", "callboard-worker doctor says that no build can run here")
            return
        with worker() as log:
            code, said = script("verify", "--api-url", running.door.url, "--repository", git.url, "--ref", "main", "--seconds", "180")
        self.assertEqual(code, 0, f"{said}\n{log.read_text()}")

    def test_what_cannot_be_is_told_with_its_exit_code(self):
        self.assertEqual(script("deploy", "--zips", "/nowhere")[0], 2)
        self.assertEqual(script("deploy", *deploy_arguments(), "--set", "CodeBucket=mine", given=running.database_url)[0], 2)
        self.assertEqual(script("destroy")[0], 2)
        self.assertEqual(script("status", "--stack", "nobody")[0], 3)
        self.assertEqual(script("status")[0], 0)


class Destroyed(unittest.TestCase):
    """After all else: classes run by their names' order."""

    @classmethod
    def setUpClass(cls):
        cls.secrets = [*running.tokens().values(), *settings().values(), running.password]
        cls.kills = killed_at_every_step(running.script("destroy", "--yes", "--secrets-now"))

    def test_it_was_killed_at_each_of_its_steps_and_nothing_is_left(self):
        self.assertGreaterEqual(self.kills, 6)
        self.assertEqual(changes_left(), ([], [], []))
        self.assertEqual(running.client("lambda").list_functions()["Functions"], [])

    def test_a_second_run_finds_nothing(self):
        code, said = script("destroy", "--yes", "--secrets-now")
        self.assertEqual((code, said.count("is not there")), (0, 7), said)

    def test_no_script_has_said_a_secret(self):
        said = "".join(running.said)
        for one in self.secrets:
            self.assertNotIn(one, said)


class Decisions(unittest.TestCase):
    """Of the scripts, without AWS."""

    def test_the_key_stays_and_the_address_is_the_given_or_the_held_one(self):
        held = secrets.wanted(None, None, "1:a")
        self.assertEqual(json.loads(held), {"database_url": secrets.NOWHERE, "secrets_key": "1:a"})
        moved = secrets.wanted(held, "postgres://b", "1:b")
        self.assertEqual(json.loads(moved), {"database_url": "postgres://b", "secrets_key": "1:a"})
        self.assertEqual(secrets.wanted(moved, None, "1:c"), moved)

    def test_a_quota_is_enough_from_its_edge_on(self):
        self.assertIsNotNone(quotas.concurrency(quotas.CONCURRENCY_MIN - 1))
        self.assertIsNone(quotas.concurrency(quotas.CONCURRENCY_MIN))
        self.assertIsNone(quotas.networks(4, 5))
        self.assertIsNotNone(quotas.networks(5, 5))
        self.assertIsNone(quotas.networks(5, None))


def changes_left():
    """Stacks, buckets and secrets that are there."""
    formation, s3, manager = (running.client(name) for name in ["cloudformation", "s3", "secretsmanager"])
    stacks = [one["StackName"] for one in formation.describe_stacks()["Stacks"] if one["StackStatus"] != "DELETE_COMPLETE"]
    buckets = [one["Name"] for one in s3.list_buckets()["Buckets"]]
    return stacks, buckets, [one["Name"] for one in manager.list_secrets()["SecretList"]]


def calls_of_the_reaper():
    events = running.client("logs").filter_log_events(logGroupName="/aws/lambda/callboard-reaper-us-east-1")["events"]
    return sum(one["message"].startswith("START ") for one in events)


class worker:
    """A real worker with the kept token, until it is left."""

    def __enter__(self):
        self.log = running.directory / "worker.log"
        token = {"CALLBOARD_WORKER_TOKEN": running.tokens()["CALLBOARD_WORKER_TOKEN"]}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CALLBOARD_")}
        command = [ROOT / "target/debug/callboard-worker", "run", "--api-url", running.door.url, "--builds-root", running.directory / "builds"]
        command += ["--isolation", "bubblewrap", "--accept", "memory,processes,cpu,disk", "--ca-bundle", git.certificate, "--egress-allow", git.address]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, env=clean | token, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self.log

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def skip(need, why):
    """As tests/skipped.rs does: out loud, and a failure where it is required."""
    if os.environ.get(f"CALLBOARD_REQUIRE_{need.upper()}", "0") not in {"", "0"}:
        raise AssertionError(f"CALLBOARD_REQUIRE_{need.upper()} is set: {why}")
    raise unittest.SkipTest(f"SKIPPED for want of {need}: {why}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
