"""Who may ask a coordinator for what: roles, and the access tokens they are given by. Only hashes are kept."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.times import Timestamp


class Role(StrEnum):
    """What somebody may do; roles can be combined."""

    #: Reads everything.
    READER = "reader"
    #: Submits jobs, starts and signals workflows; reads what it submitted.
    CLIENT = "client"
    #: Leases, extends, reports; fetches and acknowledges turns.
    WORKER = "worker"
    #: Reads; retries, cancels, moves, pauses, limits, answers.
    OPERATOR = "operator"
    ADMIN = "admin"


class Access(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one access token gives."""

    #: Shown in lists and, as `actor` and `submitted_by`, in what is done with it.
    name: str
    roles: tuple[Role, ...]
    #: None for all.
    namespaces: tuple[str, ...] | None = None
    #: SHA-256 of the access token in hex; empty for who needs none.
    digest: str = ""
    created_at: Timestamp | None = None
    #: From then on it gives nothing, by the coordinator's clock. None for never.
    expires_at: Timestamp | None = None


#: Somebody of this machine, where no access token is asked for.
LOCAL = Access(name="", roles=(Role.ADMIN,))
