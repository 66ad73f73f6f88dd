"""The web page: static files beside this one, under a strict CSP. What they show comes from the API, by a cookie."""

from pathlib import Path

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse

_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES = {path.name: path for path in Path(__file__).parent.iterdir() if path.suffix in _KINDS}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
}
page = APIRouter(include_in_schema=False)


@page.get("/")
async def index() -> FileResponse:
    """The one page there is; what it shows is behind the # of its address."""
    return await static("index.html")


@page.get("/page/{name}")
async def static(name: str) -> FileResponse:
    """One of the files."""
    if (path := _FILES.get(name)) is None:
        raise HTTPException(404)
    return FileResponse(path, media_type=_KINDS[path.suffix], headers=_HEADERS)
