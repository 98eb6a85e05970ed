"""The database's migrations, by the function `migrate`, which is in the database's network. It waits for nobody's lock for long, and is safe to call again."""

import json

from ops import changes
from ops.account import Stop, say

# As long as a function may run at all.
SECONDS_MAX = 900
FIRST = "none"


def has_function(held):
    """Whether a stack with the parameters `held` has that function; an older one, or none, does not."""
    return bool(held) and "MigrateCodePrefix" in held


def look(account):
    """The migrations that the database has, also where it is ahead of the function's release."""
    return call(account, "list")["applied"]


def ask(account, what, **more):
    """What the function answers; refuses a database that is ahead of its release."""
    answer = call(account, what, **more)
    if answer["unknown"] is not None:
        raise Stop(f"the database has the migration {answer['unknown']}, which this release does not know; deploy the release that does")
    return answer


def call(account, what, **more):
    client = account.client("lambda", seconds=SECONDS_MAX + 10)
    done = client.invoke(FunctionName=f"{account.stack}-migrate-{account.region}", Payload=json.dumps({"do": what, **more}).encode())
    answer = json.loads(done["Payload"].read() or "null")
    if done.get("FunctionError") or not isinstance(answer, dict):
        raise Stop("the function migrate has failed; its log says why. If the 15 minutes of a function were over, the database may go on making an index: run this again")
    return answer


def bring(account, under):
    """Gives the function the code of the release at `under`, and leaves the other functions as they are."""
    text = changes.template(account, account.stack)
    changes.apply(account, account.stack, text, {"MigrateCodePrefix": under})


def expand(account, **more):
    """Applies what takes nothing away."""
    tell(ask(account, "apply", **more))


def contract(account):
    """Applies everything."""
    tell(ask(account, "apply", contract=True))


def tell(answer):
    names = {one["version"]: one["description"] for one in answer["known"]}
    say("database", "migrated: " + ", ".join(f"{version} {names[version]}" for version in answer["done"]) if answer["done"] else "migrated already")
    if answer.get("stopped"):
        raise Stop(answer["stopped"])
    if answer["is_operator_known"] is False:
        raise Stop("the operator's token that is kept was revoked; keep another, or delete its secret for infra/deploy to make one", 2)
    waiting = missing(names, answer["applied"])
    if waiting:
        say("database", f"{waiting[0]} {names[waiting[0]]} waits for infra/migrate --contract")


def missing(known, applied):
    """The numbers of `known` that are not among those that the database has."""
    return sorted(set(known) - {one["version"] for one in applied})


def in_the_way(applied, newest):
    """What a release whose newest migration is `newest` can't work with: whatever has taken something away since then."""
    return [one for one in applied if one["version"] > newest and one["is_contract"]]
