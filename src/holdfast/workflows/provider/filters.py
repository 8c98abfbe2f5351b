"""What a caller of the provider may ask for beyond the first thing that waits: tags, sessions, versions."""

from __future__ import annotations

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.ids import NAME_HINT, is_name

#: Tags one filter takes.
MAX_TAGS = 64
#: The queue of activities without a tag.
UNTAGGED = "default"


class TagFilter(msgspec.Struct, frozen=True):
    """Which activities to take, by their tags. Made by its class methods."""

    #: The queues they wait in; None: any.
    queues: tuple[str, ...] | None = (UNTAGGED,)

    @classmethod
    def default_only(cls) -> TagFilter:
        """Take activities without a tag."""
        return cls((UNTAGGED,))

    @classmethod
    def of(cls, *tags: str) -> TagFilter:
        """Take activities with one of these tags. Raises InvalidValue for what is no tag."""
        return cls(_checked(tags))

    @classmethod
    def default_and(cls, *tags: str) -> TagFilter:
        """Take activities without a tag, or with one of these. Raises InvalidValue for what is no tag."""
        return cls((UNTAGGED, *_checked(tags)))

    @classmethod
    def any(cls) -> TagFilter:
        """Take every activity."""
        return cls(None)

    @classmethod
    def none(cls) -> TagFilter:
        """Take nothing."""
        return cls(())


def _checked(tags: tuple[object, ...]) -> tuple[str, ...]:
    if not 1 <= len(tags) <= MAX_TAGS:
        raise InvalidValue(f"tags: {len(tags)} tags; a filter takes 1 to {MAX_TAGS}.", field="tags")
    for tag in tags:
        if not isinstance(tag, str) or not is_name(tag) or tag == UNTAGGED:
            raise InvalidValue(f"tags: {tag!r:.80} is not a tag.", hint=NAME_HINT, field="tags")
    return tuple(dict.fromkeys(str(tag) for tag in tags))


class SessionFetchConfig(msgspec.Struct, frozen=True):
    """Who takes the sessions of activities, and for how many seconds."""

    owner_id: str
    lock_timeout: float


class SemverRange(msgspec.Struct, frozen=True):
    """Versions such as 1.2.3, from `min` to `max`, both included."""

    min: str
    max: str


class DispatcherCapabilityFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions of the runtime the caller has; no range matches nothing."""

    supported_engine_versions: tuple[SemverRange, ...] = ()


class SystemStats(msgspec.Struct, frozen=True, kw_only=True):
    """How large one instance is."""

    history_event_count: int
    history_size_bytes: int
    #: Signals carried over into the current execution.
    queue_pending_count: int
    kv_user_key_count: int
    kv_total_value_bytes: int
