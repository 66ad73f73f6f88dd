"""Secrets that never enter a sandbox: what stands for them inside, and where the proxy puts them in.

docs/credentials.md says what holds. Values are read here, on the host, and go into requests to their own host alone.
"""

import binascii
import math
import os
import re
import ssl
import subprocess
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import expanduser
from urllib.parse import quote

from stockade_sandbox.egress.authority import Authority
from stockade_sandbox.egress.http import Headers, Request
from stockade_sandbox.egress.rules import Refused, Target, address_of, parse_authority
from stockade_sandbox.egress.tls_streams import client_context
from stockade_sandbox.egress.trust import put_trust, trusting
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import CREDENTIAL_BASE, PROXY_PORT, Credential, Policy

_BASE_URLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "api.anthropic.com": (("ANTHROPIC_BASE_URL", ""),),
    "api.openai.com": (("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1")),
    "generativelanguage.googleapis.com": (("GOOGLE_GEMINI_BASE_URL", ""),),
    "api.groq.com": (("GROQ_BASE_URL", ""),),
    "api.cohere.com": (("CO_API_URL", ""),),
    "api.deepseek.com": (("DEEPSEEK_API_BASE", ""),),
    "api.x.ai": (("XAI_API_BASE", "/v1"),),
    "huggingface.co": (("HF_ENDPOINT", ""),),
    "ANTHROPIC_API_KEY": (("ANTHROPIC_BASE_URL", ""),),
    "ANTHROPIC_AUTH_TOKEN": (("ANTHROPIC_BASE_URL", ""),),
    "OPENAI_API_KEY": (("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1")),
    "GEMINI_API_KEY": (("GOOGLE_GEMINI_BASE_URL", ""),),
}
"""By host, else by the credential's name (a gateway of one's own): the variables of base URLs, and what ends them."""
FRESH_S, _RETRY_S, _HELPER_S = 300.0, 10.0, 30.0
"""How long the value of an `exec:` is good; how soon a refused one is asked for again; how long it may take."""
LEAST_CHARS, _MAX_BYTES = 8, 64 * 1024
_KEY = re.compile(r"[!-~]+")
_BASIC = re.compile(r"(?i)(basic +)([A-Za-z0-9+/]+=*)")


