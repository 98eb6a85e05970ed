"""What is secret, in Secrets Manager: it goes there by the SDK, never through an argument or a parameter.

On this machine's disk only the operator's first token is for a moment, in the file that `callboard migrate` writes for its owner alone.
"""

import json
import secrets as dice

import botocore.exceptions

from ops.account import refused, say

# Functions connect when they are first called: until there is a database, this leads nowhere (.invalid never resolves).
NOWHERE = "postgres://nobody@database.invalid/callboard?sslmode=require"

WORDS = ["settings", "operator-token", "worker-token", "api-token"]


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


def wanted(held, database_url, key):
    """The settings to keep: what is given, else what is held, else what leads nowhere. `key` counts only where there is none."""
    held = json.loads(held) if held else {}
    # Another key would make every sealed secret unreadable.
    return json.dumps({
        "database_url": database_url or held.get("database_url", NOWHERE),
        "secrets_key": held.get("secrets_key", key),
    })


def settle(account, database_url):
    """Writes the settings that functions read. Their version's id, and whether there is a database."""
    for word in WORDS:
        keep(account, word)
    held, _ = read(account, "settings")
    value = wanted(held, database_url, f"1:{dice.token_hex(32)}")
    return write(account, "settings", value), json.loads(value)["database_url"] != NOWHERE
