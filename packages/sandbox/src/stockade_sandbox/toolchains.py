"""The user's own interpreters and tools that a folder needs: found without running any, to be seen read-only inside.

What says that one is needed: a virtual environment in the folder or active in the user's shell, a version file in it or
above it, an entry of the user's PATH. What is seen: the one version that is needed, at its own path, where a version
manager keeps it apart from all else; of any other prefix its programs and libraries only. Never a home folder, nor what
lies beside them. The folder's own files name versions and links, and a bot may have written them: none of them can name
another place.
"""

import base64
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os.path import abspath, dirname, exists, isdir, isfile, islink, realpath
from pathlib import Path

from stockade_sandbox.managers import CACHES, KEEPERS, MANAGERS, PROGRAMS, USER_BASE, Cache, Keeper, Manager, Place
from stockade_sandbox.policy import FolderRule, Policy, own_places
from stockade_sandbox.version_files import of_json, text_of, toml_of, versions_of

_SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_OF_A_PREFIX = ("bin", "lib", "lib64", "include", "libexec")
_VENVS = (".venv", "venv", "env", ".env")
_VENV_FILE = "pyvenv.cfg"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """`mounts` are absolute paths of the host, seen at the same path; `path` goes to the front of the PATH inside.

    `needed`: the folder says so, not the PATH alone. A cache is `below_home` inside and can be written to, but what is
    written is thrown away. `links` are those alone of a folder on the PATH, each to its target.
    """

    name: str
    because: str
    mounts: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    needed: bool = True
    below_home: str = ""
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """One of two that are the same is enough; single programs of a folder are not all of it."""
        return (*self.path, *self.links, *(one for one in self.mounts if dirname(one) in self.path)) or self.mounts


def find(folder: Path, environment: Mapping[str, str], home: Path) -> tuple[Toolchain, ...]:
    """For a folder of the user with this `home`, whose shell has this `environment`; the most particular first."""
    search = _Search(Path(realpath(folder)), environment, home.resolve())
    found = [
        *search.in_the_folder(), *search.elsewhere(), *search.by_version_files(), *search.on_the_path(),
        *search.of_the_user(), *search.caches(),
    ]  # fmt: skip
    return tuple({one.key: one for one in reversed(found)}.values())[::-1]


def with_toolchains(policy: Policy, chosen: Iterable[Toolchain], system_path: str, home: str) -> Policy:
    """The policy that shows them; `system_path` comes after theirs, `home` is the one inside.

    A folder is found at its own path too: the programs of its virtual environments say it in their first line.
    """
    everything = tuple(chosen)
    caches = tuple(
        FolderRule(host=one.mounts[0], mode="overlay", inside=f"{home}/{one.below_home}")
        for one in everything
        if one.below_home
    )
    policy = replace(policy, lent=(*policy.lent, *caches))
    chosen = tuple(one for one in everything if not one.below_home)
    if not chosen:
        return policy
    links = own_places(policy)
    places = {path for one in chosen for path in one.mounts}
    outer = sorted(path for path in places if not any(path.startswith(f"{other}/") for other in {*places, *links}))
    entries = [*dict.fromkeys(entry for one in chosen for entry in one.path), system_path]
    variables = {name: value for one in reversed(chosen) for name, value in one.environment.items()}
    lent = tuple(FolderRule(host=path, mode="ro", inside=path) for path in outer)
    environment = {**variables, "PATH": ":".join(entries), **policy.environment}
    taken = {*outer, *links, *(rule.inside for rule in policy.folders)}
    found = {link: target for one in chosen for link, target in one.links.items()}
    links |= {link: to for link, to in found.items() if not any(f"{link}/".startswith(f"{one}/") for one in taken)}
    return replace(policy, lent=(*policy.lent, *lent), environment=environment, links={**policy.links, **links})


