"""An HTTP server on loopback that remembers who connected and what was asked, with TLS if it is given a name."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = tuple[int, dict[str, str], bytes]
OK: Answer = (200, {"Content-Type": "application/json"}, b'{"ok": true}')


class Asked:
    """One request that arrived."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.method = handler.command
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body = handler.rfile.read(int(self.headers.get("content-length", 0)))


class Server:
    """`answer` decides what is said; `connections` counts those that were opened."""

    def __init__(self, host: str, tls: ssl.SSLContext | None) -> None:
        self.answer: Callable[[Asked], Answer] = lambda _: OK
        self.asked: list[Asked] = []
        self.connections = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_GET(self) -> None:
                asked = Asked(self)
                outer.asked.append(asked)
                status, headers, body = outer.answer(asked)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        class Listening(ThreadingHTTPServer):
            address_family = 10 if ":" in host else 2
            daemon_threads = True

            def get_request(self) -> Any:
                connection, address = super().get_request()
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                return connection, address

            def handle_error(self, request: object, client_address: object) -> None:
                """Clients that refuse our certificate are what some tests are about."""

        self.http = Listening((host, 0), Handler)
        self.port: int = self.http.server_address[1]

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]


@contextmanager
def serving(host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server until the block ends."""
    server = Server(host, tls)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def redirect(to: str, status: int = 302) -> Callable[[Asked], Answer]:
    """Always sends the client somewhere else."""
    return lambda _: (status, {"Location": to}, b"")


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._signed(self._name, self._key.public_key(), authority=True, names=[])
        self.file = folder / "authority.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str) -> ssl.SSLContext:
        """The TLS of a server with these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        file = self._folder / f"{names[0]}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + self._signed(subject, key.public_key(), authority=False, names=list(names)).public_bytes(
                serialization.Encoding.PEM
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    @property
    def client(self) -> ssl.SSLContext:
        """The TLS of a client that believes this authority alone."""
        return ssl.create_default_context(cafile=str(self.file))

    def _signed(self, subject: x509.Name, key: Any, *, authority: bool, names: list[str]) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(name) for name in names]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
