"""A sandbox as a backend of deepagents and LangChain: `create_deep_agent(backend=StockadeBackend(box))`, with an open
`stockade_sandbox.Sandbox`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from stockade_sandbox import Sandbox

DEFAULT_TIMEOUT_S = 120
MAX_OUTPUT = 1 << 20
_ERRORS = {
    FileNotFoundError: "file_not_found",
    IsADirectoryError: "is_directory",
    NotADirectoryError: "invalid_path",
    PermissionError: "permission_denied",
}


class StockadeBackend(BaseSandbox):
    """`box` stays its maker's, who ends it. Calls may come from any thread, several at once. `timeout` in seconds,
    where a call says none; what the policy bounds a command to stands.
    """

    def __init__(self, box: Sandbox, timeout: int = DEFAULT_TIMEOUT_S) -> None:
        self._box, self._timeout, self._id = box, timeout, f"stockade-{uuid4().hex}"

    @property
    def id(self) -> str:
        return self._id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        limit = self._timeout if timeout is None else timeout or None
        words = ["sh", "-c", 'exec sh -c "$1" 2>&1', "sh", command]
        done = self._box.exec(words, timeout=limit, max_output=MAX_OUTPUT)
        return ExecuteResponse(output=done.text + done.stderr.decode(errors="replace"), exit_code=done.exit_code,
                               truncated=done.truncated)  # fmt: skip

    def upload_files(self, files: Sequence[tuple[str, bytes]]) -> list[FileUploadResponse]:
        errors = [_tried(path, partial(self._box.write_file, path, data))[1] for path, data in files]
        return [FileUploadResponse(path=path, error=error) for (path, _), error in zip(files, errors, strict=True)]

    def download_files(self, paths: Sequence[str]) -> list[FileDownloadResponse]:
        found = {path: _tried(path, partial(self._box.read_file, path)) for path in paths}
        return [FileDownloadResponse(path=path, content=found[path][0], error=found[path][1]) for path in paths]


def _tried(path: str, call: Callable[[], Any]) -> tuple[Any, Any]:
    """What it gives, or the name of its error."""
    if not path.startswith("/"):
        return None, "invalid_path"
    try:
        return call(), None
    except tuple(_ERRORS) as error:
        return None, next(name for kind, name in _ERRORS.items() if isinstance(error, kind))
    except OSError:
        return None, "permission_denied"
