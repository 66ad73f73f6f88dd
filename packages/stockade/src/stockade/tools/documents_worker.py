"""Text from a file: runs inside a sealed sandbox, as a program of its own, never on the host.

Standard input is the file, the first argument a JSON object of options, the others folders of libraries. Standard
output is one JSON object: what Document in reader.py holds, or `error`. What it does not expect ends it with a
traceback, whose last line the reader shows. Imports nothing of Stockade: it is given to Python as text.
"""

import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from html import escape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin
from xml.etree import ElementTree

PART_CHARS = 3000
MAX_UNPACKED = 64 << 20
MAX_LINKS = 40
Options = dict[str, Any]
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


class Unreadable(Exception):
    """Why there is no text in it."""


class Missing(Unreadable):
    """Nothing here reads it. Arguments: the optional part that would, and why."""


def decode(data: bytes, declared: str = "") -> str:
    """A byte order mark, then UTF-8 where it fits, then what was declared: servers are wrong about that often."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(name, "replace").lstrip("\ufeff")
    found = _DECLARED.search(data[:4096])
    for name in ("utf-8", declared, found[1].decode() if found else "", "windows-1252"):
        try:
            return data.decode(name) if name else data.decode("ascii")
        except (LookupError, ValueError):
            continue
    return data.decode("utf-8", "replace")


def split(text: str) -> list[str]:
    """Parts of about PART_CHARS, cut at line ends where there are any."""
    parts, part, size = [], list[str](), 0
    for line in text.splitlines(keepends=True):
        for piece in (line[at : at + PART_CHARS] for at in range(0, len(line), PART_CHARS)):
            if part and size + len(piece) > PART_CHARS:
                parts.append("".join(part))
                part, size = [], 0
            part.append(piece)
            size += len(piece)
    return [*parts, "".join(part)] if part or not parts else parts


def pdf(data: bytes, options: Options) -> Options:
    try:
        import pypdf  # noqa: PLC0415
        from pypdf.errors import DependencyError, PyPdfError  # noqa: PLC0415
    except ImportError:
        raise Missing("documents", "a PDF needs pypdf here") from None
    bad = (PyPdfError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, ArithmeticError,
           AssertionError, OSError)  # fmt: skip
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("the PDF is encrypted: it wants a password")
        total = len(reader.pages)
    except DependencyError:
        raise Unreadable("the PDF is encrypted") from None
    except bad as error:
        raise Unreadable(f"the PDF is broken: {type(error).__name__}: {error}") from None
    first, last = wanted(options, total)
    pages, left = list[str](), int(options["max_chars"])
    for number in range(first, last + 1):
        try:
            pages.append(reader.pages[number - 1].extract_text())
        except bad as error:
            pages.append(f"[this page cannot be read: {type(error).__name__}]")
        left -= len(pages[-1])
        if left <= 0:
            break
    title = ""
    with suppress(*bad):
        found = reader.metadata
        title = str(found.get("/Title") or "") if found else ""
    if not any(page.strip() for page in pages):
        pages = ["[no text on these pages: they are pictures, for which OCR is needed]"]
    return {"kind": "PDF", "unit": "page", "title": title, "total": total, "first": first, "pages": pages}


def docx(data: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        with archive.open("word/document.xml") as stream:
            xml = stream.read(MAX_UNPACKED + 1)
    if len(xml) > MAX_UNPACKED:
        raise Unreadable(f"it unpacks to more than {MAX_UNPACKED >> 20} MiB")
    if b"<!DOCTYPE" in xml:
        raise Unreadable("its XML has a document type, which no word processor writes")
    body = ElementTree.fromstring(xml).find(f"{_W}body")
    return "\n".join(_blocks(body)) if body is not None else ""


def _blocks(body: ElementTree.Element) -> Iterator[str]:
    for block in body:
        if block.tag == f"{_W}p":
            yield _paragraph(block)
        elif block.tag == f"{_W}tbl":
            for row in block.iter(f"{_W}tr"):
                cells = (" ".join(filter(None, map(_paragraph, cell.iter(f"{_W}p")))) for cell in row.iter(f"{_W}tc"))
                yield "| " + " | ".join(cells) + " |"
        elif block.tag == f"{_W}sdt":
            content = block.find(f"{_W}sdtContent")
            if content is not None:
                yield from _blocks(content)


def _paragraph(paragraph: ElementTree.Element) -> str:
    text = ""
    for node in paragraph.iter():
        if node.tag == f"{_W}t":
            text += node.text or ""
        elif node.tag in (f"{_W}tab", f"{_W}br", f"{_W}cr"):
            text += "\t" if node.tag == f"{_W}tab" else "\n"
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    heading = re.fullmatch(r"[Hh]eading\s?([1-6])", style.get(f"{_W}val", "")) if style is not None else None
    if heading:
        return f"{'#' * int(heading[1])} {text}"
    return f"- {text}" if paragraph.find(f"{_W}pPr/{_W}numPr") is not None else text


def notebook(data: bytes) -> str:
    found = json.loads(data)
    language = str(found.get("metadata", {}).get("kernelspec", {}).get("language", "python"))
    lines = list[str]()
    for number, cell in enumerate(found["cells"], 1):
        source = _joined(cell.get("source"))
        if cell.get("cell_type") == "code":
            lines.append(f"[{number}] ```{language}\n{source}\n```")
            lines += [f"Output:\n{text}" for text in map(_output, cell.get("outputs") or ()) if text]
        else:
            lines.append(f"[{number}] {source}")
    return "\n\n".join(lines)


def _joined(source: Any) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _output(output: Any) -> str:
    if output.get("output_type") == "stream":
        return _ANSI.sub("", _joined(output.get("text"))).rstrip()
    if output.get("output_type") == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    data = output.get("data") or {}
    if "text/plain" in data:
        return _ANSI.sub("", _joined(data["text/plain"])).rstrip()
    return f"[{', '.join(map(str, data))}]" if data else ""


class Html(HTMLParser):
    """All that is seen of a page: text by blocks, headings and items marked, links apart. What is hidden stays out.

    `kept` is the page itself without that.
    """

    VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
    UNSEEN = re.compile("script|style|noscript|template|svg|iframe|object|select|datalist")
    BLOCKS = re.compile(
        "p|div|section|article|main|header|footer|nav|aside|ul|ol|table|tr|blockquote|pre|form|figure|dl|dt|dd|h[1-6]|"
        "li|hr|address|details|summary|fieldset|figcaption|title"
    )
    UNCLOSED = re.compile("p|li|tr|td|th|dt|dd|option")
    HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0(?![.\d])", re.I)

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base, self.title = base, ""
        self.text, self.kept, self.links = list[str](), list[str](), dict[str, str]()
        self.open = list[tuple[str, bool]]()
        self.link: tuple[str, int] | None = None

    @property
    def unseen(self) -> bool:
        return bool(self.open) and self.open[-1][1]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if self.BLOCKS.fullmatch(tag) and not self.unseen:
            self.text.append("\n" + ("#" * int(tag[1]) + " " if re.fullmatch("h[1-6]", tag) else "- " * (tag == "li")))
        elif tag == "br":
            self.text.append("\n")
        elif tag in ("td", "th"):
            self.text.append(" | ")
        if tag == "base" and named.get("href"):
            self.base = urljoin(self.base, named["href"])
        if self.VOID.fullmatch(tag):
            self._keep_tag()
            return
        if self.open and self.open[-1][0] == tag and self.UNCLOSED.fullmatch(tag):
            self.open.pop()
        hidden = "hidden" in named or named.get("aria-hidden") == "true" or self.HIDDEN.search(named.get("style", ""))
        self.open.append((tag, self.unseen or bool(self.UNSEEN.fullmatch(tag) or hidden)))
        self._keep_tag()
        if tag == "a" and named.get("href") and not self.unseen:
            self.link = (named["href"], len(self.text))

    def _keep_tag(self) -> None:
        if not self.unseen:
            self.kept.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        was_seen = not self.unseen
        for place in range(len(self.open) - 1, max(-1, len(self.open) - 50), -1):
            if self.open[place][0] == tag:
                was_seen = not self.open[place][1]
                del self.open[place:]
                break
        if was_seen:
            self.kept.append(f"</{tag}>")
        if self.BLOCKS.fullmatch(tag) and not self.unseen:
            self.text.append("\n")
        if tag == "a" and self.link is not None:
            href, place = self.link
            self._keep(href, " ".join("".join(self.text[place:]).split()))
            self.link = None

    def _keep(self, href: str, words: str) -> None:
        try:
            url = urldefrag(urljoin(self.base, href.strip()))[0]
        except ValueError:
            return
        known = url in self.links or url == urldefrag(self.base)[0] or len(self.links) >= MAX_LINKS
        if words and not known and url.startswith(("http://", "https://")) and len(url) <= 500:
            self.links[url] = words[:120]

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] == "title" and not self.title:
            self.title = " ".join(data.split())[:300]
            self.kept.append(escape(self.title))
        elif not self.unseen:
            self.kept.append(escape(data))
            in_pre = any(tag == "pre" for tag, _ in self.open[-8:])
            self.text.append(data.replace(" ", "\u00a0") if in_pre else re.sub(r"[^\S\u00a0]+", " ", data))

    def seen(self) -> str:
        lines = [line.strip(" ") for line in "".join(self.text).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n ").replace("\u00a0", " ")


def html(text: str, url: str) -> Html:
    page = Html(url)
    page.feed(text)
    page.close()
    return page


def article(text: str, url: str) -> str:
    """The main text of a web page, without menus and footers, as Markdown; empty when none is found or known how."""
    try:
        import trafilatura  # noqa: PLC0415
    except ImportError:
        return ""
    return trafilatura.extract(text, url=url or None, output_format="markdown", include_comments=True) or ""


def read(data: bytes, options: Options) -> Options:
    name, kind = str(options["name"]).lower(), str(options["type"])
    if b"%PDF-" in data[:1024]:
        return pdf(data, options)
    if data.startswith(b"PK\x03\x04"):
        return parts("DOCX", docx(opened(data)), options)
    if name.endswith(".ipynb"):
        try:
            return parts("notebook", notebook(data), options)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unreadable(f"it is not a notebook: {type(error).__name__}: {error}") from None
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(f"it is not text, but {what(data)}")
    text = decode(data, str(options["charset"]))
    if (
        kind == "html"
        or name.endswith((".html", ".htm", ".xhtml"))
        or re.match(r"\s*<(!doctype html|html)", text, re.I)
    ):
        page = html(text, str(options["url"]))
        main = article("".join(page.kept), str(options["url"])) if options["main"] else ""
        return {**parts("HTML", main or page.seen(), options), "title": page.title, "links": list(page.links.items())}
    return parts("text", text, options)


def opened(data: bytes) -> bytes:
    """Unreadable for an archive that is no DOCX, saying what it is."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError) as error:
        raise Unreadable(f"it is a broken archive: {error}") from None
    if "word/document.xml" in names:
        return data
    known = {"xl/workbook.xml": "an Excel file", "ppt/presentation.xml": "a PowerPoint file"}
    found = next((words for name, words in known.items() if name in names), f"a ZIP archive of {len(names)} files")
    raise Unreadable(f"it is {found}: use the shell (unzip, python3)")


