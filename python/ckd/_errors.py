"""Holds the errors. Their classes say what to do about them."""

from __future__ import annotations

from typing import Any

from . import _wire

_REASONS = {name.upper(): number for name, number in _wire.numbers("ErrorReason").items()}

# Codes of gRPC that are told apart here.
RESOURCE_EXHAUSTED, UNAVAILABLE, UNAUTHENTICATED = 8, 14, 16
_DEADLINE_EXCEEDED, _PERMISSION_DENIED = 4, 7

# These may go away by themselves: the daemon is stopping or overloaded.
_RETRYABLE = {"DRAINING", "OVERLOADED", "TOO_MANY_STREAMS"}


class Error(Exception):
    """Why there is no decision, or why a call failed. It is never a retain.

    message says what was found. reason is the daemon's, as in docs/errors.md, or empty. fields hold
    what was wrong, where it applies: row, pass, class, value, expected. advice says what to do.
    """

    advice = "Look into the daemon's log."

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        code: int = 0,
        fields: dict[str, str] | None = None,
        retry_delay: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.reason, self.code = message, reason, code
        self.fields = fields or {}
        self.retry_delay = retry_delay  # seconds that the daemon asks for before another attempt
        self.status = b""  # the daemon's google.rpc.Status; empty for an error that the client found

    @property
    def retryable(self) -> bool:
        """Whether the cause may go away by itself. Clients have then tried again already."""
        # Without a delay, the request exceeds the daemon's whole budget by itself.
        crowded = self.reason == "OUT_OF_MEMORY_BUDGET" and self.retry_delay is not None
        return self.gone or crowded or self.reason in _RETRYABLE

    @property
    def gone(self) -> bool:
        """Whether the daemon could not be reached, or went away."""
        return self.code == UNAVAILABLE

    def __str__(self) -> str:
        found = f"{self.message} ({self.reason})" if self.reason else self.message
        return f"{found}: {self.advice}" if self.advice else found


class InvalidInputError(Error):
    """The values, ids or contexts of an input are wrong. The message names the place."""

    advice = "correct what is sent; sending the same again does not help"


class RefusedError(Error):
    """The daemon does not answer such calls: an unknown model, other classes, a token that it refuses."""

    advice = "compare the client's settings with the daemon's policy and access file"


class OverloadedError(Error):
    """A limit of the daemon is reached."""

    advice = "send less at a time or later, or raise the daemon's limit"


class UnavailableError(Error):
    """The daemon could not be reached, went away, or did not answer in time."""

    advice = "show the input to a person or send it again; is the daemon up, and is this its address?"


class InternalError(Error):
    """The daemon has a fault, or daemon and client do not understand each other."""

    advice = "look into the daemon's log, and compare the versions of daemon and client"


class DaemonError(Error):
    """A daemon of this process did not start, or ended. The message says why."""

    advice = ""


class CommandError(Error):
    """A command of ckd failed, or an argument for it is wrong. The message says which."""

    advice = ""


def error_of(status: Any) -> Error:
    """Returns the error that a google.rpc.Status stands for."""
    info, retry, delay = _wire.ErrorInfo(), _wire.RetryInfo(), None
    for detail in status.details:
        if detail.Is(_wire.ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(_wire.RetryInfo.DESCRIPTOR):
            detail.Unpack(retry)
            delay = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    reason = info.reason if info.domain == "ckd.v1" else ""
    kind = _class_of(status.code, _REASONS.get(reason, 0))
    fields = dict(info.metadata)
    error = kind(status.message, reason=reason, code=status.code, fields=fields, retry_delay=delay)
    error.status = status.SerializeToString()
    return error


def _class_of(code: int, reason: int) -> type[Error]:
    """Returns the class of an error. The contract numbers its reasons by what they concern."""
    if code in (UNAVAILABLE, _DEADLINE_EXCEEDED):
        return UnavailableError
    if 0 < reason < 40:
        return InvalidInputError
    if reason < 60 and (reason or code in (UNAUTHENTICATED, _PERMISSION_DENIED)):
        return RefusedError
    return OverloadedError if 60 <= reason < 80 else InternalError


def late(seconds: float) -> Error:
    """Returns the error of an answer that did not come in time. It is not tried again."""
    return UnavailableError(f"the daemon did not answer within {seconds:g} s")


def ended(message: str) -> Error:
    """Returns the error of a broken contract."""
    return InternalError(message)
