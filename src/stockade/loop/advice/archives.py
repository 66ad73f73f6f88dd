"""Commands that pack or list an archive, and not as the task says."""

import re

from stockade.loop.advice.said import INSTEAD

_ARCHIVE_LISTED = re.compile(
    r"\bls(?:\s+-\w+)*\s+(?P<file>[\w./-]+\.(?:zip|jar|tar|tgz|tar\.\w{2,4}))\s*\|\s*wc(?:\s+-l)?"
)
_PACKS = re.compile(r"\b(?:(?P<tar>tar)\s+(?:-\w*c|c\w*\b|--create)|zip\s)")
_LEFT_OUT = re.compile(
    r"\b(?:without|except(?: for)?|excluding|leav\w+ out|but not|other than)\b[^.;\n]{0,30}?"
    r"\s\*?(?P<suffix>\.\w{1,5})\b"
)
_OTHER_PACKER = re.compile(
    r"\b(?:zip(?:\s+-\w+)*\s+(?P<tar>[\w./-]+\.(?:tar(?:\.gz)?|tgz))|tar\s+-?\w*c\w*\s+(?P<zip>[\w./-]+\.zip))\b"
)


def _archive_not_opened(command: str, task: str) -> str | None:
    if not (found := _ARCHIVE_LISTED.search(command)):
        return None
    lists = "unzip -Z1" if found["file"].endswith((".zip", ".jar")) else "tar -tf"
    way = command.replace(found[0], f"{lists} {found['file']} | grep -vc '/$'")
    return f"ls does not look into {found['file']}: it is one line. {INSTEAD}{way}"


def _packed_all(command: str, task: str) -> str | None:
    left_out, packs = _LEFT_OUT.search(task), _PACKS.search(command)
    if not left_out or not packs or re.search(r"--exclude|\s-x\b", command):
        return None
    glob = f"'*{left_out['suffix']}'"
    way = re.sub(r"\btar\b", f"tar --exclude={glob}", command, count=1) if packs["tar"] else f"{command} -x {glob}"
    return f"that packs the {left_out['suffix']} files too. {INSTEAD}{way}"


def _other_packer(command: str, task: str) -> str | None:
    if not (found := _OTHER_PACKER.search(command)):
        return None
    if found["tar"] and (old := re.search(r"[\w./-]+\.zip\b", command)):
        place = f"{found['tar']}.files"
        way = f"mkdir {place} && unzip -q {old[0]} -d {place} && tar -czf {found['tar']} -C {place} . && rm -r {place}"
        return f"zip makes a zip file, whatever its name. {INSTEAD}{way}"
    if found["tar"]:
        return f"zip makes a zip file, whatever its name. Make {found['tar']} with tar."
    return f"tar makes a tar file, whatever its name. Make {found['zip']} with zip."


RULES = (_archive_not_opened, _packed_all, _other_packer)
