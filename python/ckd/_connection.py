"""Says where the daemon is and how the connection is secured, for both clients.

Certificates, keys and tokens are read again when their files change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import pathlib
import ssl
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Union

import grpc

from . import _wire
from ._errors import Error, error_of

Path = Union[str, "os.PathLike[str]"]

# How grpc reconnects. At most 0.6 s pass between two attempts, so a restarted daemon is found within
# a second, however long it was away.
CONNECTING = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),  # more or less by a fifth
    ("grpc.min_reconnect_backoff_ms", 5_000),  # bounds one attempt, despite its name
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
]

# Pings detect a daemon that is connected but no longer answers. It permits one every ten seconds.
_PINGS = [
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]

_MOST_TOKEN_BYTES = 16 << 10  # no token is longer, and a file that was named by mistake often is

Stamp = tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class Target:
    """Where the daemon is, and how the connection is secured."""

    address: str
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    tls: bool = False
    token_file: Path | None = None
    insecure: bool = False
    balancing: bool = False

    @property
    def secure(self) -> bool:
        """Whether TLS is used."""
        return self.tls or bool(self.ca or self.cert)

    @property
    def local(self) -> bool:
        """Whether the text of the address names this machine."""
        return self.is_unix or _is_loopback(self.address)

    @property
    def is_unix(self) -> bool:
        return self.address.startswith(("unix:", "unix-abstract:"))

    def check(self) -> None:
        """Raises ValueError for settings that exclude each other, or that would expose passes."""
        check_socket(self.address)
        if bool(self.cert) != bool(self.key):
            raise ValueError("a certificate without its key, or a key alone, expected cert and key or neither")
        if self.insecure and self.secure:
            raise ValueError("insecure beside TLS, expected one of them")
        if not (self.secure or self.insecure or self.local):
            raise ValueError(
                f"{self.address}: plaintext is for unix sockets and loopback addresses, expected ca=... or"
                " tls=True, or insecure=True where the network is trusted"
            )

    def files(self) -> list[Path]:
        """Returns the files of the certificates and the key."""
        return [path for path in (self.ca, self.cert, self.key) if path]

    def options(self) -> list[tuple[str, Any]]:
        """Returns grpc's options for a channel."""
        options: list[tuple[str, Any]] = [("grpc.max_receive_message_length", 64 << 20), *CONNECTING, *_PINGS]
        if self.local or not self.secure:
            options.append(("grpc.enable_http_proxy", 0))  # the proxy of the environment would read ids and passes
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        if self.balancing:
            # grpc asks for health without credentials, so daemons that want a token refuse it: then
            # replicas that cannot be reached are left out, and those that stop refuse by DRAINING.
            health = "" if self.token_file else ', "healthCheckConfig": {"serviceName": ""}'
            config = '{"loadBalancingConfig": [{"round_robin": {}}]%s}' % health
            options += [("grpc.service_config", config), ("grpc.use_local_subchannel_pool", 1)]
        return options

    def credentials(self, files: tuple[bytes | None, bytes | None, bytes | None]) -> Any:
        """Returns grpc's credentials of what was read; None for plaintext anywhere."""
        if self.insecure:
            return None
        if not self.secure:
            # These check each connection, so a local name that leads to another machine is refused.
            kind = grpc.LocalConnectionType
            return grpc.local_channel_credentials(kind.UDS if self.is_unix else kind.LOCAL_TCP)
        return grpc.ssl_channel_credentials(*files)

    def read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Returns the authorities, the key and the certificate, each as PEM or None.

        Raises OSError or ssl.SSLError if the files cannot be read or do not fit each other.
        """
        if not self.secure:
            return None, None, None
        context = ssl.create_default_context()
        roots = _read(self.ca or ssl.get_default_verify_paths().cafile)
        if self.ca and roots is not None:
            context.load_verify_locations(cadata=roots.decode("ascii", "replace"))
        if self.cert and self.key:
            context.load_cert_chain(self.cert, self.key)
        return roots, _read(self.key), _read(self.cert)


class Connection:
    """Hands out the channel to use, and the metadata of a call.

    make makes a channel of a target and credentials; forks says whether grpc supports forks of such
    channels. The first call or stream makes it: a client that is made before a fork, and used only
    after it, works. When the files of TLS change, later calls and streams get a new channel; those
    that are under way keep theirs. If files cannot be read again, for example while they are being
    replaced, the last channel stays in use.
    """

    def __init__(self, target: Target, make: Callable[[Target, Any], Any], forks: bool) -> None:
        target.check()
        self._read = target.read()
        self.target = target
        self.token = Token(target.token_file) if target.token_file else None
        self._make: Callable[[Target, Any], Any] = lambda *settings: left_to_parent(make(*settings))
        self._lock = threading.Lock()
        self._stamp = _stamp_of(target.files())
        self._forks = forks
        self._channel: Any = None
        self._process = 0  # that made the channel

    def channel(self) -> Any:
        """Returns the channel for a new call or stream."""
        self.owned()
        if self._channel is None:
            with self._lock:
                if self._channel is None:
                    _check_fork(self._forks)
                    self._process = os.getpid()
                    self._channel = self._make(self.target, self.target.credentials(self._read))
        files = self.target.files()
        if files:
            with self._lock, contextlib.suppress(OSError, ssl.SSLError):
                stamp = _stamp_of(files)
                if stamp != self._stamp:
                    self._channel = self._make(self.target, self.target.credentials(self.target.read()))
                    self._stamp = stamp
        return self._channel

    def owned(self) -> None:
        """Raises RuntimeError in a process that was forked from the client's, where grpc waits for ever."""
        if self._process not in (0, os.getpid()):
            raise RuntimeError(f"this client was used before a fork, by process {self._process}: {_AFTER_FORK}")

    @property
    def daemon(self) -> Any:
        """The ckd.Daemon of this process that serves here, or None."""
        return daemons.get(self.target.address)

    def close(self) -> Any:
        """Closes the channel, and returns what the channel's close returns. A fork closes nothing."""
        return self._channel.close() if self._process == os.getpid() else None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the header that carries the token, if there is one."""
        return () if self.token is None else (("authorization", "Bearer " + self.token.current()),)


# grpc reads this as it is imported. It is off by default, since a fork then waits for every call.
_FORKS = os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "").lower() in ("1", "true", "yes", "on")
_AFTER_FORK = (
    "grpc does not survive that; use the first client, and its sessions, after the fork (gunicorn's post_fork, the"
    " initializer of a pool), or start processes by spawn (GRPC_ENABLE_FORK_SUPPORT=1, set before Python starts, permits"
    " new clients after a fork that happens while no call is under way, but not beside ckd.aio)"
)
# The ckd.Daemon of this process at each address. Each has ended, an Error once it has ended for good.
daemons: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_alive: weakref.WeakSet[Any] = weakref.WeakSet()  # channels and calls
_inherited: list[Any] = []  # those of before the fork: collecting one here would break its parent's connection
_unforkable: set[int] = set()  # processes that made channels whose forks grpc does not support


def left_to_parent(made: Any) -> Any:
    """Returns a channel or a call, which no forked process will collect."""
    _alive.add(made)
    return made


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _inherited.extend(_alive))


def _check_fork(forks: bool) -> None:
    """Raises RuntimeError in a process whose parent used grpc before the fork.

    Both share grpc's epoll set: a channel made here would hang, and crash the parent.
    """
    if _unforkable - {os.getpid()}:
        raise RuntimeError(f"process {min(_unforkable)} used a client before this process was forked from it: {_AFTER_FORK}")
    if not (forks and _FORKS):
        _unforkable.add(os.getpid())


class Token:
    """A bearer token in a file. If the file cannot be read again, the last token stays in use."""

    def __init__(self, path: Path) -> None:
        self._path, self._token = path, self._read(path)

    def current(self) -> str:
        """Returns the token in the file."""
        with contextlib.suppress(OSError, ValueError):
            self._token = self._read(self._path)
        return self._token

    @staticmethod
    def _read(path: Path) -> str:
        with open(path, "rb") as file:
            text = file.read(_MOST_TOKEN_BYTES + 1)
        token = text.decode("ascii", "replace").strip()
        if len(text) > _MOST_TOKEN_BYTES or not token or any(not "!" <= character <= "~" for character in token):
            raise ValueError(f"token_file: {os.fspath(path)}: expected one token of visible ASCII characters")
        return token


@contextlib.contextmanager
def rpc_errors() -> Iterator[None]:
    """Turns grpc's errors into those of this package."""
    try:
        yield
    except grpc.RpcError as error:
        raise error_of_call(error) from None