class _Value:
    """A credential's value, as fresh as its source: a file is read each time. From any thread."""

    def __init__(self, credential: Credential) -> None:
        self.credential = credential
        self._lock = threading.Lock()
        self._asked, self._value = 0.0, ""
        self.get()

    def get(self) -> str:
        """Blocks. UsageError, which never holds the value, when there is none."""
        with self._lock:
            kind, age = self.credential.source.partition(":")[0], time.monotonic() - self._asked
            is_old = kind == "file" or (kind == "exec" and age > FRESH_S)
            if not self._value or is_old:
                self._value, self._asked = self._checked(self._read()), time.monotonic()
            return self._value

    def doubt(self) -> None:
        """It was refused: the next request has a new one, unless it was asked for just now."""
        with self._lock:
            if time.monotonic() - self._asked > _RETRY_S:
                self._asked = -math.inf

    def _read(self) -> str:
        name, (kind, _, where) = self.credential.name, self.credential.source.partition(":")
        if not kind:
            if name not in os.environ:
                raise self._missing("the variable is not set here", f"export {name}, or write {name}=file:PATH@...")
            return os.environ[name]
        try:
            if kind == "file":
                with open(expanduser(where), "rb") as file:
                    return file.read(_MAX_BYTES).decode().strip()
            done = subprocess.run(
                where, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                timeout=_HELPER_S, check=True,
            )  # fmt: skip
            return done.stdout[:_MAX_BYTES].decode().strip()
        except subprocess.TimeoutExpired:
            raise self._missing(f"its command did not end within {_HELPER_S:g} s") from None
        except subprocess.CalledProcessError as error:
            raise self._missing(f"its command ended with status {error.returncode}") from None
        except OSError as error:
            raise self._missing(f"{where}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise self._missing("the value is no text") from None

    def _checked(self, value: str) -> str:
        if not value:
            raise self._missing("the value is empty")
        if not _KEY.fullmatch(value):
            raise self._missing("the value has characters that no header's key has", "give the key alone, on one line")
        if len(value) < LEAST_CHARS:
            raise self._missing(f"the value is shorter than {LEAST_CHARS} characters, as no key is")
        return value

    def _missing(self, why: str, hint: str | None = None) -> UsageError:
        return UsageError(f"--credential {self.credential.name}: {why}", hint)


@dataclass(frozen=True)
class Filled:
    """Headers with values put in, those of the credentials `names`; `secrets` are to be hidden in the answer."""

    headers: Headers
    secrets: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()


class Credentials:
    """Those of one sandbox."""

    def __init__(self, wanted: Sequence[Credential], authorities: tuple[str, ...] = ()) -> None:
        """`client` is the context towards the hosts, which trusts `authorities` too. Blocks: reads every value.
        UsageError, a line for each cause.
        """
        self._wanted = tuple(wanted)
        self._at = {_target(one): list[tuple[Credential, _Value]]() for one in wanted}
        values = dict[str, _Value]()
        for one in wanted:
            value = values.get(one.name) or values.setdefault(one.name, _Value(one))
            if value.credential.source != one.source:
                raise UsageError(f"--credential {one.name} has two sources", "give each value a name of its own")
            self._at[_target(one)].append((one, value))
        self._authority = Authority(sorted({target.host for target in self._at}))
        self.client = trusting(authorities, client_context())

    def put_into(self, policy: Policy) -> Policy:
        """With the sentinels, the base URLs, and the certificates as a file inside. Blocks.

        What the policy's environment says already stays, but for a credential's own name.
        """
        added = dict[str, str]()
        for one in self._wanted:
            for variable, end in _BASE_URLS.get(_target(one).host) or _BASE_URLS.get(one.name, ()):
                added[variable] = f"http://127.0.0.1:{PROXY_PORT}{CREDENTIAL_BASE}{one.host.lower()}{end}"
        sentinels = {one.name: one.sentinel for one in self._wanted}
        for name in sentinels.keys() & policy.environment.keys():
            raise UsageError(f"--env {name} is a credential's name too", "leave one of the two out")
        environment = {**added, **policy.environment, **sentinels}
        return put_trust(replace(policy, environment=environment), self._authority.certificate)

    def covers(self, target: Target) -> bool:
        return target in self._at

    def server_context(self, target: Target) -> ssl.SSLContext:
        return self._authority.context(target.host)

    def of_base_url(self, path: str) -> tuple[Target, str]:
        """The target and the path that a request to a base URL means. Refused when no credential is for it."""
        authority, _, rest = path.removeprefix(CREDENTIAL_BASE).partition("/")
        host, query, words = authority.partition("?")
        target = parse_authority(host, 443)
        if not self.covers(target):
            raise Refused(f"there is no credential for {target}")
        return target, f"/{query}{words}" if query else f"/{rest}"

    def fill(self, request: Request, target: Target) -> Filled:
        """What the host of `target` gets. Blocks. Refused for the sentinel of a credential that is another host's, and
        when a value cannot be had.
        """
        self.refuse_strays(request, target)
        headers, secrets, names = list(request.headers), set[bytes](), list[str]()
        for one, source in self._at.get(target, ()):
            before = len(secrets)
            try:
                value = source.get()
            except UsageError as error:
                raise Refused(error.message, 502) from None
            for number, (name, text) in enumerate(headers):
                new = _replaced(text, one.sentinel, value)
                if new != text:
                    headers[number] = (name, new)
                    secrets |= _spellings(value, new)
            if one.header and len(secrets) == before:
                text = f"Bearer {value}" if one.header.lower() == "authorization" else value
                headers = [(name, old) for name, old in headers if name.lower() != one.header.lower()]
                headers.append((one.header, text))
                secrets |= _spellings(value, text)
            if len(secrets) != before:
                names.append(one.name)
        if secrets:
            dropped = ("accept-encoding", "sec-websocket-extensions")
            headers = [(name, text) for name, text in headers if name.lower() not in dropped]
            headers.append(("Accept-Encoding", "identity"))
        return Filled(tuple(headers), tuple(sorted(secrets, key=len, reverse=True)), tuple(dict.fromkeys(names)))

    def refuse_strays(self, request: Request, target: Target) -> None:
        """Refused, by name, for a sentinel in the URL or a header of a request to a host that it is not for."""
        here = {one.name for one, _ in self._at.get(target, ())}
        texts = [request.target, *(text for _, text in request.headers)]
        for one in self._wanted:
            if one.name not in here and any(_replaced(text, one.sentinel, "") != text for text in texts):
                hosts = ", ".join(other.authority for other in self._wanted if other.name == one.name)
                raise Refused(f"the credential {one.name} goes to {hosts} by TLS only, not to {target}")

    def doubt(self, target: Target, names: Sequence[str]) -> None:
        """The host refused the values of these."""
        for one, value in self._at.get(target, ()):
            if one.name in names:
                value.doubt()


def _target(credential: Credential) -> Target:
    what = f"--credential {credential.name}"
    try:
        target = parse_authority(credential.authority)
    except Refused as refused:
        raise UsageError(f"{what}: {refused.reason}", "write NAME@HOST, HOST being a name") from None
    if address_of(target.host) is not None:
        raise UsageError(f"{what}: {target.host} is an address, and a key goes to a name", "write NAME@HOST")
    return target


def _replaced(text: str, sentinel: str, value: str) -> str:
    """A header's value with the sentinel replaced, in HTTP's Basic too, where it stands inside base64."""

    def basic(found: re.Match[str]) -> str:
        try:
            plain = b64decode(found[2], validate=True)
        except binascii.Error:
            return found[0]
        new = plain.replace(sentinel.encode(), value.encode())
        return found[0] if new == plain else found[1] + b64encode(new).decode()

    return _BASIC.sub(basic, text.replace(sentinel, value))


def _spellings(value: str, text: str) -> set[bytes]:
    """How a server may give back what it got in the header `text`."""
    of_basic = {found[2] for found in _BASIC.finditer(text)}
    return {one.encode() for one in (value, quote(value, safe=""), *of_basic)}
