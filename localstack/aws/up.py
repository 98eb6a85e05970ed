"""`./localstack/up --aws`: Callboard on LocalStack until Ctrl-C. Nothing stays but callboard.env, the zips and the log."""

import argparse
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time

import stack

DEFAULT = pathlib.Path("/var/lib/callboard-aws") if os.geteuid() == 0 else pathlib.Path.home() / ".local/share/callboard-aws"


def asked():
    parser = argparse.ArgumentParser(prog="./localstack/up --aws", add_help=False)
    parser.add_argument("--port", type=int, default=7070)
    parser.add_argument("--dir", type=pathlib.Path, default=DEFAULT)
    parser.add_argument("--zips", type=pathlib.Path)
    return parser.parse_args()


def stop(*_):
    raise KeyboardInterrupt


def lock(directory):
    """Held until this process ends."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = open(directory / "lock", "w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(print(f"{directory} is in use by another ./localstack/up --aws; name another with --dir", file=sys.stderr) or 2)
    return held


def run(ask):
    zips = ask.zips or stack.zips_of_debug(ask.dir / "zips")
    with stack.Stack(ask.dir, ask.port) as running:
        print(f"LocalStack is at {running.endpoint}; deploying infra/template.yaml", flush=True)
        if running.deploy(zips).returncode != 0:
            print(f"infra/deploy has failed; the log is {ask.dir}/log", file=sys.stderr)
            return 1
        file = running.write_env()
        print(f"\nThe board is at {running.door.url}, the emulated AWS at {running.endpoint}\nTokens: {file}\nCtrl-C stops it", flush=True)
        while all(process.poll() is None for process in running.processes):
            time.sleep(0.5)
        print(f"its Postgres or LocalStack has ended; the log is {ask.dir}/log", file=sys.stderr)
        return 1


def main():
    ask = asked()
    ask.dir = ask.dir.absolute()
    held = lock(ask.dir)
    # Python leaves SIGINT alone where a shell has started it in the background.
    for number in [signal.SIGINT, signal.SIGTERM]:
        signal.signal(number, stop)
    try:
        code = run(ask)
    except KeyboardInterrupt:
        code = 0
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"{error}\nThe log is {ask.dir}/log", file=sys.stderr)
        code = 1
    held.close()
    sys.exit(code)


main()
