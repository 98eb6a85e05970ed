"""A release in a bucket: the functions' zips, their template, and how far it migrates. Its prefix is made of what is in it: the same release is
never uploaded twice, another one never overwrites."""

import hashlib
import json
import pathlib

import botocore.exceptions

from ops.account import Stop, refused, say

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUNCTIONS = sorted(main.parents[1].name for main in ROOT.glob("functions/*/src/main.rs"))
TEMPLATE = ROOT / "infra/template.yaml"


def migrations():
    """(number, name) of each of this release's, in their order."""
    names = (path.stem.partition("_") for path in ROOT.glob("migrations/*.sql"))
    return sorted((int(number), name.replace("_", " ")) for number, _, name in names)


def release(directory):
    """The files of this release, by name."""
    found = {f"{name}.zip": pathlib.Path(directory) / f"{name}.zip" for name in FUNCTIONS}
    missing = [path.stem for path in found.values() if not path.is_file()]
    if missing:
        raise Stop(f"{directory} has no zip of {', '.join(missing)}; make them with infra/build, or name their directory with --zips", 2)
    files = {name: path.read_bytes() for name, path in found.items()}
    return files | {"template.yaml": TEMPLATE.read_bytes(), "release.json": json.dumps({"migration": migrations()[-1][0]}).encode()}


def prefix(files):
    """Where in the bucket this release belongs."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return f"code/{digest.hexdigest()[:16]}/"


def parameters(account, under, held):
    """The template's, for the release at `under` where the stack has `held`, or is not there. What ran before is what infra/rollback goes back to."""
    before = (held or {}).get("CodePrefix", under)
    previous = {} if before == under else {"PreviousCodePrefix": before}
    return {"CodeBucket": account.bucket, "CodePrefix": under, "MigrateCodePrefix": under} | previous


def upload(account, files):
    """Makes the bucket if need be, and uploads what it lacks."""
    s3 = account.client("s3")
    make_bucket(account, s3)
    under = prefix(files)
    new = [name for name, content in files.items() if not has(s3, account.bucket, under + name, len(content))]
    for name in new:
        s3.put_object(Bucket=account.bucket, Key=under + name, Body=files[name])
    say("code", f"{len(new)} of {len(files)} files uploaded to s3://{account.bucket}/{under}")
    return under


def read(account, under, name):
    """A file of a release that is in the bucket, as text."""
    try:
        return account.client("s3").get_object(Bucket=account.bucket, Key=under + name)["Body"].read().decode()
    except botocore.exceptions.ClientError as error:
        if refused(error) in {"404", "NoSuchKey", "NoSuchBucket"}:
            raise Stop(f"s3://{account.bucket}/{under}{name} is not there any more; deploy that release anew with infra/deploy", 2) from error
        raise


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
