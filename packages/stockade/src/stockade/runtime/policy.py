"""The policy that settings say: plain data, made without a model, a record or the checks of a RunSpec."""

import os
import re
from dataclasses import replace
from glob import iglob
from os.path import expanduser, isfile
from pathlib import Path
from typing import Any

from stockade.core.errors import UsageError
from stockade.core.settings import RunSettings
from stockade.paths import state_dir
from stockade_sandbox import registry
from stockade_sandbox.git_links import borrows, git_link
from stockade_sandbox.limits.machine import usual_limits
from stockade_sandbox.policy import (
    WORKSPACE,
    CopyRule,
    Credential,
    FolderMode,
    FolderRule,
    Limits,
    Policy,
    SshAccount,
    is_image_file,
    own_places,
    parse_credential,
    parse_folder,
    parse_network,
    parse_size,
    parse_ssh_account,
)

_SETTINGS = ("commit.gpgsign=false", "tag.gpgsign=false", "gc.auto=0", "gc.packrefs=false", "maintenance.auto=false")
_GIT = {"GIT_CONFIG_PARAMETERS": " ".join(f"'{setting}'" for setting in _SETTINGS)}
"""Git inside: no key to sign with is there, and branches stay files, which the review reads (overlay.commits). What
`git -c` itself sets; it is no GIT_CONFIG_KEY_0, whose value would be taken for a secret.
"""


_GIT_USER = "/git/config"


def _git_user(folder: str) -> dict[str, str]:
    """The user's name, for what is committed inside, as the weakest of git's settings there: a file, of its text."""
    found = registry.load("overlay.git_config:identity")(Path(folder))
    quoted = ((key, re.sub(r'[\\"]', r"\\\g<0>", value)) for key, value in found.items() if value.isprintable())
    lines = [f'\t{key} = "{value}"\n' for key, value in quoted]
    return {_GIT_USER: "".join(["[include]\n\tpath = /etc/gitconfig\n[user]\n", *lines])} if lines else {}


_BUILDERS = {"CMakeLists.txt": "CMakeCache.txt", "meson.build": "meson-private/coredata.dat"}
"""What says that one is used, and what it leaves in each folder that it builds in."""
_DEEP = ("", "*/", "*/*/", "*/*/*/")


def _is_built(rule: FolderRule) -> bool:
    """By a tool whose files say where the folder is on this machine: they work at no other path."""
    left = [name for file, name in _BUILDERS.items() if isfile(f"{rule.host}/{file}")]
    patterns = [above + name for name in left for above in _DEEP]
    return any(any(iglob(pattern, root_dir=rule.host, include_hidden=True)) for pattern in patterns)


def _has_git(rule: FolderRule) -> bool:
    return os.path.lexists(f"{rule.host}/.git")


def make_policy(spec: RunSettings, default_mode: FolderMode) -> Policy:
    """The policy of the flags. The first folder is /workspace, others are /folders/NAME."""
    folders: list[FolderRule] = []
    for number, text in enumerate(spec.folder):
        rule = parse_folder(text, default_mode, WORKSPACE)
        folders.append(rule if not number else replace(rule, inside=f"/folders/{Path(rule.host).name}"))
    real = [os.path.realpath(rule.host) for rule in folders]
    for number, rule in enumerate(folders):
        if real[number] in real[:number]:
            raise UsageError(f"the folder {rule.host} is given twice", "give it once, with one mode")
    if len({rule.inside for rule in folders}) != len(folders):
        raise UsageError("two folders have the same name", "rename one of them, or mount their parent")
    repositories = [link for link in map(git_link, folders) if link is not None]
    own = next((rule.host for rule in folders if _has_git(rule)), None)
    files = {} if own is None else _git_user(own)
    shown = [link.folder for link in repositories if link.folder is not None]
    added = {rule.inside: rule for rule in shown if os.path.realpath(rule.host) not in real}
    policy = Policy(
        folders=(*folders, *added.values()),
        links={place: target for link in repositories for place, target in link.links.items()},
        copies=tuple(_copy_rule(text) for text in spec.copy_in),
        files=files,
        network=parse_network(spec.net),
        limits=_limits(spec),
        environment={
            **({} if own is None else _GIT),
            **({"GIT_CONFIG_SYSTEM": _GIT_USER} if files else {}),
            **environment_of(spec),
        },
        rootfs=image_from(spec.image, Path()),
        streams=spec.streams,
        credentials=tuple(map(credential_of, spec.credential)),
        ssh_agent=tuple(map(ssh_account_of, spec.ssh_agent)),
        authorities=_authorities(spec.ca),
    )
    if spec.image or not any(map(_is_built, folders)):
        return policy
    return replace(policy, links={**own_places(policy), **policy.links})


