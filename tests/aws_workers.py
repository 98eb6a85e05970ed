"""infra's scripts and the workers' stack, without an account or an emulator: what is asked of AWS, by clients that note it."""

import pathlib
import sys
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "infra"))

from ops import changes, workers
from ops.account import Stop

BOARD = {"ApiUrl": "https://api.example", "ReaperName": "callboard-reaper-eu-central-1"}


class Account:
    """An account with these stacks, whose clients are these."""

    stack, workers_stack, region, id = "callboard", "callboard-workers", "eu-central-1", "123456789012"

    def __init__(self, stacks=None, **clients):
        self.stacks, self.clients = stacks or {}, {"secretsmanager": mock.Mock()} | clients
        describe = self.clients["secretsmanager"].describe_secret
        describe.side_effect = lambda SecretId: {"ARN": f"arn:aws:secretsmanager:eu-central-1:123456789012:secret:{SecretId}-AbCdEf"}

    def client(self, service):
        return self.clients[service]

    def secret(self, word):
        return f"{self.stack}-{word}-{self.region}"


def asked(image=None, workers=False, given=(), url=None):
    return types.SimpleNamespace(workers=workers, workers_image=image, workers_set=list(given), api_url=url)


class Stacks(unittest.TestCase):
    """Stands in the way of CloudFormation: each stack has outputs, and what is applied is noted."""

    def setUp(self):
        self.applied = []
        fakes = {
            "outputs": lambda account, stack: account.stacks.get(stack, {}),
            "parameters": lambda account, stack: {} if stack in account.stacks else None,
            "status": lambda account, stack: "CREATE_COMPLETE" if stack in account.stacks else None,
            "apply": lambda account, stack, text, given, dry_run=False: self.applied.append((stack, text, given, dry_run)),
            "remove": lambda account, stack: self.applied.append(("removed", stack)),
        }
        for name, fake in fakes.items():
            patched = mock.patch.object(changes, name, fake)
            patched.start()
            self.addCleanup(patched.stop)


class Deployed(Stacks):
    def test_they_are_deployed_only_when_that_is_asked_for(self):
        self.assertFalse(workers.asked(asked()))
        for ask in [asked(workers=True), asked(image="i"), asked(given=["Slots=4"])]:
            self.assertTrue(workers.asked(ask))

    def test_they_get_the_board_its_numbers_its_token_and_the_image(self):
        account = Account({"callboard": BOARD})
        workers.apply(account, asked(image="repository/worker:1"), {"CountMax": "8"})
        ((stack, text, given, dry_run),) = self.applied
        self.assertEqual((stack, dry_run, text), ("callboard-workers", False, (ROOT / "infra/workers.yaml").read_text()))
        self.assertEqual(given, {
            "ApiUrl": "https://api.example", "ReaperName": "callboard-reaper-eu-central-1", "CountMax": "8", "ImageUri": "repository/worker:1",
            "TokenSecretArn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:callboard-worker-token-eu-central-1-AbCdEf",
        })
        account.clients["secretsmanager"].get_secret_value.assert_not_called()

    def test_they_call_the_board_where_people_do_and_keep_an_image_that_is_not_given(self):
        workers.apply(Account({"callboard": BOARD}), asked(workers=True, url="https://board.example"), {}, dry_run=True)
        ((_, _, given, dry_run),) = self.applied
        self.assertEqual((given["ApiUrl"], "ImageUri" in given, dry_run), ("https://board.example", False, True))

    def test_before_the_board_is_there_nothing_is_made(self):
        for stacks in [{}, {"callboard": {"ApiUrl": "https://of.a.release.before"}}]:
            workers.apply(Account(stacks), asked(image="i"), {}, dry_run=True)
        self.assertEqual(self.applied, [])

    def test_what_cannot_be_is_told_before_anything_is_made(self):
        there = Account({"callboard-workers": {}})
        for account, ask, given in [
            (Account(), asked(workers=True), {}), (there, asked(), {"ImageUri": "mine"}), (there, asked(), {"TokenSecretArn": "mine"}), (there, asked(), {"": "8"}),
        ]:
            with self.assertRaises(Stop) as stopped:
                workers.check(account, ask, given)
            self.assertEqual(stopped.exception.code, 2)
        workers.check(there, asked(workers=True), {"CountMax": "8"})
        workers.check(Account(), asked(image="i"), {})


class Shown(Stacks):
    def test_how_many_are_wanted_and_run(self):
        ecs = mock.Mock()
        ecs.describe_services.return_value = {"services": [{"desiredCount": 0, "runningCount": 1, "pendingCount": 0, "status": "ACTIVE"}]}
        account = Account({"callboard-workers": {"ClusterName": "c", "ServiceName": "s"}}, ecs=ecs)
        self.assertEqual(workers.shown(account), {"desired": 0, "running": 1, "pending": 0})
        ecs.describe_services.assert_called_once_with(cluster="c", services=["s"])

    def test_nobody_is_asked_where_there_are_none(self):
        self.assertEqual(workers.shown(Account()), {})


class Removed(Stacks):
    def test_instances_lose_their_protection_first_all_of_them(self):
        scaling = mock.Mock()
        ids = [f"i-{number}" for number in range(120)]
        scaling.describe_auto_scaling_groups.return_value = {"AutoScalingGroups": [{"Instances": [{"InstanceId": id} for id in ids]}]}
        scaling.set_instance_protection.side_effect = lambda **given: self.applied.append(given)
        workers.remove(Account({"callboard-workers": {}}, autoscaling=scaling))
        *batches, last = self.applied
        self.assertEqual(last, ("removed", "callboard-workers"))
        self.assertEqual([len(batch["InstanceIds"]) for batch in batches], [50, 50, 20])
        self.assertEqual([id for batch in batches for id in batch["InstanceIds"]], ids)
        self.assertEqual({(batch["AutoScalingGroupName"], batch["ProtectedFromScaleIn"]) for batch in batches}, {("callboard-workers-eu-central-1", False)})

    def test_a_stack_that_is_not_there_has_no_instances_to_look_for(self):
        workers.remove(Account())
        self.assertEqual(self.applied, [("removed", "callboard-workers")])


if __name__ == "__main__":
    unittest.main()
