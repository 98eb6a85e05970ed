"""checkov's checks of infra's templates: whatever fails is listed here with its reason, and whatever is listed here fails.

Run by `./tests/run aws`, with the Python that has checkov.
"""

import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# (check, kind of resource): why it does not hold, for each resource of that kind that fails it.
SKIPPED = {
    ("CKV_AWS_158", "AWS::Logs::LogGroup"):
        "logs hold no secret, and CloudWatch encrypts them by a key of its own; one of ours costs money, and without it nobody reads them",
    ("CKV_AWS_173", "AWS::Lambda::Function"):
        "no setting is a secret, which tests/aws.py holds, and Lambda encrypts them by a key of its own",
    ("CKV_AWS_116", "AWS::Lambda::Function"):
        "only the reaper is called without somebody who waits for the answer, and its next sweep does what a lost one would have done",
    ("CKV_AWS_115", "AWS::Lambda::Function"):
        "what one function reserves is taken from the others, in accounts that have little; the alarm on throttles says when it is used up",
    ("CKV_AWS_27", "AWS::SQS::Queue"):
        "the queue holds the schedule's empty events, and SQS encrypts them by a key of its own (SqsManagedSseEnabled)",
    ("CKV_AWS_111", "AWS::IAM::ManagedPolicy"):
        "Lambda makes a function's network interfaces by this policy; its second statement denies the same to the function's code",
    ("CKV_AWS_65", "AWS::ECS::Cluster"):
        "Container Insights are paid by metric; ECS gives processor and memory without them, and the board knows its workers",
    ("CKV_AWS_118", "AWS::RDS::DBInstance"):
        "it wants a role and is paid by its logs; RDS's own metrics of each minute say what the alarms and the dashboard need",
}
# Fewer would mean that checkov no longer reads the templates.
PASSED_MIN = 150


def checked():
    """(failed as (check, kind of resource) with the resources, how many passed)."""
    command = [pathlib.Path(sys.executable).parent / "checkov", "-d", ROOT / "infra", "--framework", "cloudformation"]
    # Without the network: rules of its makers' service are not fetched.
    done = subprocess.run([*command, "--skip-download", "--quiet", "--compact", "-o", "json"], capture_output=True, text=True)
    report = json.loads(done.stdout)
    failed = {}
    for one in report["results"]["failed_checks"]:
        kind, _, name = one["resource"].rpartition(".")
        failed.setdefault((one["check_id"], kind), []).append(name)
    return failed, report["summary"]


class Checkov(unittest.TestCase):
    def test_what_fails_is_listed_with_its_reason_and_what_is_listed_fails(self):
        failed, summary = checked()
        self.assertEqual({key: names for key, names in failed.items() if key not in SKIPPED}, {})
        self.assertEqual(set(SKIPPED) - set(failed), set(), "they hold by now: take them off the list")
        self.assertEqual((summary["parsing_errors"], summary["skipped"]), (0, 0))
        self.assertGreaterEqual(summary["passed"], PASSED_MIN)


if __name__ == "__main__":
    unittest.main()