def what(data: bytes) -> str:
    signs = {b"\x89PNG": "a PNG picture", b"\xff\xd8\xff": "a JPEG picture", b"GIF8": "a GIF picture",
             b"\x7fELF": "a program", b"\x1f\x8b": "gzip data", b"\xd0\xcf\x11\xe0": "an old Office file",
             b"SQLite format 3": "a SQLite database"}  # fmt: skip
    return next((words for sign, words in signs.items() if data.startswith(sign)), "binary data")


def parts(kind: str, text: str, options: Options) -> Options:
    pages = split(text)
    first, last = wanted(options, len(pages))
    kept, left = list[str](), int(options["max_chars"])
    for page in pages[first - 1 : last]:
        kept.append(page)
        left -= len(page)
        if left <= 0:
            break
    return {"kind": kind, "unit": "part", "total": len(pages), "first": first, "pages": kept,
            "lines": len(text.splitlines()), "characters": len(text)}  # fmt: skip


def wanted(options: Options, total: int) -> tuple[int, int]:
    first, last = int(options["first"]), int(options["last"]) or total
    if first > total:
        raise Unreadable(f"it has no page {first}: the last one is {total}" if total else "it has no pages")
    return first, min(last, total)


def main() -> None:
    sys.path.extend(sys.argv[2:])
    try:
        answer = read(sys.stdin.buffer.read(), json.loads(sys.argv[1]))
    except Missing as error:
        answer = {"error": error.args[1], "extra": error.args[0]}
    except Unreadable as error:
        answer = {"error": str(error)}
    except (zipfile.BadZipFile, ElementTree.ParseError, KeyError, NotImplementedError) as error:
        answer = {"error": f"it is broken: {type(error).__name__}: {error}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
