"""workers.yaml as a stack of its own: deployed when that is asked for, shown, and made fit to be deleted."""

import pathlib

import botocore.exceptions

from ops import changes, secrets
from ops.account import Stop, refused, say

TEMPLATE = pathlib.Path(__file__).resolve().parents[1] / "workers.yaml"
# What this script itself knows.
OURS = {"ApiUrl", "ImageUri", "ReaperName", "TokenSecretArn"}
BATCH = 50


def asked(ask):
    return ask.workers or ask.workers_image is not None or bool(ask.workers_set)


def check(account, ask, given):
    """Before anything is made: whether `given`, the parameters that were asked for, are enough."""
    ours = sorted(OURS & set(given))
    if ours or not all(given):
        raise Stop(f"--workers-set wants NAME=VALUE, and infra/deploy itself sets {', '.join(ours) or 'the rest'} (the image by --workers-image)", 2)
    if ask.workers_image is None and changes.parameters(account, account.workers_stack) is None:
        raise Stop("there are no workers yet: say which image they are by --workers-image, such as ACCOUNT.dkr.ecr.REGION.amazonaws.com/callboard-worker:TAG", 2)


def parameters(account, made, image, url=None):
    """The template's, for the board whose stack has the outputs `made`. An image that is not given stays as it is."""
    known = {"ApiUrl": url or made["ApiUrl"], "ReaperName": made["ReaperName"], "TokenSecretArn": secrets.arn_to_be(account, "worker-token")}
    return known | ({"ImageUri": image} if image else {})


def apply(account, ask, given, dry_run=False):
    """Brings the workers' stack to the template."""
    made = changes.outputs(account, account.stack)
    if "ReaperName" not in made:
        say("workers", f"{account.workers_stack} would be made once {account.stack} is there, and is this release's")
        return
    known = parameters(account, made, ask.workers_image, ask.api_url)
    changes.apply(account, account.workers_stack, TEMPLATE.read_text(), given | known, dry_run=dry_run)


def shown(account):
    """How many workers are wanted, run, and are about to; nothing where there is no such stack, or no such service in it yet."""
    made = changes.outputs(account, account.workers_stack)
    if "ServiceName" not in made:
        return {}
    found = account.client("ecs").describe_services(cluster=made["ClusterName"], services=[made["ServiceName"]])["services"]
    return {word: found[0][f"{word}Count"] for word in ["desired", "running", "pending"]} if found else {}


def unprotect(account):
    """Lets the instances be ended: each is protected from that but by ECS, and ECS goes before they do."""
    scaling, group = account.client("autoscaling"), f"{account.workers_stack}-{account.region}"
    try:
        groups = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        if not groups:
            return
        scaling.update_auto_scaling_group(AutoScalingGroupName=group, NewInstancesProtectedFromScaleIn=False)
        ids = [one["InstanceId"] for one in groups[0]["Instances"]]
        for start in range(0, len(ids), BATCH):
            scaling.set_instance_protection(AutoScalingGroupName=group, InstanceIds=ids[start : start + BATCH], ProtectedFromScaleIn=False)
    except botocore.exceptions.ClientError as error:
        # An emulator has no such service.
        if refused(error) != "InternalFailure":
            raise
        return
    say("workers", f"{len(ids)} instances of {group} are no longer protected")


def remove(account):
    if changes.status(account, account.workers_stack):
        unprotect(account)
    changes.remove(account, account.workers_stack)
