"""Adds to a CycloneDX file what no package manager knows of: the C library in the sandbox's static programs.

    python3 .ci/musl.py dist/stockade.cdx.json

x86-64's are built by Debian 12's musl-tools, aarch64's by the zig of PyPI (0.17.0: its lib/libc/musl).
"""

import json
import sys
from pathlib import Path

BUILT_WITH = {"x86_64": ("1.2.3", "Debian's musl-tools 1.2.3-1"), "aarch64": ("1.2.5", "ziglang 0.17.0 of PyPI")}


def main(file: Path) -> None:
    bom = json.loads(file.read_text())
    for machine, (version, builder) in BUILT_WITH.items():
        ref = f"musl-{machine}=={version}"
        bom["components"].append({
            "bom-ref": ref,
            "type": "library",
            "name": "musl",
            "version": version,
            "description": f"linked into agent-{machine} and launch-{machine} of stockade-sandbox by {builder}",
            "licenses": [{"license": {"id": "MIT", "acknowledgement": "declared"}}],
            "purl": f"pkg:generic/musl@{version}?arch={machine}",
        })  # fmt: skip
        bom["dependencies"].append({"ref": ref})
        for one in bom["dependencies"]:
            if one["ref"].startswith("stockade-sandbox"):
                one.setdefault("dependsOn", []).append(ref)
    file.write_text(json.dumps(bom, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
