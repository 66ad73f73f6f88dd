"""What keys and tokens of well-known services look like, which variables hold secrets, and how a secret is spelled.

Each format has a literal that must be there before its expression is tried: text without any of them costs one look for
each. Sources: the services' own documentation of their prefixes (GitHub "about authentication", Slack "token types",
AWS "unique identifiers", RFC 7519 for JWT, RFC 7468 for PEM).
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, unquote

SHORTEST = 8
"""Bytes of a value that is hidden: hiding shorter ones would tear words apart."""
_SHORTEST_LINE = 16


@dataclass(frozen=True)
class Format:
    """`group` 1 of `pattern` is the secret where it has one, else all of it."""

    name: str
    literals: tuple[str, ...]
    expression: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when it is first needed: all of them would cost each start some milliseconds."""
        return re.compile(self.expression, re.ASCII | re.DOTALL)


def _format(name: str, literals: str, expression: str) -> Format:
    return Format(name, tuple(literals.split()), expression)


_END = r"(?![A-Za-z0-9_-])"
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\n-)|(?<=\\n)|(?<=\\n-))"
"""Also at the begin of a line: of one that a diff removes, and in JSON."""
FORMATS = (
    _format("private key", "PRIVATE", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
            r"(?:.*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|.*)"),
    _format("age key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _format("AWS key", "AKIA ASIA ABIA ACCA", rf"{_START}(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{{16}}{_END}"),
    _format("AWS secret", "ecret SECRET", r"(?i:aws_?secret_?access_?key|secretaccesskey)"
            r"[\\\"'\s:=]{1,8}([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"),
    _format("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{_START}gh[pousr]_[A-Za-z0-9]{{36,255}}"),
    _format("GitHub token", "github_pat_", rf"{_START}github_pat_[A-Za-z0-9_]{{22,255}}"),
    _format("GitLab token", "glpat- gldt- glrt- glcbt- glptt- glft-",
            rf"{_START}gl(?:pat|dt|rt|cbt|ptt|ft)-[A-Za-z0-9_.-]{{20,300}}"),
    _format("API key", "sk-", rf"{_START}sk-(?=[A-Za-z0-9_-]*[0-9])(?=[A-Za-z0-9_-]*[A-Z])[A-Za-z0-9_-]{{20,300}}"),
    _format("Stripe key", "sk_ rk_ whsec_", rf"{_START}(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9+/=]{{16,300}}"),
    _format("Slack token", "xox xapp- xwfp-", rf"{_START}(?:xox[a-z]|xapp|xwfp)-[A-Za-z0-9-]{{10,300}}"),
    _format("Slack webhook", "hooks.slack.com",
            r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,100})"),
    _format("Google key", "AIza", rf"{_START}AIza[A-Za-z0-9_-]{{35}}{_END}"),
    _format("Google token", "ya29. GOCSPX-",
            rf"{_START}(?:ya29\.[A-Za-z0-9_.-]{{20,1000}}|GOCSPX-[A-Za-z0-9_-]{{20,60}})"),
    _format("Hugging Face token", "hf_", rf"{_START}hf_[A-Za-z0-9]{{30,100}}{_END}"),
    _format("npm token", "npm_", rf"{_START}npm_[A-Za-z0-9]{{36}}{_END}"),
    _format("PyPI token", "pypi-", rf"{_START}pypi-[A-Za-z0-9_-]{{50,500}}"),
    _format("Docker token", "dckr_", rf"{_START}dckr_(?:pat|oat)_[A-Za-z0-9_-]{{20,60}}"),
    _format("DigitalOcean token", "_v1_", rf"{_START}do[por]_v1_[a-f0-9]{{64}}"),
    _format("Shopify token", "shp", rf"{_START}shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{{32}}"),
    _format("SendGrid key", "SG.", rf"{_START}SG\.[A-Za-z0-9_-]{{16,32}}\.[A-Za-z0-9_-]{{16,64}}"),
    _format("Vault token", "hvs. hvb. hvr.", rf"{_START}hv[sbr]\.[A-Za-z0-9_-]{{20,300}}"),
    _format("Databricks token", "dapi", rf"{_START}dapi[a-f0-9]{{32}}"),
    _format("Telegram token", ":AA", rf"{_START}[0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}}{_END}"),
    _format("Azure key", "Key=", r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{40,88}={0,2})"),
    _format("JWT", "eyJ", rf"{_START}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}(?:\.[A-Za-z0-9_-]*)?"),
    _format("password", "://", r"://[^\s/:@\"'<>]{0,200}:(?!\[redacted)([^\s/@\"'<>]{3,300})@"),
    _format("credentials", "uthorization UTHORIZATION",
            r"(?i:authorization)[\\\"']{0,3}\s*[:=]\s*[\\\"']{0,3}"
            r"(?i:(?:bearer|basic|token|bot)\s+)?"
            r"(?!\[redacted|(?i:bearer|basic|token|bot)\b)([^\s\\\"',]{8,4000})"),
)  # fmt: skip


def _one_of(words: Iterable[str]) -> str:
    """An expression for any of `words`: by their first letters, so that most places of a text are seen off at once."""
    rests: dict[str, list[str]] = {}
    for word in words:
        if not word:
            return ""
        rests.setdefault(word[0], []).append(word[1:])
    ways = [re.escape(first) + _one_of(rest) for first, rest in rests.items()]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


ANY_LITERAL = re.compile(_one_of(sorted({literal for one in FORMATS for literal in one.literals})))
"""Finds nothing where no format can."""

_SECRET_WORDS = ("TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASSWORDS", "CREDENTIAL",
                 "CREDENTIALS", "APIKEY", "AUTHKEY", "ACCESSKEY", "PRIVATEKEY")  # fmt: skip
_SECRET_PARTS = {"KEY", "PASS", "PW", "PWD", "PAT", "AUTH", "COOKIE", "SALT", *_SECRET_WORDS}
_NO_SECRET_LAST = {"FILE", "PATH", "DIR", "LIMIT", "COUNT", "NAME", "URL", "URI", "HOST", "TYPE", "LENGTH", "SIZE",
                   "TTL", "EXPIRY", "EXPIRES", "SOCK", "SOCKET", "METHOD", "MODE", "ENABLED", "PARALLELISM",
                   "ALGORITHM", "USER", "PORT", "REGION"}  # fmt: skip
_PASSWORD_OF_URL = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")


def secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What is to be hidden -> the variable that it is from: by the variable's name, or the password of a URL."""
    results: dict[str, str] = {}
    for name, value in environ.items():
        for match in _PASSWORD_OF_URL.finditer(value):
            for password in (match[1], unquote(match[1])):
                if is_long(password):
                    results[password] = name
        if is_long(value) and _sounds_secret(name) and not _is_harmless(value):
            results[value] = name
    return results


def is_long(value: str) -> bool:
    """Whether a value is long enough to be hidden."""
    return len(value.strip().encode(errors="surrogateescape")) >= SHORTEST


def _sounds_secret(name: str) -> bool:
    parts = [part for part in re.split(r"[^A-Z]+", name.upper()) if part]
    if not parts or parts[-1] in _NO_SECRET_LAST or "PUBLIC" in parts:
        return False
    return any(part in _SECRET_PARTS or part.endswith(_SECRET_WORDS) for part in parts)


def _is_harmless(value: str) -> bool:
    """A path, or a word like `disabled`: not a secret, and everywhere."""
    return value.startswith(("/", "./", "~/")) or (value.isalpha() and value.islower() and len(value) < 12)


def spellings(value: str) -> Iterator[str]:
    """How a secret stands in texts: as it is, its lines, in a URL, in JSON, in base64."""
    yield value
    if (stripped := value.strip()) != value:
        yield stripped
    lines = stripped.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE)
        yield from (stripped.replace("\n", f"\n{side}") for side in "+- ")
    yield quote(stripped, safe="")
    yield json.dumps(stripped)[1:-1]
    yield json.dumps(stripped, ensure_ascii=False)[1:-1]
    yield from _in_base64(stripped.encode())


def _in_base64(data: bytes) -> Iterator[str]:
    """The characters that depend on nothing but `data`, for each place where it may begin in what was encoded."""
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + data).decode().rstrip("=")
        first = (shift * 8 + 5) // 6
        last = len(whole) if (shift + len(data)) % 3 == 0 else len(whole) - 1
        if last - first >= _SHORTEST_LINE // 2:
            yield whole[first:last]
