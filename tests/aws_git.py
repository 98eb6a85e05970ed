"""A git repository over https on loopback, with a certificate of its own: what the emulator's builds clone from."""

import http.server
import os
import pathlib
import ssl
import subprocess
import threading


class GitHttps:
    """Serves a new repository, `main` with one file, until it is closed."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.bare = self.directory / "repository.git"
        self.certificate = self.directory / "authority.pem"
        self._repository()
        self._make_certificate()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.directory / "key.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.server_port}"

    @property
    def url(self):
        return f"https://{self.address}/repository.git"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def _repository(self):
        work = self.directory / "work"
        (work).mkdir(parents=True)
        (work / "README").write_text("something to clone\n")
        git = ["git", "-C", work, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
        for arguments in [["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"], ["clone", "-q", "--bare", ".", self.bare]]:
            subprocess.run([*git, *arguments], check=True)

    def _make_certificate(self):
        names = "subjectAltName=IP:127.0.0.1"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", names]
        command += ["-keyout", self.directory / "key.pem", "-out", self.certificate]
        subprocess.run(command, check=True, capture_output=True)

    def _handler(git):
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_args):
                pass

            def answer(self):
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                variables = {
                    "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(git.directory), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                    "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                    "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
                    "GIT_CONFIG_VALUE_0": "*",
                }
                said = subprocess.run(["git", "http-backend"], input=body, env=variables, capture_output=True).stdout
                head, _, rest = said.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
                self.send_response(int(headers.pop("Status", "200").split()[0]))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(rest)))
                self.end_headers()
                self.wfile.write(rest)

            do_GET = do_POST = answer

        return Handler
