"""Container images written by hand: a layer is a tar, an image an OCI layout or what `docker save` writes."""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
NAME = "org.opencontainers.image.ref.name"


def entry(name: str, data: bytes = b"", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    """An entry of a layer; a name that ends in `/` is a folder's."""
    info = tarfile.TarInfo(name.rstrip("/") or name)
    info.size, info.mode = len(data), 0o644
    if name.endswith("/"):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    for field, value in more.items():
        setattr(info, field, value)
    return info, data


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, type=kind, linkname=to)


def layer(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def config(layers: Sequence[bytes], settings: Mapping[str, Any], architecture: str = ARCHITECTURE) -> bytes:
    rootfs = {"type": "layers", "diff_ids": [digest(one) for one in layers]}
    found = {"architecture": architecture, "os": "linux", "config": dict(settings), "rootfs": rootfs}
    return json.dumps(found).encode()


class Layout:
    """An OCI layout in `folder`, an image of it at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self.manifests: list[dict[str, Any]] = []

    def blob(self, data: bytes, kind: str) -> dict[str, Any]:
        (self.folder / "blobs/sha256" / digest(data).partition(":")[2]).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data)}

    def add(self, *layers: bytes, name: str = "", zipped: bool = True, **settings: Any) -> str:
        """Its manifest's digest."""
        blobs = [self.blob(gzip.compress(one, mtime=0) if zipped else one, "layer.v1.tar") for one in layers]
        about = self.blob(config(layers, settings), "config.v1+json")
        manifest = {"schemaVersion": 2, "config": about, "layers": blobs}
        found = self.blob(json.dumps(manifest).encode(), "manifest.v1+json")
        self.manifests.append({**found, "annotations": {NAME: name}} if name else found)
        self.index(self.manifests)
        return str(found["digest"])

    def index(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": list(manifests)}))


def save(file: Path, *layers: bytes, **settings: Any) -> Path:
    """As `docker save` writes it."""
    about = config(layers, settings)
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    told = [{"Config": "config.json", "RepoTags": ["made:here"], "Layers": names}]
    file.write_bytes(layer(entry("config.json", about), entry("manifest.json", json.dumps(told).encode()),
                           *(entry(name, data) for name, data in zip(names, layers, strict=True))))  # fmt: skip
    return file


def of_folder(folder: Path) -> bytes:
    """A layer with all that is in it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(folder, ".")
    return file.getvalue()
