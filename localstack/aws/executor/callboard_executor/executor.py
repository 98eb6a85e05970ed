"""One instance of a function: its `bootstrap` as a child process, and the Runtime API that it talks to."""

import json
import logging
import os
import signal
import subprocess
import tempfile
import time

from localstack.services.lambda_.invocation.lambda_models import InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import RuntimeExecutor

from callboard_executor.runtime_api import Event, RuntimeApi

LOG = logging.getLogger(__name__)
BEGIN_SECONDS = 15
LOOK_SECONDS = 0.2


class ProcessExecutor(RuntimeExecutor):
    def __init__(self, id, function_version):
        super().__init__(id, function_version)
        self.api = None
        self.process = None
        self.variables = {}
        self.log = tempfile.TemporaryFile("w+b", prefix="callboard-function-")

    def start(self, env_vars):
        self.variables = {name: str(value) for name, value in env_vars.items() if value is not None}
        self._begin()

    def stop(self):
        self._kill()
        if self.api:
            self.api.close()
            self.api = None

    def get_address(self):
        return "127.0.0.1"

    def get_endpoint_from_executor(self):
        return "127.0.0.1"

    def get_runtime_endpoint(self):
        return f"http://{self.api.address}" if self.api else ""

    def get_logs(self):
        return self._log_since(0)

    def invoke(self, payload):
        seconds = int(self.function_version.config.timeout)
        begin, written = time.time(), os.fstat(self.log.fileno()).st_size
        event = Event(
            payload["invoke-id"], payload["invoked-function-arn"], payload.get("trace-id") or "",
            payload["payload"].encode(), begin + seconds,
        )
        self.api.offer(event)
        self._wait(event, seconds)
        self.api.forget(event)
        took = (time.time() - begin) * 1000
        logs = f"START RequestId: {event.id} Version: $LATEST\n{self._log_since(written)}"
        logs += f"END RequestId: {event.id}\nREPORT RequestId: {event.id}\tDuration: {took:.2f} ms\n"
        return InvocationResult(request_id=event.id, payload=event.answer, is_error=event.failed, logs=logs)

    @classmethod
    def prepare_version(cls, function_version):
        if function_version.config.code:
            function_version.config.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version):
        if function_version.config.code:
            function_version.config.code.destroy_cached()

    def _wait(self, event, seconds):
        """Until it is answered, its time is over, or the process has ended. What is broken is begun anew, as Lambda does."""
        while not event.answered.wait(LOOK_SECONDS):
            if time.time() > event.deadline:
                self._fail(event, "Sandbox.Timedout", f"Task timed out after {seconds:.2f} seconds")
            elif self.process.poll() is not None:
                self._fail(event, "Runtime.ExitError", f"Runtime exited with status {self.process.returncode}")

    def _fail(self, event, kind, message):
        event.end(json.dumps({"errorType": kind, "errorMessage": f"RequestId: {event.id} Error: {message}"}).encode(), True)
        self.stop()
        try:
            self._begin()
        except RuntimeError as error:
            LOG.warning("%s: %s", self.function_version.id.function_name, error)

    def _begin(self):
        """Starts the process and waits until it asks for an event."""
        self.api = RuntimeApi()
        # A new version of the settings has the code of the old one, whose end has taken it away.
        self.function_version.config.code.prepare_for_execution()
        code = str(self.function_version.config.code.get_unzipped_code_location())
        bootstrap = os.path.join(code, "bootstrap")
        os.chmod(bootstrap, 0o755)
        own = {"AWS_LAMBDA_RUNTIME_API": self.api.address, "LAMBDA_TASK_ROOT": code, "PATH": "/usr/bin:/bin"}
        # A group of its own, so that all of it can be ended.
        self.process = subprocess.Popen(
            [bootstrap], cwd=code, env=self.variables | own, stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
        )
        end = time.time() + BEGIN_SECONDS
        while not self.api.asked.wait(LOOK_SECONDS):
            if self.process.poll() is not None:
                raise RuntimeError(f"bootstrap ended with {self.process.returncode}: {self._log_since(0)[-2000:]}")
            if time.time() > end:
                self._kill()
                raise RuntimeError(f"bootstrap asked for no event within {BEGIN_SECONDS} s")
        if self.api.broken:
            raise RuntimeError(self.api.broken)

    def _kill(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _log_since(self, offset):
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), max(size - offset, 0), offset).decode(errors="replace")
