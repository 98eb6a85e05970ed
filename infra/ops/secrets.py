"""What is secret, in Secrets Manager: it goes there by the SDK, never through an argument, a parameter or a file."""

import json
import secrets as dice

import botocore.exceptions

from ops.account import refused, say

# Functions connect when they are first called: until there is a database, this leads nowhere (.invalid never resolves).
NOWHERE = {"url": "postgres://database.invalid/callboard?sslmode=require", "username": "nobody", "password": "none"}

WORDS = ["database", "key", "operator-token", "worker-token", "api-token"]


def read(account, word):
    """The secret's value and version; (None, None) if there is none, or it is to be deleted."""
    try:
        value = account.client("secretsmanager").get_secret_value(SecretId=account.secret(word))
    except botocore.exceptions.ClientError as error:
        if refused(error) in {"ResourceNotFoundException", "InvalidRequestException"}:
            return None, None
        raise
    return value["SecretString"], value["VersionId"]


def arn(account, word):
    return account.client("secretsmanager").describe_secret(SecretId=account.secret(word))["ARN"]


def arn_to_be(account, word):
    """The secret's ARN; that of one which is not there yet lacks what AWS adds at the end."""
    name = account.secret(word)
    there = exists(account.client("secretsmanager"), name)
    return arn(account, word) if there else f"arn:aws:secretsmanager:{account.region}:{account.id}:secret:{name}"


def keep(account, word):
    """Takes back that the secret is to be deleted."""
    manager, name = account.client("secretsmanager"), account.secret(word)
    if exists(manager, name) and "DeletedDate" in manager.describe_secret(SecretId=name):
        manager.restore_secret(SecretId=name)
        say(word, f"{name} was to be deleted, and is kept")


def write(account, word, value):
    """Keeps `value`, as a new version only if it is another one; the version's id."""
    name = account.secret(word)
    held, version = read(account, word)
    if held == value:
        say(word, f"{name} is as it was")
        return version
    manager = account.client("secretsmanager")
    if version is None and not exists(manager, name):
        version = manager.create_secret(Name=name, Description=f"Callboard {account.stack}: {word}", SecretString=value)["VersionId"]
        say(word, f"{name} made")
    else:
        version = manager.put_secret_value(SecretId=name, SecretString=value)["VersionId"]
        say(word, f"{name} has a new version")
    return version


def exists(manager, name):
    """A secret without a value, which a killed script may leave, exists too."""
    try:
        manager.describe_secret(SecretId=name)
    except botocore.exceptions.ClientError as error:
        if refused(error) == "ResourceNotFoundException":
            return False
        raise
    return True


def wanted(held, given):
    """The database's secret: what is given, else what is held, else what leads nowhere. The address is in it too, so that it changes with its login."""
    return json.dumps(given) if given else held or json.dumps(NOWHERE)


def settle(account, given):
    """Keeps what the functions read; what the database's secret holds."""
    for word in WORDS:
        keep(account, word)
    # Another key would make every sealed secret unreadable.
    write(account, "key", read(account, "key")[0] or f"1:{dice.token_hex(32)}")
    value = wanted(read(account, "database")[0], given)
    write(account, "database", value)
    return json.loads(value)
