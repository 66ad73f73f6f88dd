"""Documents made by hand, byte by byte, so that tests know all that is in them."""

import io
import json
import zipfile
from collections.abc import Sequence


def pdf(pages: Sequence[str], title: str = "") -> bytes:
    """One line of Helvetica a page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
               f"<< /Title ({title}) >>"]  # fmt: skip
    kids = []
    for page in pages:
        content = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET"
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects) + 2} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def docx(body: str, prolog: str = "") -> bytes:
    """`body` is WordprocessingML; `prolog` comes before the root."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", f"{prolog}<w:document {_WORD}><w:body>{body}</w:body></w:document>")
    return buffer.getvalue()


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def notebook() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# Study\n", "of numbers"]},
        {"cell_type": "code", "source": "print(6 * 7)", "outputs": [{"output_type": "stream", "text": ["42\n"]}]},
        {"cell_type": "code", "source": "plot()", "outputs": [
            {"output_type": "display_data", "data": {"image/png": "iVBO"}},
            {"output_type": "error", "ename": "NameError", "evalue": "no plot"},
        ]},
    ]  # fmt: skip
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}).encode()
