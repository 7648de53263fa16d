"""The URLs that say where studies are stored: errors are one line, and no password is shown."""

from __future__ import annotations

import re

import pytest

import cabai
from cabai.errors import StorageError

NOWHERE = "127.0.0.1:1"  # nobody listens there

WRONG = [
    ("mysql://u:secret@h/d", "must be memory, sqlite:///FILE or postgresql://USER@HOST/DATABASE, got mysql://..."),
    ("u:secret@h/d", "got something else"),
    ("file.db", "got 'file.db'"),
    ("postgresql://u:secret@h:port/d", "the port in storage postgresql://... must be a number from 1 to 65535"),
    ("postgresql://u:secret", "must be a number from 1 to 65535"),  # the host was forgotten
    ("postgresql://u:secret@h:65536/d", "must be a number from 1 to 65535"),
    ("postgresql://u:secret@h:0/d", "must be a number from 1 to 65535"),
    ("postgresql+asyncpg://u:secret@h/d", "postgresql+asyncpg:// names a driver that cabai does not use"),
    ("sqlite:///x.db?nonsense=secret", "takes a file and nothing else"),
    ("sqlite:///secret\0.db", "got one with NUL or broken characters"),
    ("sqlite:///secret\udcff.db", "got one with NUL or broken characters"),
    ("postgresql://u:secret%00@h/d", "cannot be read: write %40, %3A, %2F within a password"),
    ("postgresql://u:half@secret@h/d", "must have one @ at most: write %40"),
    ("postgresql://u/x:secret@h/d", "must have one @ at most"),
    (f"postgresql://u:secret@{NOWHERE}/d?plugin=nonsense", "has options that the database does not know"),
    (f"postgresql://u:secret@{NOWHERE}/d?port=nonsense", "must be a number from 1 to 65535"),
    (f"postgresql://u:secret@{NOWHERE}/d?connect_timeout=nonsense", "has options that the database does not know"),
    (f"postgresql://u:secret@{NOWHERE}/d?nonsense=1", "has options that the database does not know"),
    ("postgresql://u:secret@a..b/d", "names a host that cannot exist"),
    (f"postgresql://u:secret@{'h' * 80}/d", "names a host that cannot exist"),
    (["postgresql://u:secret@h/d"], "must be a URL such as sqlite:///cabai.db, got a value of type list"),
]


@pytest.mark.parametrize(("url", "message"), WRONG)
def test_a_url_that_is_wrong_is_refused_without_showing_a_password(url, message):
    with pytest.raises(cabai.InvalidInput, match=re.escape(message)) as refused:
        cabai.create_study("x", arms=["a", "b"], family="bernoulli", storage=url)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:secret@{NOWHERE}/d",
        f"postgresql+psycopg2://u:secret@{NOWHERE}/d",
        f"postgresql://u@{NOWHERE}/d?password=secret",
        f"postgresql://u:secret%40%2F@{NOWHERE}/d",
    ],
)
def test_a_server_that_cannot_be_reached_is_one_line_without_a_password(url):
    with pytest.raises(StorageError, match=rf"storage postgresql://u.*@{NOWHERE}/d failed: ") as failed:
        cabai.list_studies(storage=url)
    assert "secret" not in str(failed.value)
    assert "\n" not in str(failed.value)