def error_of_call(error: Any) -> Error:
    """Returns an error of grpc as one of this package."""
    status = _wire.Status()
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            status.ParseFromString(value)
    status.code, status.message = error.code().value[0], error.details() or ""
    return error_of(status)


_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107  # of the path of a unix socket, in every kernel


def check_socket(address: str) -> None:
    """Raises ValueError for a unix socket whose path is too long for the system."""
    scheme, _, path = address.partition(":")
    path = path[2:] if path.startswith("//") else path
    length = len(os.fsencode(path))
    if scheme in ("unix", "unix-abstract") and length > _SOCKET_BYTES:
        raise ValueError(f"{address}: the path of the socket has {length} bytes, expected at most {_SOCKET_BYTES}")


def _is_loopback(address: str) -> bool:
    for scheme in ("dns:", "passthrough:"):
        if address.startswith(scheme):
            address = address[len(scheme) :].rpartition("/")[2]
    host = address.rsplit(":", 1)[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path | None) -> bytes | None:
    return pathlib.Path(path).read_bytes() if path else None


def _stamp_of(paths: list[Path]) -> Stamp:
    """Returns what changes when files do. A missing file raises OSError."""
    infos = [os.stat(path) for path in paths]
    return tuple((info.st_ino, info.st_size, info.st_mtime_ns) for info in infos)
