"""A stack by way of a change set: shown first, then executed, and what a killed script left is taken up or away."""

import time

import botocore.exceptions

from ops.account import Stop, refused, say

CHANGE_SET = "callboard-deploy"
POLL_SECONDS = 2
BODY_BYTES_MAX = 51_200
NO_CHANGE = ("didn't contain changes", "No updates are to be performed")


def status(account, stack):
    """The stack's status; None if there is none."""
    described = describe(account, stack)
    return described and described["StackStatus"]


def describe(account, stack):
    try:
        return account.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    except botocore.exceptions.ClientError as error:
        if refused(error) == "ValidationError" and "does not exist" in str(error):
            return None
        raise


def outputs(account, stack):
    described = describe(account, stack) or {}
    return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}


def settled(account, stack):
    """The stack's status, once nothing is going on there any more."""
    told = None
    while True:
        now = status(account, stack)
        if now is None or now == "REVIEW_IN_PROGRESS" or not now.endswith("_IN_PROGRESS"):
            return now
        if now != told:
            say("stack", f"{stack} is {now}; waiting")
            told = now
        time.sleep(POLL_SECONDS)


def apply(account, stack, text, parameters, dry_run=False):
    """Brings the stack to the template `text`. `parameters` that are not given stay as they are."""
    now = settled(account, stack)
    if now in {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"}:
        if dry_run:
            say("stack", f"{stack} is {now}, and would be deleted and made again")
            return
        # It never came to be, and can only be deleted.
        remove(account, stack)
        now = None
    is_new = now in {None, "REVIEW_IN_PROGRESS"}
    if not propose(account, stack, text, parameters, is_new):
        say("stack", f"{stack} is as the template says")
    elif dry_run:
        say("stack", f"{stack} would be {'made' if is_new else 'changed'} so; nothing was done")
    else:
        execute(account, stack, is_new)
        return
    discard(account, stack, is_new and now is None)


def propose(account, stack, text, parameters, is_new):
    """Makes the change set and shows it; whether it changes anything."""
    formation = account.client("cloudformation")
    if len(text.encode()) > BODY_BYTES_MAX:
        raise Stop(f"the template of {stack} has more than {BODY_BYTES_MAX} bytes, and CloudFormation takes no more in one piece")
    discard(account, stack, False)
    formation.create_change_set(
        StackName=stack, ChangeSetName=CHANGE_SET, ChangeSetType="CREATE" if is_new else "UPDATE", TemplateBody=text,
        Parameters=joined(formation, stack, text, parameters, is_new), Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    made = created(formation, stack)
    if made["Status"] == "FAILED":
        if any(words in made.get("StatusReason", "") for words in NO_CHANGE):
            return False
        raise Stop(f"CloudFormation takes no such change of {stack}: {made.get('StatusReason', 'it does not say why')}")
    return show(formation, stack) > 0


def joined(formation, stack, text, given, is_new):
    declared = {one["ParameterKey"] for one in formation.get_template_summary(TemplateBody=text)["Parameters"]}
    unknown = sorted(set(given) - declared)
    if unknown:
        raise Stop(f"the template of {stack} has no parameter {', '.join(unknown)}", 2)
    held = set()
    if not is_new:
        described = formation.describe_stacks(StackName=stack)["Stacks"][0]
        held = {one["ParameterKey"] for one in described.get("Parameters", [])}
    kept = [{"ParameterKey": key, "UsePreviousValue": True} for key in sorted((held & declared) - set(given))]
    return [{"ParameterKey": key, "ParameterValue": str(value)} for key, value in sorted(given.items())] + kept


def created(formation, stack):
    while True:
        made = formation.describe_change_set(StackName=stack, ChangeSetName=CHANGE_SET)
        if made["Status"] in {"CREATE_COMPLETE", "FAILED"}:
            return made
        time.sleep(POLL_SECONDS / 4)


def show(formation, stack):
    """Prints each change; how many there are."""
    count = 0
    for page in formation.get_paginator("describe_change_set").paginate(StackName=stack, ChangeSetName=CHANGE_SET):
        for change in page["Changes"]:
            one, count = change["ResourceChange"], count + 1
            replaced = " (replaced)" if one.get("Replacement") == "True" else ""
            print(f"  {one['Action'].lower():7} {one['LogicalResourceId']} {one['ResourceType']}{replaced}", flush=True)
    return count


def execute(account, stack, is_new):
    formation = account.client("cloudformation")
    formation.execute_change_set(StackName=stack, ChangeSetName=CHANGE_SET)
    say("stack", f"{stack} is being {'made' if is_new else 'changed'}")
    # It may not have begun yet, and is REVIEW_IN_PROGRESS until then.
    while (now := settled(account, stack)) == "REVIEW_IN_PROGRESS":
        time.sleep(POLL_SECONDS)
    if now not in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}:
        raise Stop(f"{stack} is {now}: {failures(formation, stack)}")
    say("stack", f"{stack} is {now}")


def failures(formation, stack):
    events = formation.describe_stack_events(StackName=stack)["StackEvents"]
    told = [f"{e['LogicalResourceId']}: {e.get('ResourceStatusReason', '')}" for e in events if e["ResourceStatus"].endswith("_FAILED")]
    return "; ".join(told[:5]) or "see its events in the console"


def discard(account, stack, with_stack):
    """Takes the change set away, and with it the empty stack that making it has left."""
    formation = account.client("cloudformation")
    try:
        formation.delete_change_set(StackName=stack, ChangeSetName=CHANGE_SET)
    except botocore.exceptions.ClientError as error:
        if refused(error) not in {"ValidationError", "ChangeSetNotFound", "ChangeSetNotFoundException"}:
            raise
    if with_stack:
        formation.delete_stack(StackName=stack)


def remove(account, stack):
    """Deletes the stack, if it is there, and waits for its end."""
    now = settled(account, stack)
    if now in {None, "DELETE_COMPLETE"}:
        say("stack", f"{stack} is not there")
        return
    formation = account.client("cloudformation")
    formation.delete_stack(StackName=stack)
    say("stack", f"{stack} is being deleted")
    now = settled(account, stack)
    if now not in {None, "DELETE_COMPLETE"}:
        raise Stop(f"{stack} is {now}: {failures(formation, stack)}")
    say("stack", f"{stack} is gone")