def image_from(image: str | None, where: Path) -> str | None:
    """With the whole path of one that is a file, as seen from `where`: a run may go on from another folder."""
    if image is None or not is_image_file(image):
        return image
    kind, _, path = image.partition(":")
    return f"{kind}:{(where / expanduser(path)).absolute()}"


def unshown(policy: Policy) -> list[str]:
    """Of its folders, why git will not work in some: what they name elsewhere does not name them, or is not given."""
    links = [link.problem for link in map(git_link, policy.folders) if link is not None]
    return [problem for problem in (*links, *map(borrows, policy.folders)) if problem]


def _authorities(files: tuple[str, ...]) -> tuple[str, ...]:
    """As they are now: a run that goes on trusts the same."""
    return tuple(map(registry.load("egress.trust:read_authorities"), files)) if files else ()


def _copy_rule(text: str) -> CopyRule:
    host, _, inside = text.partition(":")
    path = Path(expanduser(host)).absolute()
    if not os.path.exists(path):
        raise UsageError(f"--copy {host}: there is no such file or folder")
    return CopyRule(host=str(path), inside=inside or f"/copied/{path.name}")


def _limits(spec: RunSettings) -> Limits:
    limits: dict[str, Any] = {
        "processes": spec.processes,
        "cpus": spec.cpus,
        "command_timeout_s": spec.command_timeout,
        "longest_command_s": spec.command_timeout,
    }
    for name, text in (("memory_bytes", spec.memory), ("disk_bytes", spec.disk)):
        limits[name] = None if text is None else parse_size(text)
    if "://" not in spec.sandbox:  # another machine has another memory
        for name, usual in usual_limits(state_dir()).items():
            limits[name] = usual if limits[name] is None else limits[name]
    if limits["disk_bytes"] is not None:
        limits["file_bytes"] = limits["disk_bytes"] // 2
    try:
        return Limits(**{name: value for name, value in limits.items() if value is not None})
    except ValueError as error:
        raise UsageError(str(error)) from None


def environment_of(spec: RunSettings) -> dict[str, str]:
    """The variables that the sandbox is given. UsageError for what is none, or not set here."""
    return dict(_variable(text) for text in spec.env)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise UsageError(
            f"--env {name!r} is not the name of a variable", "write NAME=VALUE; a name is of letters, digits and _"
        )
    if not equals:
        if name not in os.environ:
            raise UsageError(f"--env {name}: the variable is not set here", f"write --env {name}=VALUE")
        value = os.environ[name]
    return name, value


def credential_of(text: str) -> Credential:
    """UsageError for what is none, and for a variable that is not set here."""
    try:
        found = parse_credential(text)
    except ValueError as error:
        raise UsageError(f"--credential: {error}") from None
    if not found.source and not os.environ.get(found.name):
        what = "is empty here" if found.name in os.environ else "is not set here"
        raise UsageError(f"--credential {found.name}: the variable {what}", f"export {found.name}=..., outside only")
    return found


def ssh_account_of(text: str) -> SshAccount:
    """UsageError for what is none."""
    try:
        return parse_ssh_account(text)
    except ValueError as error:
        raise UsageError(f"--ssh-agent: {error}") from None
