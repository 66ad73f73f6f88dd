"""Who may use the server. A token is 256 random bits, of which only a hash is kept, in a file of this user's alone.

A browser logs in as a token by a key that works once, and has a session: the token's id, an end, and a signature over
both and the token's hash by a secret of this user's. So it outlives the server, and ends with its token.

A run belongs to the token that began it: `owner` in the options of its first event.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from stockade.core.data import Data
from stockade.core.errors import StoreFailed, UsageError
from stockade.paths import read_bounded, state_dir, write_whole
from stockade_sandbox.locks import lock, open_lock

Scope = Literal["read", "run", "approve", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "run", "approve", "admin")
AT_ONCE = 4
LOGIN_S, SESSION_S = 3600, 12 * 3600
_PREFIX = "stk"


class Token(Data):
    """What a token may do. `admin` has every scope, and sees the runs of all. `at_once`: runs of it that may be under
    way; `max_cost`: USD that all its runs may cost together, None without a bound; `charged`: what those have cost that
    were removed. `login`: the hash of the key that logs in once, until `login_until`. Times are UNIX s.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    made: float
    at_once: int = Field(default=AT_ONCE, ge=1)
    max_cost: float | None = Field(default=None, ge=0)
    charged: float = 0.0
    login: str = ""
    login_until: float = 0.0

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes


_FILE: TypeAdapter[list[Token]] = TypeAdapter(list[Token])


class Tokens:
    """Those of this user, read again whenever the file was written: one that is removed is refused at once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_dir() / "serve" / "tokens.json"
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, Token] = {}

    def all(self) -> list[Token]:
        """The oldest first. UsageError when the file is not what was written."""
        try:
            found = self.path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                self._known = {one.id: one for one in _FILE.validate_json(read_bounded(self.path))}
                self._seen = seen
        except FileNotFoundError:
            self._known, self._seen = {}, None
        except (OSError, ValidationError):
            raise UsageError(f"{self.path} is no list of tokens", "remove it, and make new ones") from None
        return list(self._known.values())

    def known(self, key: str) -> Token | None:
        """By its id."""
        return next((one for one in self.all() if one.id == key), None)

    def charge(self, key: str, cost: float) -> None:
        """A run that cost so much is on record no more."""
        with self._writing() as known:
            known[:] = [
                one.model_copy(update={"charged": one.charged + cost}) if one.id == key else one for one in known
            ]

    def check(self, text: str) -> Token | None:
        """Whose this is, in a time that says nothing of it; None when it is nobody's."""
        known = {one.id: one for one in self.all()}
        prefix, _, rest = text.partition("_")
        found = known.get(rest.partition("_")[0])
        same = hmac.compare_digest(_hash(text), found.sha256 if found else _hash(""))
        return found if same and prefix == _PREFIX else None

    def new(self, name: str, scopes: tuple[Scope, ...], at_once: int, max_cost: float | None) -> str:
        """The token, which nobody can be told again. UsageError for a name that there is, or that no line can show."""
        if not name.strip() or not name.isprintable():
            raise UsageError(f"no token can have the name {name!r}", "use a name of letters and digits")
        with self._writing() as known:
            if any(one.name == name for one in known):
                raise UsageError(f"there is a token {name!r} already", f"stockade serve token rm {name}")
            key = secrets.token_hex(6)
            text = f"{_PREFIX}_{key}_{secrets.token_urlsafe(32)}"
            made = Token(id=key, name=name, scopes=scopes, sha256=_hash(text), made=time.time(), at_once=at_once,
                         max_cost=max_cost)  # fmt: skip
            known.append(made)
        return text

    def remove(self, name: str) -> None:
        """UsageError where there is none of that name or id."""
        with self._writing() as known:
            if not (gone := [one for one in known if name in (one.name, one.id)]):
                raise UsageError(f"there is no token {name!r}", "stockade serve token list")
            known.remove(gone[0])

    def login_key(self, name: str) -> str:
        """One that logs a browser in as this token, once, within LOGIN_S; the one before it does no more."""
        text = secrets.token_urlsafe(32)
        with self._writing() as known:
            at = next((number for number, one in enumerate(known) if name in (one.name, one.id)), None)
            if at is None:
                raise UsageError(f"there is no token {name!r}", "stockade serve token list")
            until = time.time() + LOGIN_S
            known[at] = known[at].model_copy(update={"login": _hash(text), "login_until": until})
        return text

    def log_in(self, key: str) -> Token | None:
        """Whose key this is, which no longer works."""
        wanted, now, found = _hash(key), time.time(), None
        with self._writing() as known:
            for number, one in enumerate(known):
                if hmac.compare_digest(one.login, wanted) and now < one.login_until:
                    found = known[number] = one.model_copy(update={"login": "", "login_until": 0.0})
        return found

    def session(self, token: Token) -> str:
        """What the browser has from now on."""
        said = f"{token.id}.{int(time.time()) + SESSION_S}"
        return f"{said}.{self._signature(said, token)}"

    def of_session(self, text: str) -> Token | None:
        """Whose it is; None once it is over, or the token is gone."""
        said, _, signature = text.rpartition(".")
        key, _, until = said.partition(".")
        found = self.known(key)
        if found is None or not hmac.compare_digest(signature.encode(), self._signature(said, found).encode()):
            return None
        return found if time.time() < int(until) else None

    def _signature(self, said: str, token: Token) -> str:
        return hmac.new(self._secret(), f"{said}.{token.sha256}".encode(), hashlib.sha256).hexdigest()

    def _secret(self) -> bytes:
        path = self.path.with_name("secret")
        try:
            return read_bounded(path)
        except FileNotFoundError:
            with self._writing():
                if not path.exists():
                    write_whole(path, secrets.token_bytes(32), private=True)
            return read_bounded(path)

    @contextmanager
    def _writing(self) -> Iterator[list[Token]]:
        """StoreFailed where they cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(open_lock(self.path.with_name("lock")), "rb") as held:
                lock(held.fileno())
                known = self.all()
                yield known
                write_whole(self.path, _FILE.dump_json(known, indent=1), private=True)
        except OSError as error:
            raise StoreFailed(f"the tokens {self.path} cannot be written: {error.strerror}") from None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
