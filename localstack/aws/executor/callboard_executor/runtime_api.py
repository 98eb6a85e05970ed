"""Lambda's Runtime API on loopback, for one instance of a function: it asks for events, and answers them.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import queue
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "/2018-06-01/runtime"


@dataclass
class Event:
    """What a function is called with, and in the end its answer."""

    id: str
    arn: str
    trace: str
    payload: bytes
    deadline: float
    answer: bytes = b""
    failed: bool = False
    answered: threading.Event = field(default_factory=threading.Event)

    def end(self, answer, failed):
        """The first answer counts: one that comes after a timeout is nobody's."""
        if not self.answered.is_set():
            self.answer, self.failed = answer, failed
            self.answered.set()

    def headers(self):
        return {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": self.id,
            "Lambda-Runtime-Deadline-Ms": str(int(self.deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": self.arn,
            "Lambda-Runtime-Trace-Id": self.trace,
        }


class RuntimeApi:
    """The server. `asked` is set once the function has asked for its first event: it has begun."""

    def __init__(self):
        self.asked = threading.Event()
        self.broken = None
        self._events = queue.Queue()
        self._running = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="runtime-api", daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self._server.server_port}"

    def offer(self, event):
        self._running[event.id] = event
        self._events.put(event)

    def forget(self, event):
        self._running.pop(event.id, None)

    def close(self):
        self._events.put(None)
        self._server.shutdown()
        self._server.server_close()

    def _next(self):
        self.asked.set()
        while True:
            event = self._events.get()
            # One that has timed out meanwhile is no longer waited for.
            if event is None or time.time() < event.deadline:
                return event

    def _end(self, path, body):
        match path.removeprefix(PREFIX).strip("/").split("/"):
            case ["init", "error"]:
                self.broken = body.decode(errors="replace")
                self.asked.set()
            case ["invocation", id, "response" | "error" as how] if id in self._running:
                self._running[id].end(body, how == "error")
            case _:
                return 404
        return 202

    def _handler(api):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args):
                pass

            def do_GET(self):
                event = api._next()
                if event is None:
                    self.close_connection = True
                else:
                    self._answer(200, event.payload, event.headers())

            def do_POST(self):
                body = self._body()
                self._answer(api._end(self.path, body), b"{}", {"Content-Type": "application/json"})

            def _answer(self, status, body, headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _body(self):
                if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return body

        return Handler
