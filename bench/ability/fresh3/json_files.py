"""JSON: one more in a list, without layout, another key, what a translation lacks."""

import json
from pathlib import Path
from typing import Any

from bench.ability.checks import every, holds_json, lines, text, unchanged
from bench.ability.task import Task

_ORIGINS = ["https://app.example.org", "https://admin.example.org"]
_CORS: dict[str, Any] = {"allowed_origins": _ORIGINS, "allowed_methods": ["GET", "POST"], "max_age": 600}
_ORIGIN = "https://beta.example.org"
_MANIFEST = {
    "name": "Field Notes",
    "start_url": "/index.html",
    "icons": [{"src": "/icon-192.png", "sizes": "192x192"}, {"src": "/icon-512.png", "sizes": "512x512"}],
    "offline": True,
}
_CONTACTS = [
    {"name": "Ines", "mail": "ines@example.net", "phone": "555-0110"},
    {"name": "Marek", "mail": "marek@example.net"},
    {"name": "Sunil", "mail": "sunil@example.net", "phone": "555-0164", "notes": "prefers mail"},
]
_RENAMED = [{"email" if key == "mail" else key: value for key, value in contact.items()} for contact in _CONTACTS]
_ENGLISH = {
    "login": {"title": "Sign in", "button": "Sign in", "forgot": "Forgot your password?"},
    "cart": {"title": "Your cart", "empty": "Your cart is empty", "checkout": "Check out"},
    "footer": {"imprint": "Imprint", "privacy": "Privacy"},
}
_GERMAN = {
    "login": {"title": "Anmelden", "button": "Anmelden"},
    "cart": {"title": "Warenkorb", "checkout": "Zur Kasse"},
    "footer": {"imprint": "Impressum", "privacy": "Datenschutz"},
}
_MISSING = """import json
english, german = (json.load(open(name)) for name in ('en.json', 'de.json'))
for group, words in english.items():
    for key in words:
        if key not in german.get(group, {}):
            print(group + '.' + key)"""


def _file(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _is_small(folder: Path) -> bool:
    found = text(folder / "manifest.min.json")
    return json.loads(found) == _MANIFEST and len(found) <= len(json.dumps(_MANIFEST, separators=(",", ":")))


def _names_missing(folder: Path) -> bool:
    return sorted(line for line in lines(folder / "missing.txt") if line) == ["cart.empty", "login.forgot"]


TASKS = (
    Task(
        "json-append", "json", 1,
        f"Add {_ORIGIN} to the end of the allowed_origins list in cors.json. The rest of the config stays as it is.",
        holds_json("cors.json", {**_CORS, "allowed_origins": [*_ORIGINS, _ORIGIN]}),
        f"sed -i 's|\"https://admin.example.org\"|&, \"{_ORIGIN}\"|' cors.json",
        {"cors.json": _file(_CORS)},
    ),
    Task(
        "json-minify", "json", 1,
        "Minify manifest.json for production: the same data on a single line, without any unnecessary whitespace, saved"
        " as manifest.min.json. Keep manifest.json as it is.",
        every(_is_small, unchanged("manifest.json", _file(_MANIFEST))),
        "python3 -c 'import json; print(json.dumps(json.load(open(\"manifest.json\")), separators=(\",\", \":\")))'"
        " > manifest.min.json",
        {"manifest.json": _file(_MANIFEST)},
    ),
    Task(
        "json-rename", "json", 2,
        "The new API expects email instead of mail. Rename the key mail to email in every contact in contacts.json, and"
        " don't change any of the values.",
        holds_json("contacts.json", _RENAMED),
        "sed -i 's/\"mail\":/\"email\":/' contacts.json",
        {"contacts.json": _file(_CONTACTS)},
    ),
    Task(
        "json-translate", "json", 3,
        "The German translation de.json is behind the English one, en.json. Find the texts that are in en.json but not"
        " in de.json and write their keys to missing.txt, one per line, with the group in front, like footer.imprint.",
        every(_names_missing, unchanged("en.json", _file(_ENGLISH)), unchanged("de.json", _file(_GERMAN))),
        f'python3 -c "{_MISSING}" > missing.txt',
        {"en.json": _file(_ENGLISH), "de.json": _file(_GERMAN)},
    ),
)  # fmt: skip
