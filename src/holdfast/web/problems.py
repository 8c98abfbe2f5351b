"""Errors as HTTP says them: problem+json, with the status of each class. By type, never by text."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import (
    BlobMissing,
    Forbidden,
    HoldfastError,
    InvalidOperation,
    NotFound,
    PayloadTooLarge,
    Refused,
    ReservationTimeout,
    StoreDamaged,
    StoreError,
    TooManyRequests,
    Unauthorized,
    UsageError,
    VersionConflict,
)
from holdfast.stores.http.wire import PROBLEM_TYPE, Problem, encode
from holdfast.web.middleware.security_headers import safely

#: The first class an error belongs to counts.
_STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (NotFound, 404),
    (BlobMissing, 404),
    (VersionConflict, 412),
    (ReservationTimeout, 408),
    (Unauthorized, 401),
    (Forbidden, 403),
    (TooManyRequests, 429),
    (Refused, 409),
    (PayloadTooLarge, 413),
    (UsageError, 422),
    (StoreDamaged, 500),
    (StoreError, 503),
)


def status_of(error: HoldfastError) -> int:
    """Give the HTTP status of an error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def response_to(error: HoldfastError, status: int | None = None) -> Response:
    """Write an error as an answer, with the status of its class, or one that HTTP has for just this."""
    status = status or status_of(error)
    problem = Problem(
        type=f"urn:holdfast:{error.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
        facts={name: str(fact) for name, fact in error.facts.items()},
    )
    headers = {"Cache-Control": "no-store"}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in {429, 503}:
        headers["Retry-After"] = "1"
    return Response(encode(problem), status, headers, media_type=PROBLEM_TYPE)


def not_by(method: str, allowed: str) -> Response:
    """Say that something is not done by this method, and by which it is."""
    why = InvalidOperation(f"{method!r:.20} is not done here. Nothing was done.", hint=f"There are: {allowed}.")
    answer = response_to(why, HTTPStatus.METHOD_NOT_ALLOWED)
    answer.headers["Allow"] = allowed
    return answer


async def on_gone(_request: Request, _error: Exception) -> Response:
    """Answer nobody: whoever asked broke off in the middle. That is no error of ours, and not worth a line."""
    return Response(status_code=400)


async def on_stumble(_request: Request, _error: Exception) -> Response:
    """Answer what nobody foresaw, and say nothing of it: what it was is for the log.

    Outside of all that wraps the application: so its headers are set here, and without the coordinator's time a store
    of ours sends the same again for as long as it has patience.
    """
    answer = response_to(
        HoldfastError(
            "the coordinator stumbled over an error of its own. Whether anything was done is not known.",
            hint="Send the same again, with the same ids; its log says what happened.",
        )
    )
    answer.raw_headers = safely(answer.raw_headers)
    return answer


async def on_error(_request: Request, error: Exception) -> Response:
    """Answer what a handler raised."""
    assert isinstance(error, HoldfastError)
    return response_to(error)
