"""Where this machine's packages come from, and the names of other registries. Nothing is asked of anybody."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

REGISTRIES = {"pypi": ("pypi.org", "files.pythonhosted.org"), "npm": ("registry.npmjs.org",)}


def named_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """With the registries that have a name, `apt` being wherever this machine's packages come from."""
    found: list[str] = []
    for host in hosts:
        found += apt_hosts() if host == "apt" else REGISTRIES.get(host, (host,))
    return tuple(dict.fromkeys(found))


def copy_apt_sources(apt: Path, hosts: Sequence[str], machine: Path = Path("/etc/apt")) -> None:
    """The machine's own, as far as they are on `hosts`; none with a password in its address."""
    target = apt / "sources.list.d"
    target.mkdir(parents=True)
    for path in _sources(machine):
        separator = "\n" if path.suffix == ".list" else "\n\n"
        blocks = path.read_text(errors="replace").split(separator)
        kept = [block for block in blocks if _only_of(block, hosts)]
        (target / path.name).write_text(separator.join(kept) + "\n")


def _addresses(block: str) -> list[SplitResult]:
    """Of package sources, in either of apt's forms; what is no address of a host is one of an empty name."""
    lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
    found = []
    for word in (word for line in lines for word in line.split() if "://" in word or word.startswith("cdrom:")):
        try:
            found.append(urlsplit(word))
        except ValueError:
            found.append(urlsplit(""))
    return found


def _only_of(block: str, hosts: Sequence[str]) -> bool:
    names = {host.partition(":")[0] for host in hosts}
    found = _addresses(block)
    return bool(found) and all(address.hostname in names and "@" not in address.netloc for address in found)


def _sources(machine: Path) -> Iterator[Path]:
    for path in (machine / "sources.list", *sorted(machine.glob("sources.list.d/*"))):
        if path.suffix in (".list", ".sources") and path.is_file() and os.access(path, os.R_OK):
            yield path


def apt_hosts(machine: Path = Path("/etc/apt")) -> tuple[str, ...]:
    """The hosts, with their ports, that this machine's administrator has it fetch packages from."""
    found = set()
    for path in _sources(machine):
        for address in _addresses(path.read_text(errors="replace")):
            if address.hostname and "@" not in address.netloc:
                found.add(address.netloc.lower())
    return tuple(sorted(found))
