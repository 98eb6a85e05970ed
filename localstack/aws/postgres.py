"""A Postgres of the emulator's own: gone with it, as LocalStack's own state is."""

import getpass
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
BEGIN_SECONDS = 30


def binaries():
    found = subprocess.run([HERE.parent / "preflight", "postgres-bin"], capture_output=True, text=True)
    if found.returncode != 0:
        raise RuntimeError("no Postgres server binaries found; ./localstack/preflight says how to get them")
    return pathlib.Path(found.stdout.strip())


def user():
    """Postgres refuses root."""
    if os.geteuid() != 0:
        return pwd.getpwnam(getpass.getuser())
    for name in ["postgres", "nobody"]:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise RuntimeError("there is no user postgres or nobody that Postgres could run as")


def start(directory, port, password, log):
    """Starts a new server; the process, once it answers."""
    bin, who = binaries(), user()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700)
    secret = directory / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    change = []
    if os.geteuid() == 0:
        change = ["setpriv", "--reuid", str(who.pw_uid), "--regid", str(who.pw_gid), "--clear-groups"]
        for path in [directory, secret]:
            os.chown(path, who.pw_uid, who.pw_gid)
    data = directory / "data"
    initdb = [*change, bin / "initdb", "-D", data, "-U", "callboard", "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--no-sync"]
    subprocess.run(initdb, check=True, stdout=log, stderr=log, cwd=directory)
    secret.unlink()
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": directory, "fsync": "off"}
    flags = [flag for name, value in settings.items() for flag in ["-c", f"{name}={value}"]]
    # SIGINT is its fast shutdown.
    command = [*(change or ["setpriv"]), "--pdeathsig", "INT", bin / "postgres", "-D", data, *flags]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, start_new_session=True)
    end = time.monotonic() + BEGIN_SECONDS
    while subprocess.run([bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode != 0:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("Postgres does not start; its log says why")
        time.sleep(0.1)
    return process


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
