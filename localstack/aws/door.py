"""In the place of API Gateway, which LocalStack's community edition lacks: one address, and behind it each function's URL.

Routes are those of template.yaml. Function URLs are made here, by a call to the emulator and never by the template: they ask for no
IAM authorization, which an account's functions must.
"""

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import botocore.exceptions

# Not to be passed on: they are about one connection.
HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "host"}


def routes(template):
    """(method, pattern of the path, function) of each route, the more literal before what has more placeholders."""
    resources = template["Resources"]
    target = lambda integration: resources[integration]["Properties"]["IntegrationUri"]["Fn::GetAtt"][0]
    found = []
    for resource in resources.values():
        if resource["Type"] == "AWS::ApiGatewayV2::Route":
            method, path = resource["Properties"]["RouteKey"].split(" ")
            integration = re.search(r"\$\{(\w+)\}", resource["Properties"]["Target"]["Fn::Sub"])[1]
            found.append((method, re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))), target(integration)))
    return sorted(found, key=lambda route: route[1].pattern.count("[^/]+"))


def function_of(found, method, path):
    """The function that a call goes to; None if there is no such route."""
    for verb, pattern, function in found:
        if verb == method and pattern.fullmatch(path):
            return function
    return None


class Door:
    def __init__(self, found, functions, client, emulator_port, port):
        """`functions`: the real name of each of the template's functions."""
        self.routes, self.functions, self.client, self.emulator_port = found, functions, client, emulator_port
        self.hosts, self.lock = {}, threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, name="door", daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def host(self, function):
        """The host name by which the emulator knows the function's URL."""
        with self.lock:
            if function not in self.hosts:
                self.hosts[function] = urlsplit(self._function_url(self.functions[function])).netloc
            return self.hosts[function]

    def _function_url(self, name):
        try:
            return self.client.get_function_url_config(FunctionName=name)["FunctionUrl"]
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
            return self.client.create_function_url_config(FunctionName=name, AuthType="NONE")["FunctionUrl"]

    def forward(self, method, target, headers, body):
        """(status, headers, body) of the function's answer."""
        function = function_of(self.routes, method, urlsplit(target).path)
        if function is None:
            return 404, [("Content-Type", "application/json")], b'{"message":"Not Found"}'
        try:
            host = self.host(function)
        except botocore.exceptions.ClientError:
            return 503, [("Content-Type", "application/json")], b'{"message":"Service Unavailable"}'
        connection = http.client.HTTPConnection("127.0.0.1", self.emulator_port, timeout=35)
        try:
            kept = {name: value for name, value in headers if name.lower() not in HOP}
            connection.request(method, target, body, kept | {"Host": host})
            answer = connection.getresponse()
            return answer.status, [(n, v) for n, v in answer.getheaders() if n.lower() not in HOP], answer.read()
        finally:
            connection.close()

    def _handler(door):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    status, headers, body = door.forward(self.command, self.path, self.headers.items(), body)
                except OSError:
                    status, headers, body = 503, [], b""
                self.send_response_only(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        return Handler
