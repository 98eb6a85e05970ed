"""LocalStack as a process of this machine, on loopback, with everything that it writes in one directory."""

import http.client
import os
import signal
import subprocess
import sys
import time

BEGIN_SECONDS = 120


def environment(directory, port):
    """What makes LocalStack's community edition run without a container engine, a licence and the network."""
    # Function URLs are below LOCALSTACK_HOST, and functions can't read a host name that ends in a number.
    # Its default server binds every interface; this one heeds GATEWAY_LISTEN.
    own = {
        "GATEWAY_LISTEN": f"127.0.0.1:{port}", "GATEWAY_SERVER": "hypercorn", "LOCALSTACK_HOST": f"localhost:{port}",
        "LAMBDA_RUNTIME_EXECUTOR": "process", "LAMBDA_SYNCHRONOUS_CREATE": "1",
        # An idle instance is kept for as long as Lambda keeps one, and not for ten minutes of a test's.
        "LAMBDA_KEEPALIVE_MS": "300000", "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": "1",
        "SQS_ENDPOINT_STRATEGY": "path", "DNS_ADDRESS": "0", "SKIP_SSL_CERT_DOWNLOAD": "1", "DISABLE_EVENTS": "1",
        "FILESYSTEM_ROOT": str(directory), "LOCALSTACK_VOLUME_DIR": str(directory), "HOME": str(directory), "TMPDIR": str(directory / "tmp"),
    }
    (directory / "tmp").mkdir(parents=True, exist_ok=True)
    # Nothing of the caller's account gets in.
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | own


def start(directory, port, log):
    """Starts it, and waits until it answers."""
    # `localstack start --host` is broken in 4.14. It ends with us, however we end.
    command = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "localstack.runtime.main"]
    # A session of its own: Ctrl-C is ours to pass on.
    process = subprocess.Popen(
        command, env=environment(directory, port), cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    end = time.monotonic() + BEGIN_SECONDS
    while not answers(port):
        if process.poll() is not None:
            raise RuntimeError(f"LocalStack ended with {process.returncode}; its log says why")
        if time.monotonic() > end:
            stop(process)
            raise RuntimeError(f"LocalStack does not answer within {BEGIN_SECONDS} s; its log says why")
        time.sleep(0.3)
    return process


def answers(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("GET", "/_localstack/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def stop(process):
    """Asks it to end, so that it ends its functions; what is left after a while is killed."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
