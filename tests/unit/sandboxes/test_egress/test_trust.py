"""Authorities of the user's own: which files are taken, and that nothing but certificates enters."""

import os
import ssl
from pathlib import Path

import pytest

from stockade_sandbox.egress.authority import Authority
from stockade_sandbox.egress.trust import BUNDLE, TRUST, put_trust, read_authorities, trusting
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import Policy

ONE, TWO = (Authority([name]).certificate.decode() for name in ("one.test", "two.test"))
KEY = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "there is no certificate in it"),
        ("hello", "there is no certificate in it"),
        (ONE + KEY, "it holds a private key, which would be copied in"),
        (ONE + KEY.replace("EC ", "ENCRYPTED "), "it holds a private key, which would be copied in"),
        (ONE + TWO.replace("M", "N"), "certificate 2 cannot be read: malformed"),
        (ONE.replace("-----END", "\0-----END"), "there is no certificate in it"),
        ("x" * (1 << 20) + ONE, "larger than 1 MiB"),
    ],
)
def test_a_file_that_is_none_is_a_line(content: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "ca"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_authorities(str(path))
    assert caught.value.message == f"-o ca={path}: {why}"


def test_what_is_no_file_is_a_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("none", "No such file"), (".", "Is a directory"), ("pipe", "no certificate"), ("\0", "no such")):
        with pytest.raises(UsageError, match=why):
            read_authorities(str(tmp_path / name))


def test_only_the_certificates_of_a_file_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "ca"
    path.write_bytes(b"# a comment with a \xff\n" + ONE.encode() + b"token: hunter2\n" + TWO.encode())
    found = read_authorities(str(path))
    assert found == ONE + TWO
    policy = put_trust(Policy(authorities=(found,), environment={"PIP_CERT": "mine"}))
    assert policy.files[BUNDLE].endswith(found)
    assert policy.environment == {**dict.fromkeys(TRUST, BUNDLE), "PIP_CERT": "mine"}


def test_trusting_adds(tmp_path: Path) -> None:
    assert len(trusting((ONE + TWO,)).get_ca_certs()) == 2
    before = len(ssl.create_default_context().get_ca_certs())
    assert len(trusting((ONE,), ssl.create_default_context()).get_ca_certs()) == before + 1
