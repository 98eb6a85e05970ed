"""The whole emulator: a Postgres, LocalStack, the door, and template.yaml deployed by infra/deploy itself."""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import zipfile
from contextlib import ExitStack

import boto3
from cfnlint.decode import cfn_yaml

import door
import emulator
import postgres

ROOT = pathlib.Path(__file__).resolve().parents[2]
REGION = "us-east-1"
STACK = "callboard"
# Any will do, and a real account's must not be taken by mistake.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
SECRETS = {"CALLBOARD_OPERATOR_TOKEN": "operator-token", "CALLBOARD_API_TOKEN": "api-token", "CALLBOARD_WORKER_TOKEN": "worker-token"}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Stack:
    """Started by entering it; whatever it has started is gone when it is left."""

    def __init__(self, directory, port=0):
        self.directory, self.port = directory, port
        self.emulator_port, self.postgres_port, self.password = free_port(), free_port(), secrets.token_hex(16)
        self.ends = ExitStack()

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.ends.close()
            raise
        return self

    def __exit__(self, *_):
        self.ends.close()

    def begin(self):
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Postgres runs as another user, below this directory.
        self.directory.chmod(0o711)
        log = self.ends.enter_context(open(self.directory / "log", "w"))
        os.chmod(log.fileno(), 0o600)
        database = postgres.start(self.directory / "postgres", self.postgres_port, self.password, log)
        self.ends.callback(postgres.stop, database)
        running = emulator.start(self.directory / "localstack", self.emulator_port, log)
        self.ends.callback(emulator.stop, running)
        self.processes = [database, running]
        template = cfn_yaml.load(str(ROOT / "infra/template.yaml"))
        names = {key: f"{STACK}-{key.lower()}-{REGION}" for key, one in template["Resources"].items() if one["Type"] == "AWS::Lambda::Function"}
        self.door = door.Door(door.routes(template), names, self.client("lambda"), self.emulator_port, self.port)
        self.ends.callback(self.door.close)

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.emulator_port}"

    @property
    def database_url(self):
        return f"postgres://callboard:{self.password}@127.0.0.1:{self.postgres_port}/postgres"

    def client(self, service):
        return boto3.client(
            service, region_name=REGION, endpoint_url=self.endpoint, aws_access_key_id="test", aws_secret_access_key="test"
        )

    def environment(self):
        """For infra's scripts."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return clean | CREDENTIALS | {"AWS_ENDPOINT_URL": self.endpoint, "TMPDIR": str(self.directory)}

    def script(self, name, *arguments):
        """The command of one of infra's scripts."""
        return [sys.executable, ROOT / "infra" / name, "--stack", STACK, *arguments]

    def deploy(self, zips, **how):
        command = self.script("deploy", "--zips", zips, "--database-url-file", "-", "--migrate", "--api-url", self.door.url)
        return subprocess.run(command, input=self.database_url, text=True, env=self.environment(), **how)

    def tokens(self):
        """The first tokens, by the names that callboard.env has for them."""
        manager = self.client("secretsmanager")
        return {name: manager.get_secret_value(SecretId=f"{STACK}-{word}-{REGION}")["SecretString"] for name, word in SECRETS.items()}

    def write_env(self):
        """Writes callboard.env, which only its owner can read."""
        variables = {"CALLBOARD_URL": self.door.url} | self.tokens() | {"DATABASE_URL": self.database_url, "AWS_ENDPOINT_URL": self.endpoint}
        path, new = self.directory / "callboard.env", self.directory / "callboard.env.new"
        new.unlink(missing_ok=True)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write("# Written at every start. Keep it to yourself: it holds tokens.\n")
            file.writelines(f"{name}={value}\n" for name, value in variables.items())
        new.rename(path)
        return path


def functions():
    return sorted(main.parents[1].name for main in ROOT.glob("functions/*/src/main.rs"))


def zips_of_debug(directory):
    """A zip of each function as target/debug has it: enough for an emulator on this machine, far too large for AWS."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in functions():
        binary = ROOT / "target/debug" / f"callboard-{name}"
        stamp, target = directory / f"{name}.json", directory / f"{name}.zip"
        now = json.dumps([binary.stat().st_size, binary.stat().st_mtime_ns])
        if not target.exists() or not stamp.exists() or stamp.read_text() != now:
            pack(binary, target)
            stamp.write_text(now)
    return directory


def pack(binary, target):
    """One executable file, `bootstrap`, with the same date always: the same code is the same zip."""
    entry = zipfile.ZipInfo("bootstrap", (1980, 1, 1, 0, 0, 0))
    entry.external_attr, entry.compress_type = 0o755 << 16, zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(target, "w") as made:
        made.writestr(entry, binary.read_bytes(), compresslevel=1)
