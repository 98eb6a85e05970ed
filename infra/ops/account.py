"""The account that a script works in, its options that all scripts share, and how it says what went wrong."""

import argparse
import os
import sys
from dataclasses import dataclass
from functools import cached_property

try:
    import boto3
    import botocore.config
    import botocore.exceptions
except ImportError:
    sys.exit(print("boto3 is not installed for this Python; mend it with: python3 -m pip install boto3", file=sys.stderr) or 69)

EXITS = """Exit codes: 0 done, 1 AWS or the board refused, 2 what was asked can't be, 3 it waits for you and says for what,
69 something is not installed."""


class Stop(Exception):
    """Why a script ends early: for people, with how to mend it."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def say(step, message):
    """One line a step, at once: whoever kills the script knows how far it came."""
    print(f"{step}: {message}", flush=True)


def options(script, doc, examples):
    parser = argparse.ArgumentParser(
        prog=f"infra/{script}", description=doc, epilog=f"Examples:\n{examples}\n\n{EXITS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stack", default="callboard", metavar="NAME", help="the control plane's stack (default: callboard)")
    parser.add_argument("--region", help="else that of AWS_REGION or of your profile")
    parser.add_argument("--endpoint-url", metavar="URL", help="an emulator's; else AWS_ENDPOINT_URL, else AWS itself")
    return parser


@dataclass
class Account:
    """Clients for one account and region, and the names of what is ours there: each carries stack and region."""

    stack: str
    region: str
    endpoint: str | None = None

    @classmethod
    def of(cls, asked):
        region = asked.region or os.environ.get("AWS_REGION") or boto3.Session().region_name
        if not region:
            raise Stop("no region is set; give --region, such as --region eu-central-1", 2)
        return cls(asked.stack, region, asked.endpoint_url)

    def client(self, service):
        again = botocore.config.Config(retries={"mode": "standard", "max_attempts": 5}, s3={"addressing_style": "path"} if self.is_emulator else {})
        return boto3.client(service, region_name=self.region, endpoint_url=self.endpoint, config=again)

    @property
    def is_emulator(self):
        return bool(self.endpoint or os.environ.get("AWS_ENDPOINT_URL"))

    @cached_property
    def id(self):
        return self.client("sts").get_caller_identity()["Account"]

    @property
    def bucket(self):
        return f"{self.stack}-code-{self.id}-{self.region}"

    @property
    def database_stack(self):
        return f"{self.stack}-database"

    @property
    def workers_stack(self):
        return f"{self.stack}-workers"

    def secret(self, word):
        return f"{self.stack}-{word}-{self.region}"


def refused(error):
    """The code of an error of AWS's, such as `NoSuchBucket`."""
    return error.response.get("Error", {}).get("Code", "")


def run(script):
    """Runs `script`, and tells a failure in one line."""
    try:
        sys.exit(script())
    except Stop as stop:
        print(f"{os.path.basename(sys.argv[0])}: {stop}", file=sys.stderr)
        sys.exit(stop.code)
    except botocore.exceptions.NoCredentialsError:
        print("AWS has no credentials here; log in (aws sso login), or set AWS_PROFILE", file=sys.stderr)
        sys.exit(1)
    except botocore.exceptions.BotoCoreError as error:
        print(f"AWS can't be asked: {error}", file=sys.stderr)
        sys.exit(1)
    except botocore.exceptions.ClientError as error:
        # Its message names what was refused, and never holds what was sent.
        print(f"AWS refused {error.operation_name}: {refused(error)}: {error.response['Error'].get('Message', '')}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped; run it again to go on", file=sys.stderr)
        sys.exit(130)
