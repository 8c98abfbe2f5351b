"""Blobs arrive in pieces, are verified on the way, and leave nothing when they are not what they are called."""

from __future__ import annotations

import gzip
import hashlib
import os
import tracemalloc

import httpx2
import pytest
from coordinators import running
from rawhttp import dial, head, hear

from holdfast.errors import StoreError
from holdfast.stores.http.store import HttpStore
from holdfast.web.remote_store.blobs import PIECE
from holdfast.web.server.http_protocol import Conversation
from holdfast.web.server.limits import Limits

LARGE = os.urandom(1 << 20) * 8


def digest_of(content):
    return hashlib.sha256(content).hexdigest()


def drafts(folder):
    return [path for path in folder.rglob("*.tmp") if "blobs" in path.parts] if folder.is_dir() else []


@pytest.mark.parametrize("kind", ["wal", "dir", "sqlite"])
def test_what_was_put_comes_back_and_what_is_wrong_or_too_large_leaves_nothing(tmp_path, kind):
    with running(f"{kind}:{tmp_path / 'jobs'}", limits=Limits(blob=len(LARGE))) as serving:
        url = f"{serving.url}/api/v1/blobs"
        store = HttpStore.open(serving.url)
        for content in (b"", b"x", LARGE):
            assert store.blobs.put(content) == digest_of(content)
            assert store.blobs.get(digest_of(content)) == content
            assert store.blobs.put(content) == digest_of(content)  # once more is no harm
        store.close()
        other = digest_of(b"y")
        assert httpx2.put(f"{url}/{other}", content=LARGE).status_code == 422
        assert httpx2.put(f"{url}/{other}", content=iter([LARGE, b"more"])).status_code == 413
        with dial(serving.url) as line:  # cut in the middle
            line.sendall(head(f"/api/v1/blobs/{other}", method="PUT", Content_Length=3_000_000) + LARGE[:2_000_000])
        assert httpx2.head(f"{url}/{other}").status_code == 404
    assert drafts(tmp_path / "jobs") == []


def test_a_blob_is_never_in_memory_whole_where_the_store_keeps_files(tmp_path):
    content = LARGE * 3
    digest = digest_of(content)
    with running(f"wal:{tmp_path / 'jobs'}") as serving, dial(serving.url) as line:
        tracemalloc.start()
        try:
            line.sendall(head(f"/api/v1/blobs/{digest}", method="PUT", Content_Length=len(content)))
            line.sendall(content)
            assert hear(line).status == 204
            line.sendall(head(f"/api/v1/blobs/{digest}"))
            left = len(content)
            while left > 0:
                left -= len(line.recv(1 << 16))
            assert tracemalloc.get_traced_memory()[1] < len(content) // 2
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kind", ["wal", "sqlite"])
def test_a_blob_leaves_in_pieces_each_when_the_one_before_was_fetched(tmp_path, kind, monkeypatch):
    written = []
    write = Conversation.write
    monkeypatch.setattr(Conversation, "write", lambda self, part: (written.append(len(part)), write(self, part)))
    with running(f"{kind}:{tmp_path / 'jobs'}") as serving:
        url = f"{serving.url}/api/v1/blobs/{digest_of(LARGE)}"
        httpx2.put(url, content=LARGE)
        assert httpx2.get(url).content == LARGE
    assert max(written) < 2 * PIECE


def test_a_blob_whose_bytes_have_changed_is_not_given_whole(tmp_path):
    with running(f"wal:{tmp_path / 'jobs'}") as serving:
        store = HttpStore.open(serving.url, patience_s=0)
        digest = store.blobs.put(LARGE)
        (file,) = (tmp_path / "jobs" / "blobs").rglob(digest)
        with file.open("r+b") as bytes_of:
            bytes_of.seek(5)
            bytes_of.write(b"?????????")
        with pytest.raises(StoreError):
            store.blobs.get(digest)
        store.close()


@pytest.mark.parametrize("kind", ["wal", "dir", "sqlite"])
def test_head_says_the_length_of_a_blob_or_none(tmp_path, kind):
    digest = digest_of(b"hello")
    with running(f"{kind}:{tmp_path / 'jobs'}") as serving, httpx2.Client(trust_env=False) as http:
        url = f"{serving.url}/api/v1/blobs/{digest}"
        assert http.put(url, content=b"hello").status_code == 204
        for _ in range(2):  # on one line, so that nothing of an answer is taken for the next one
            told, whole = http.head(url), http.get(url)
            assert (told.status_code, told.content, whole.content) == (200, b"", b"hello")
            assert told.headers.get("content-length", "5") == whole.headers["content-length"] == "5"
            assert ("content-length" in told.headers) == (kind != "sqlite")
            assert told.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize("encoding", ["gzip", "ZSTD", "br"])
def test_a_packed_blob_is_refused_and_not_kept_as_it_came(tmp_path, encoding):
    content = gzip.compress(b"hello")
    with running(f"wal:{tmp_path / 'jobs'}") as serving:
        url = f"{serving.url}/api/v1/blobs"
        for name in (digest_of(content), digest_of(b"hello")):
            refused = httpx2.put(f"{url}/{name}", content=content, headers={"Content-Encoding": encoding})
            assert (refused.status_code, refused.json()["code"]) == (415, "invalid_value")
            assert httpx2.head(f"{url}/{name}").status_code == 404
        plain = httpx2.put(f"{url}/{digest_of(b'x')}", content=b"x", headers={"Content-Encoding": "identity"})
        assert plain.status_code == 204
