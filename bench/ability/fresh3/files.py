"""Files and folders: a second environment, checksums, lower case, the newest few."""

from pathlib import Path

from bench.ability.checks import every, names, text, unchanged
from bench.ability.task import Check, Task, bash

_DEV = {
    "env-dev/app.yaml": "debug: true\nworkers: 1\n",
    "env-dev/.env": "REGION=eu-west\n",
    "env-dev/certs/ca.pem": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "env-dev/certs/README": "self-signed, for dev only\n",
}
_DIST = {
    "dist/agent-linux-amd64": "agent for linux amd64\n",
    "dist/agent-linux-arm64": "agent for linux arm64\n",
    "dist/agent-windows.exe": "agent for windows\n",
}
_ASSETS = ("Logo.SVG", "HeroImage.PNG", "favicon.ico", "Team-Photo.jpg", "FONTS.css")
_DUMPS = tuple(f"db-2026-{day}.sql" for day in ("04-28", "04-29", "04-30", "05-01", "05-02", "05-03", "05-04"))


def _all_unchanged(files: dict[str, str]) -> Check:
    return every(*(unchanged(name, content) for name, content in files.items()))


def _has_copy(folder: Path) -> bool:
    wanted = {name.removeprefix("env-dev/"): content for name, content in _DEV.items()}
    found = {name: (folder / "env-staging" / name).read_text() for name in names(folder / "env-staging")}
    return found == wanted


def _has_sums(folder: Path) -> bool:
    """With or without the sign of binary mode and a leading ./"""
    found = [line.split(maxsplit=1) for line in text(folder / "dist/SHA256SUMS").splitlines() if line.strip()]
    listed = {name.strip().removeprefix("*").removeprefix("./") for _, name in found}
    return listed == {name.removeprefix("dist/") for name in _DIST}


def _sums_are_right(folder: Path) -> bool:
    return bash("cd dist && sha256sum --strict -c SHA256SUMS", folder).returncode == 0


def _is_lower(folder: Path) -> bool:
    found = {name: (folder / "assets" / name).read_text() for name in names(folder / "assets")}
    return found == {name.lower(): f"{name}\n" for name in _ASSETS}


def _has_newest(folder: Path) -> bool:
    found = {name: (folder / "backups" / name).read_text() for name in names(folder / "backups")}
    return found == {name: f"-- {name}\n" for name in _DUMPS[-3:]}


TASKS = (
    Task(
        "files-clone", "files", 1,
        "We need a staging environment that starts out as a copy of dev. Copy the folder env-dev with everything in it"
        " to a new folder env-staging.",
        every(_has_copy, _all_unchanged(_DEV)),
        "cp -r env-dev env-staging",
        _DEV,
    ),
    Task(
        "files-checksums", "files", 1,
        "Create a file SHA256SUMS in dist with the SHA-256 checksums of the three binaries in there, in the usual"
        " format, so that users can run sha256sum -c SHA256SUMS in that folder.",
        every(_has_sums, _sums_are_right, _all_unchanged(_DIST)),
        "cd dist && sha256sum agent-* > SHA256SUMS",
        _DIST,
    ),
    Task(
        "files-lower", "files", 2,
        "Our web server is case sensitive and people keep mistyping the URLs. Rename the files in assets so that all"
        " the names are lower case, extensions too.",
        _is_lower,
        'cd assets; for f in *; do n=${f,,}; if [ "$f" != "$n" ]; then mv "$f" "$n"; fi; done',
        {f"assets/{name}": f"{name}\n" for name in _ASSETS},
    ),
    Task(
        "files-keep", "files", 2,
        "The folder backups has one database dump per day, with the date in the file name. Keep only the three newest"
        " ones and delete the others.",
        _has_newest,
        "cd backups && ls | sort | head -n -3 | xargs rm",
        {f"backups/{name}": f"-- {name}\n" for name in _DUMPS},
    ),
)  # fmt: skip
