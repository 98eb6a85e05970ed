"""What the account must allow before anything is made: a deployment that ends half-way for want of it is the worse way to learn."""

import botocore.exceptions

from ops.account import Stop, refused, say

# New accounts have 10. Each function instance serves one call; eight functions and some workers that wait need more.
CONCURRENCY_MIN = 100
VPCS = "L-F678F1CE"


def check(account, is_new):
    """`is_new`: whether the control plane's network is still to be made."""
    limit = account.client("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    wants = [concurrency(limit)]
    if is_new:
        wants.append(networks(len(account.client("ec2").describe_vpcs()["Vpcs"]), vpcs_max(account)))
    missing = [want for want in wants if want]
    if missing:
        raise Stop("; ".join(missing) + ". Ask for more at Service Quotas in the console, then run this again")
    say("quotas", f"{limit} function calls at once" + (", and a network more" if is_new else ""))


def concurrency(limit):
    """What is wrong with a limit of function calls at once; None if nothing is."""
    if limit < CONCURRENCY_MIN:
        return f"the account allows {limit} function calls at once, and Callboard wants {CONCURRENCY_MIN} (Lambda, concurrent executions)"
    return None


def networks(used, limit):
    """What is wrong with the number of networks; None if one more may be made, or nobody knows."""
    if limit is not None and used >= limit:
        return f"the region has {used} of {limit} networks (VPC, VPCs per Region)"
    return None


def vpcs_max(account):
    try:
        return int(account.client("service-quotas").get_service_quota(ServiceCode="vpc", QuotaCode=VPCS)["Quota"]["Value"])
    except botocore.exceptions.ClientError as error:
        say("quotas", f"not checked: networks, since Service Quotas says {refused(error)}")
        return None