class _Search:
    """`served` are the languages that something more particular has already been found for."""

    def __init__(self, folder: Path, environment: Mapping[str, str], home: Path) -> None:
        self.folder, self.home, self.environment = folder, home, environment
        self.roots = {manager: manager.place(environment, home) for manager in MANAGERS}
        self.served: set[str] = set()

    def in_the_folder(self) -> Iterator[Toolchain]:
        """Its virtual environments, with what they are made of, and the programs of its npm packages."""
        for name in _VENVS:
            venv = self.folder / name
            if isdir(venv / "conda-meta"):
                because, variable = f"{name} is in the folder", {"CONDA_PREFIX": str(venv)}
                yield Toolchain(name, because, (), (str(venv / "bin"),), variable)
            elif found := self._venv(venv, f"{name}/bin/python leads to it"):
                yield found
        if isdir(programs := self.folder / "node_modules" / ".bin"):
            yield Toolchain("node_modules", "it is in the folder", (), (str(programs),))

    def elsewhere(self) -> Iterator[Toolchain]:
        """The virtual environment of the user's shell, or that of poetry or pipenv, where the folder has none. That
        Stockade itself runs in one is no sign that the folder needs it: any other counts before.
        """
        active = Path(self.environment.get("VIRTUAL_ENV") or "/")
        is_own = realpath(active) == realpath(sys.prefix)
        of_shell = [(active, "it is active in your shell")] if active.is_absolute() else []
        kept = list(self._kept_for_it())
        for venv, because in (*kept, *of_shell) if is_own else (*of_shell, *kept):
            if "python" in self.served or self._holds_home(venv):
                continue
            if found := self._venv(venv, because):
                parts = (str(part) for part in _real(venv, (*_OF_A_PREFIX, _VENV_FILE)))
                yield replace(found, mounts=(*parts, *found.mounts), needed=not (is_own and venv == active))

    def _venv(self, venv: Path, because: str) -> Toolchain | None:
        """With the Python that it is made of; None where that may not be seen."""
        base = _base_of(venv)
        if base is None or not ((seen := self._of_prefix(base)) or _in_system(base)):
            return None
        self.served.add("python")
        return Toolchain(f"python of {venv.name}", because, seen, (str(venv / "bin"),), {"VIRTUAL_ENV": str(venv)})

    def _kept_for_it(self) -> Iterator[tuple[Path, str]]:
        """Those that are named by a hash of the folder's path, the one of the newest Python first."""
        for keeper in KEEPERS:
            if file := next((name for name in keeper.files if isfile(self.folder / name)), None):
                root = self._place(keeper)
                hashed = str(self.folder / keeper.hashed).rstrip("/").encode(errors="surrogateescape")
                digest = base64.urlsafe_b64encode(hashlib.sha256(hashed).digest()[:6]).decode()
                fitting = [name for name in _names_in(root) if re.search(f"-{digest}{keeper.ending}$", name)]
                newest = sorted(fitting, key=lambda name: [int(part) for part in re.findall(r"\d+", name[-6:])])[::-1]
                for name in newest:
                    yield root / name, f"{file} is in the folder"

    def _holds_home(self, path: Path) -> bool:
        """Or is it."""
        return self.home.is_relative_to(realpath(path))

    def _place(self, one: Cache | Keeper | Place) -> Path:
        """What its variable says, else below the home."""
        given = self.environment.get(one.variable, "")
        return Path(given) if given.startswith("/") else self.home / one.root

    def by_version_files(self) -> Iterator[Toolchain]:
        """What they ask for, where a manager has it; the file nearest to the folder counts."""
        for place in (self.folder, *self.folder.parents):
            if place == self.home:
                return
            for because, language, version in versions_of(place):
                if language not in self.served and (found := self._version(language, version, because)):
                    self.served.add(language)
                    yield found

    def on_the_path(self) -> Iterator[Toolchain]:
        entries = self.environment.get("PATH", "").split(":")
        for text in dict.fromkeys(entry.rstrip("/") for entry in entries if entry.startswith("/")):
            entry = Path(text)
            if text not in _SYSTEM_PATH and isdir(entry) and not entry.is_relative_to(self.folder):
                yield from self._of_entry(entry, f"{text} is on your PATH")

    def of_the_user(self) -> Iterator[Toolchain]:
        """What `pip install --user` installed for the system's Python, where there is a folder that has none."""
        base = self._place(USER_BASE)
        wanted = isdir(self.folder) and "python" not in self.served
        for site in sorted(base.glob("lib/python3*/site-packages")) if wanted else ():
            if isdir(Path("/usr/lib") / (version := site.parent.name)) and not self._holds_home(site):
                name, because = f"packages of pip install --user ({version})", f"{site} is in your home"
                inside = f".local/lib/{version}/site-packages"
                yield Toolchain(name, because, (str(site.resolve()),), needed=False, below_home=inside)
                scripts = {name for record in site.glob("*.dist-info/RECORD") for name in _scripts_in(record)}
                paths = (base / "bin" / name for name in sorted(scripts))
                seen = tuple(str(path) for path in paths if isfile(path) and not islink(path))
                if seen:
                    yield Toolchain(f"programs of {version}", because, seen, (str(base / "bin"),), needed=False)

    def caches(self) -> Iterator[Toolchain]:
        for cache in CACHES:
            wanted = (path.name for name in cache.files for path in sorted(self.folder.glob(name)) if isfile(path))
            because = next(wanted, None)
            program = shutil.which(cache.program, path=self.environment.get("PATH", "")) if cache.program else None
            if because and program and not _in_system(own := Path(realpath(program))) and own.name == cache.program:
                links = {abspath(program): str(own)} if islink(program) else {}
                entry = dirname(abspath(program)) if links else str(own.parent)
                why = f"{because} is in the folder"
                yield Toolchain(cache.program, why, (str(own),), (entry,), needed=False, links=links)
            path = self._place(cache) / cache.part
            if because and isdir(path) and not self._holds_home(real := path.resolve()):
                inside = f"{cache.root}/{cache.part}".rstrip("/")
                why = f"{because} is in the folder; what is written to it is thrown away"
                yield Toolchain(f"cache of {cache.name}", why, (str(real),), needed=False, below_home=inside)

    def _of_entry(self, entry: Path, because: str) -> Iterator[Toolchain]:
        real = entry.resolve()
        for manager, root in self.roots.items():
            if manager.shims and entry == root / manager.shims:
                yield from self._defaults(manager, because)
                return
        if entry == Path(self.environment.get("CARGO_HOME") or self.home / ".cargo") / "bin":
            yield from self._defaults(next(one for one in MANAGERS if one.name == "rustup"), because)
        if real.parent != self.home and any(entry == self._place(one) / "bin" for one in PROGRAMS):
            yield Toolchain(f"programs in {entry}", because, (str(real),), (str(real),), needed=False)
            return
        seen = self._of_prefix(real.parent)
        if seen or _in_system(real):
            yield Toolchain(real.parent.name, because, seen, (str(real),), needed=False)
        elif not isfile(real.parent / _VENV_FILE):
            yield from self._linked_from(entry, because)

    def _linked_from(self, entry: Path, because: str) -> Iterator[Toolchain]:
        """What links in a folder of the PATH lead to, as pipx, `uv tool` and npm set them; nothing else of it."""
        links: dict[str, str] = {}
        mounts: dict[str, None] = {}
        for link in (str(entry / name) for name in sorted(_names_in(entry)) if islink(entry / name)):
            if seen := self._around(program := Path(realpath(link)), entry.parent / "lib" / "node_modules"):
                links[link] = str(program)
                mounts |= dict.fromkeys(seen)
        if links:
            yield Toolchain(f"programs in {entry}", because, tuple(mounts), (str(entry),), needed=False, links=links)

    def _around(self, program: Path, packages: Path) -> tuple[str, ...]:
        """The virtual environment that a program has for itself, the global npm `packages`, or the installation."""
        prefix = program.parent.parent
        if self._holds_home(prefix) or program.is_relative_to(self.folder) or not isfile(program):
            return ()
        if program.is_relative_to(real := Path(realpath(packages))) and not self._holds_home(real):
            return tuple(dict.fromkeys((str(packages), str(real))))
        base = _base_of(prefix)
        if base and ((seen := self._of_prefix(base)) or _in_system(base)):
            return (*map(str, _real(prefix, (*_OF_A_PREFIX, _VENV_FILE))), *seen)
        return self._of_prefix(prefix)

    def _defaults(self, manager: Manager, because: str) -> Iterator[Toolchain]:
        """What somebody gets who has the manager's programs on the PATH, and no version named."""
        of_home = {language: version for _, language, version in versions_of(self.home)}
        for language in manager.languages or sorted(of_home):
            version = _default(manager, self.roots[manager], language) or of_home.get(language)
            if language in self.served or not version:
                continue
            if found := _install(manager, self.roots[manager], language, version, because):
                self.served.add(language)
                yield replace(found, needed=False)

    def _version(self, language: str, version: str, because: str) -> Toolchain | None:
        for manager, root in self.roots.items():
            fits = not manager.languages or language in manager.languages
            if fits and (found := _install(manager, root, language, version, because)):
                return found
        return None

    def _of_prefix(self, prefix: Path) -> tuple[str, ...]:
        """What may be seen of an installation: nothing of the system's, which is seen anyway, or of a folder that
        is no installation or has the home in it."""
        if _in_system(prefix) or self._holds_home(prefix) or not isdir(prefix):
            return ()
        if any(_inside_an_install(manager, root, prefix) for manager, root in self.roots.items()):
            return _with_its_links(prefix)
        if isdir(prefix / "conda-meta"):
            return _with_its_links(prefix)
        if prefix.is_relative_to("/nix/store"):
            return ("/nix/store",)
        if prefix.is_relative_to("/opt") and len(prefix.parts) > 2:
            return (str(Path(*prefix.parts[:3])),)
        if any(prefix.glob("lib/python3*/os.py")):
            return tuple(map(str, _real(prefix, _OF_A_PREFIX)))
        return ()


