"""infra's scripts and template.yaml on LocalStack, with real functions over real Postgres: each script is killed after each step.

Run by `./tests/run aws`, with the Python that localstack/aws/python prints.
"""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "localstack/aws"), str(ROOT / "infra"), str(ROOT / "tests")]

import stack
from aws_git import GitHttps
import postgres
from ops import address, changes, code, migrations, quotas, secrets
from ops.account import Stop

# What the community edition only says that it has made: by type, how many of it, all with the physical id `unknown`.
PRETENDED = {
    "AWS::ApiGatewayV2::Api": 1, "AWS::ApiGatewayV2::Integration": 8, "AWS::ApiGatewayV2::Route": 39, "AWS::ApiGatewayV2::Stage": 1,
    "AWS::CloudWatch::Dashboard": 1,
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
    return ["--zips", running.zips, "--database-url-file", "-", "--api-url", running.door.url]


def held(word):
    return running.client("secretsmanager").get_secret_value(SecretId=f"callboard-{word}-us-east-1")["SecretString"]


def kept():
    """What the functions read."""
    return held("database"), held("key")


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
        before = kept()
        code, said = script("deploy", *deploy_arguments(), given=running.database_url)
        self.assertEqual(code, 0, said)
        for words in ["0 of 11 files uploaded", "callboard is as the template says", "database-us-east-1 is as it was", "key-us-east-1 is as it was", "worker-token-us-east-1 is as it was"]:
            self.assertIn(words, said)
        self.assertEqual(kept(), before)

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


class DeployedAgain(unittest.TestCase):
    """Another release, and back: after Deployed, since classes run by their names' order."""

    @classmethod
    def setUpClass(cls):
        cls.first, other = held_parameters(), another_release()
        cls.dry = [script(name, *more) for name, *more in [("migrate", "--dry-run"), ("migrate", "--contract", "--zips", other), ("rollback",)]]
        cls.migrations = killed_at_every_step(running.script("migrate", "--zips", other))
        cls.between = held_parameters()
        arguments = ["--zips", other, *deploy_arguments()[2:]]
        cls.deployed = script("deploy", *arguments, given=running.database_url)
        cls.second = held_parameters()
        with a_migration(9999, "contract drop all"):
            cls.refused = [script("rollback"), script("migrate", "--zips", other)]
        with a_migration(9998, "expand all"):
            cls.shown = script("rollback", "--dry-run")
        cls.kept = held_parameters()
        cls.rollbacks = killed_at_every_step(running.script("rollback"))
        cls.back = held_parameters()

    def test_before_there_is_another_release_there_is_nothing_to_contract_or_to_go_back_to(self):
        self.assertEqual([code for code, _ in self.dry], [0, 2, 2], self.dry)
        self.assertIn("nothing was done", self.dry[0][1])

    def test_migrate_was_killed_at_each_step_and_changes_its_own_function_only(self):
        self.assertGreaterEqual(self.migrations, 3)
        self.assertEqual(self.between, self.first | {"MigrateCodePrefix": self.second["CodePrefix"]})

    def test_deploy_notes_the_release_before(self):
        self.assertEqual(self.deployed[0], 0, self.deployed)
        self.assertEqual(self.second, self.between | {"CodePrefix": self.second["MigrateCodePrefix"], "PreviousCodePrefix": self.first["CodePrefix"]})
        self.assertNotEqual(self.second["CodePrefix"], self.first["CodePrefix"])

    def test_past_a_contraction_there_is_no_way_back_and_a_newer_database_is_not_migrated(self):
        self.assertEqual([code for code, _ in self.refused], [2, 1], self.refused)
        for _, said in self.refused:
            self.assertIn("the migration 9999", said)

    def test_past_an_expansion_there_is_a_way_back_and_a_dry_run_only_shows_it(self):
        self.assertEqual((self.shown[0], self.kept), (0, self.second), self.shown)
        self.assertIn("  modify  Board AWS::Lambda::Function", self.shown[1])

    def test_rollback_was_killed_at_each_step_and_goes_back_once(self):
        self.assertGreaterEqual(self.rollbacks, 2)
        self.assertEqual(self.back, self.second | {"CodePrefix": self.first["CodePrefix"]})
        code, said = script("rollback")
        self.assertEqual((code, held_parameters()), (0, self.back))
        self.assertIn("already", said)

    def test_the_board_answers_after_all(self):
        self.assertEqual(board("GET", "/readyz")[0], 200)


class Destroyed(unittest.TestCase):
    """After all else: classes run by their names' order."""

    @classmethod
    def setUpClass(cls):
        cls.secrets = [*running.tokens().values(), held("key"), running.password, running.database_url]
        cls.kills = killed_at_every_step(running.script("destroy", "--yes", "--secrets-now"))

    def test_it_was_killed_at_each_of_its_steps_and_nothing_is_left(self):
        self.assertGreaterEqual(self.kills, 6)
        self.assertEqual(changes_left(), ([], [], []))
        self.assertEqual(running.client("lambda").list_functions()["Functions"], [])

    def test_a_second_run_finds_nothing(self):
        code, said = script("destroy", "--yes", "--secrets-now")
        self.assertEqual((code, said.count("is not there")), (0, 8), said)

    def test_no_script_has_said_a_secret(self):
        said = "".join(running.said)
        for one in self.secrets:
            self.assertNotIn(one, said)


class Decisions(unittest.TestCase):
    """Of the scripts, without AWS."""

    def test_an_address_is_split_into_what_is_shown_and_its_login(self):
        parts = address.split("postgresql://a%40b:p%3Aw%2F@host.example:5433/board?sslmode=verify-full")
        self.assertEqual(parts, {"url": "postgres://host.example:5433/board?sslmode=verify-full", "username": "a@b", "password": "p:w/"})

    def test_an_address_without_a_login_before_its_host_is_refused_and_not_repeated(self):
        wrong = ["mysql://u:word@h/d", "postgres://h/d", "postgres://u@h/d", "postgres://u:@h/d", "postgres://u:word@h", "postgres://u:x@h/d?password=word"]
        for one in wrong:
            with self.assertRaises(Stop, msg=one) as refused:
                address.split(one)
            self.assertNotIn("word@", str(refused.exception))

    def test_the_database_is_the_given_or_the_held_one_or_leads_nowhere(self):
        given = address.split("postgres://u:p@b/board")
        self.assertEqual(json.loads(secrets.wanted(None, None)), secrets.NOWHERE)
        self.assertEqual(secrets.wanted("held", None), "held")
        self.assertEqual(json.loads(secrets.wanted("held", given)), given)

    def test_a_release_remembers_the_one_before_it_and_itself_never(self):
        account = types.SimpleNamespace(bucket="b")
        made = {"CodeBucket": "b", "CodePrefix": "new/", "MigrateCodePrefix": "new/"}
        for held, previous in [(None, {}), ({}, {}), ({"CodePrefix": "new/"}, {}), ({"CodePrefix": "old/"}, {"PreviousCodePrefix": "old/"})]:
            self.assertEqual(code.parameters(account, "new/", held), made | previous)

    def test_only_what_a_later_migration_has_taken_away_is_in_the_way_of_a_release(self):
        applied = [{"version": number, "is_contract": contract} for number, contract in [(1, False), (2, True), (3, False), (4, True)]]
        found = [[one["version"] for one in migrations.in_the_way(applied, newest)] for newest in [1, 2, 3, 4, 5]]
        self.assertEqual(found, [[2, 4], [4], [4], [], []])
        self.assertEqual(migrations.missing({1, 2, 5, 6}, applied), [5, 6])

    def test_a_quota_is_enough_from_its_edge_on(self):
        self.assertIsNotNone(quotas.concurrency(quotas.CONCURRENCY_MIN - 1))
        self.assertIsNone(quotas.concurrency(quotas.CONCURRENCY_MIN))
        self.assertIsNone(quotas.networks(4, 5))
        self.assertIsNotNone(quotas.networks(5, 5))
        self.assertIsNone(quotas.networks(5, None))


def held_parameters():
    described = running.client("cloudformation").describe_stacks(StackName="callboard")["Stacks"][0]
    return {one["ParameterKey"]: one["ParameterValue"] for one in described["Parameters"]}


def another_release():
    """The zips of a release that does the same, and is another."""
    other = running.directory / "other"
    shutil.copytree(running.zips, other)
    with zipfile.ZipFile(other / "logs.zip", "a") as archive:
        archive.comment = b"another release"
    return other


@contextlib.contextmanager
def a_migration(number, name):
    """The database has one that is none of ours."""
    columns = "version, description, success, checksum, execution_time"
    sql(f"insert into _sqlx_migrations ({columns}) values ({number}, '{name}', true, '', 0)")
    try:
        yield
    finally:
        sql(f"delete from _sqlx_migrations where version = {number}")


def sql(statement):
    environment = os.environ | {"PGPASSWORD": running.password}
    command = [postgres.binaries() / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(running.postgres_port), "-U", "callboard"]
    subprocess.run([*command, "-c", statement, "postgres"], env=environment, check=True, capture_output=True)


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
