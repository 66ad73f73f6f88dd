"""What a sandbox is shown of the host's /etc and /var/lib: what installed programs do not start without.

By name, and nothing that is made to hold a password, a key or a name of a person: of Maven not its settings, of R not
what the site adds, of PHP no file that does more than name extensions.
"""

import functools
import os
import re
from collections.abc import Iterator
from glob import glob
from pathlib import Path

_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs",
    "pki/tls/cert.pem", "pki/ca-trust/extracted", "ca-certificates", "mime.types", "localtime", "timezone", "terminfo",
    "protocols", "services", "magic", "magic.mime", "os-release", "debian_version", "fonts", "perl", "python3",
    "python3.*", "java-*-openjdk", "maven/m2.conf", "maven/logging", "xml", "sgml", "inputrc", "locale.alias",
    "manpath.config", "papersize", "texmf", "ghostscript", "R/Renviron", "R/ldpaths", "R/Makeconf", "R/repositories",
    "libreoffice/registry", "libreoffice/sofficerc",
    "groovy/groovy-starter.conf", "fpc.cfg", "fpc-*.cfg", "ldc2.conf", "ocamlfind.conf", "mono/config",
    "mono/*/machine.config", "dotnet/install_location*", "chromium.d/default-flags",
)  # fmt: skip
_VAR_LIB = ("texmf", "ghc", "gems", "dictionaries-common", "aspell")
"""TeX's formats, GHC's packages, what root installed with `gem`, the words of spelling checkers."""
_PHP = ("php/*/mods-available", "php/*/cli/conf.d", "php.d")
_NAMES_EXTENSIONS = re.compile(r"\s*(;.*|(zend_)?extension\s*=.*|opcache\.\w+\s*=.*)?")


def shown_etc(etc: Path = Path("/etc")) -> tuple[str, ...]:
    """Names below /etc, of files and whole folders."""
    return tuple(dict.fromkeys((*_there(etc, _ETC), *_php(etc))))


def shown_var_lib(place: Path = Path("/var/lib")) -> tuple[str, ...]:
    """Of folders below /var/lib."""
    return tuple(_there(place, _VAR_LIB))


def _there(place: Path, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if "*" in name:
            yield from sorted(glob(name, root_dir=place))
        elif (place / name).exists():
            yield name


def _php(etc: Path) -> Iterator[str]:
    """A folder of extensions, or those files of it that only name one."""
    for folder in _there(etc, _PHP):
        files = [f"{folder}/{name}" for name in sorted(os.listdir(etc / folder))]
        plain = [file for file in files if _only_names_extensions(etc / file)]
        yield from [folder] if plain == files else plain


def _only_names_extensions(file: Path) -> bool:
    try:
        return _is_plain(file, file.stat().st_mtime_ns)
    except OSError:
        return False


@functools.lru_cache(maxsize=256)
def _is_plain(file: Path, changed_ns: int) -> bool:
    return all(_NAMES_EXTENSIONS.fullmatch(line) for line in file.read_text(errors="replace").splitlines())