def _with_its_links(path: Path) -> tuple[str, ...]:
    """A version is often a link to a fuller name: both are asked for by what is inside."""
    return tuple(dict.fromkeys((str(path), str(path.resolve()))))


def _real(prefix: Path, names: Iterable[str]) -> list[Path]:
    """Those that are there and no links, as lib64 often is: nothing can be mounted at one."""
    return [path for name in names if exists(path := prefix / name) and not islink(path)]


def _in_system(path: Path) -> bool:
    return any(path.is_relative_to(system) for system in _SYSTEM)


def _inside_an_install(manager: Manager, root: Path, path: Path) -> bool:
    """Whether it is one version of the manager's, or lies in one."""
    root, parts = root.resolve(), manager.installs.split("/")
    if not path.is_relative_to(root):
        return False
    own = path.relative_to(root).parts
    named = zip(own, parts, strict=False)
    return len(own) >= len(parts) and all(part == wanted or "{" in wanted for part, wanted in named)


def _install(manager: Manager, root: Path, language: str, version: str, because: str) -> Toolchain | None:
    """With the folder of a version, the newest that begins with it: `3.12` is 3.12.4. By listing, never by joining."""
    above, _, below = manager.installs.partition("{version}")
    if "/" in language or language.startswith("."):
        return None
    place, inner = root / above.format(language=language), below.strip("/")
    wanted = version.removeprefix(manager.prefix)
    names = [name for name in _names_in(place) if isdir(place / name / inner)]
    of_version = {name: name.removeprefix(manager.prefix) for name in names if name.startswith(manager.prefix)}
    fitting = [name for name, own in of_version.items() if _begins_with(own, wanted)]
    exact = [name for name in fitting if of_version[name] == wanted]
    newest = sorted(exact or fitting, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    if not newest:
        return None
    install = place / newest[-1] / inner
    variables = {"JAVA_HOME": str(install)} if language == "java" else {}
    programs = install / "bin" if isdir(install / "bin") else install
    name = f"{language} {newest[-1]} ({manager.name})"
    return Toolchain(name, because, _with_its_links(install), (str(programs),), variables)


def _begins_with(version: str, wanted: str) -> bool:
    """Part by part: 3.1 is no beginning of 3.12."""
    rest = version.removeprefix(wanted)
    return bool(wanted) and version.startswith(wanted) and not rest[:1].isdigit()


def _base_of(venv: Path) -> Path | None:
    """The prefix of the Python that a virtual environment was made with, as its `home` says, or the link in it."""
    for line in text_of(venv / _VENV_FILE).splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home" and (home := Path(value.strip())).is_absolute():
            return home.parent if home.name == "bin" and ".." not in home.parts else None
    return None


def _default(manager: Manager, root: Path, language: str) -> str:
    """The version that the manager itself takes where nothing names one; "" when it does not say."""
    path = root / manager.default.format(language=language)
    if not manager.default:
        return ""
    if islink(path):
        below = manager.installs.partition("{version}")[2].count("/")
        return Path(realpath(path)).parts[-1 - below]
    text = text_of(path)
    if path.suffix == ".toml":
        return str(toml_of(text).get("default_toolchain", ""))
    if path.suffix == ".json":
        return next((version for _, version in of_json("node", text)), "")
    for _ in range(5):
        alias = root / "alias" / text.strip()
        if not text.strip() or ".." in text or not isfile(alias):
            break
        text = text_of(alias)
    return next(iter(text.split()), "")


def _scripts_in(record: Path) -> set[str]:
    """The programs of an installed package, which pip lists first."""
    try:
        with record.open(errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return set()
    return {Path(line.partition(",")[0]).name for line in lines if line.startswith("../../../bin/")}


def _names_in(folder: Path) -> list[str]:
    """None of a folder that is not there or may not be read."""
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []
