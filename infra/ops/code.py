"""The functions' zips in a bucket. The prefix is made of what is in them: the same code is never uploaded twice, other code never overwrites."""

import hashlib
import pathlib

import botocore.exceptions

from ops.account import Stop, refused, say

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUNCTIONS = sorted(main.parents[1].name for main in ROOT.glob("functions/*/src/main.rs"))


def zips(directory):
    """The zip of each function."""
    found = {name: pathlib.Path(directory) / f"{name}.zip" for name in FUNCTIONS}
    missing = [name for name, path in found.items() if not path.is_file()]
    if missing:
        raise Stop(f"{directory} has no zip of {', '.join(missing)}; make them with infra/build, or name their directory with --zips", 2)
    return found


def prefix(found):
    """Where in the bucket these zips belong."""
    digest = hashlib.sha256()
    for name, path in sorted(found.items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"code/{digest.hexdigest()[:16]}/"


def upload(account, found):
    """Makes the bucket if need be, and uploads what it lacks."""
    s3 = account.client("s3")
    make_bucket(account, s3)
    under = prefix(found)
    new = [name for name, path in found.items() if not has(s3, account.bucket, under + path.name, path.stat().st_size)]
    for name in new:
        s3.put_object(Bucket=account.bucket, Key=under + found[name].name, Body=found[name].read_bytes())
    say("code", f"{len(new)} of {len(found)} zips uploaded to s3://{account.bucket}/{under}")
    return under


def make_bucket(account, s3):
    try:
        s3.head_bucket(Bucket=account.bucket, ExpectedBucketOwner=account.id)
    except botocore.exceptions.ClientError as error:
        if refused(error) not in {"404", "NoSuchBucket"}:
            raise
        # us-east-1 is the one region that must not be named.
        where = {} if account.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": account.region}}
        s3.create_bucket(Bucket=account.bucket, **where)
        say("bucket", f"{account.bucket} made")
    closed = {"BlockPublicAcls": True, "IgnorePublicAcls": True, "BlockPublicPolicy": True, "RestrictPublicBuckets": True}
    s3.put_public_access_block(Bucket=account.bucket, PublicAccessBlockConfiguration=closed)


def has(s3, bucket, key, size):
    try:
        return s3.head_object(Bucket=bucket, Key=key)["ContentLength"] == size
    except botocore.exceptions.ClientError as error:
        if refused(error) in {"404", "NoSuchKey"}:
            return False
        raise
