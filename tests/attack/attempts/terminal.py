"""What is shown, and what is typed, on the person's terminal."""

ESC = b"\x1b"

SEQUENCES = {
    "the window's title": ESC + b"]0;pwned\x07",
    "the clipboard": ESC + b"]52;c;cHduZWQ=\x07",
    "a link that says another": ESC + b"]8;;http://evil.test\x1b\\",
    "a file by the terminal": ESC + b"]1337;File=name=eA==:eA==\x07",
    "a notification": ESC + b"]777;notify;pwned;x\x07",
    "colours of the terminal": ESC + b"]4;1;rgb:00/00/00\x07",
    "a report of the cursor": ESC + b"[6n",
    "a report of the terminal": ESC + b"[>c",
    "a report of the title": ESC + b"[21t",
    "a request for settings": ESC + b"P+q544e\x1b\\",
    "a private message": ESC + b"_Ga=T;pwned\x1b\\",
    "clearing the screen": ESC + b"[2Jq",
    "clearing what was": ESC + b"[3J",
    "a reset": ESC + b"cq",
    "another screen": ESC + b"[?1049h",
    "mouse reports": ESC + b"[?1000h",
    "the printer": ESC + b"[5i",
    "hidden text": ESC + b"[8mq",
    "moving up": ESC + b"[7A",
    "another character set": ESC + b"(0q",
    "shifted characters": b"q\x0eq",
    "eight-bit control": b"\xc2\x9b6nq",
    "a bell": b"q\x07q",
    "a line written over": b"1234\rover",
    "characters written over": b"good\x08\x08\x08\x08evil",
    "a deleted character": b"q\x7fq",
    "text turned round": "q\u202eq".encode(),
    "text isolated": "q\u2066q".encode(),
    "text without width": "q\u200bq".encode(),
    "invisible tags": "q\U000e0041q".encode(),
    "bytes hidden in selectors": "q\ufe03\U000e0151q".encode(),
    "a selector on a letter": "q\ufe0fq".encode(),
    "two selectors on a picture": "\u26a0\ufe0f\ufe0f".encode(),
    "a separator of lines": "q\u2028q".encode(),
    "a filler": "q\u3164q".encode(),
    "marks over the lines around": ("q" + "\u0300\u0301\u0302\u0303\u0489" * 8).encode(),
}
"""Must not reach a terminal as it is."""

_EVERY_WAY = """
import fcntl, os
fds = [0, 1, 2]
try: fds.append(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
except OSError: pass
for fd in fds:
    try: %s
    except OSError: pass
"""
"""Only terminals of the program's own: in a control it really types."""

KEYS = {
    "typing": (_EVERY_WAY % '[fcntl.ioctl(fd, 0x5412, bytes([byte])) for byte in b"TYPED"]', b"TYPED"),
    "typing, high bits set": (
        "import ctypes\nlibc = ctypes.CDLL(None)\nnumber = ctypes.c_ulong((1 << 32) | 0x5412)\n"
        + _EVERY_WAY % "[libc.ioctl(fd, number, bytes([byte])) for byte in b'HIGHLY']",
        b"HIGHLY",
    ),
    "writing past the output": (
        'import os\nfd = os.open("/dev/tty", os.O_RDWR)\nos.write(fd, b"WRIT" + b"TEN")',
        b"WRITTEN",
    ),
    "writing into the input": ("import os\nos.write(0, b'INTO' + b'INPUT')", b"INTOINPUT"),
}  # fmt: skip
"""Programs in Python, and what the person's terminal shows when they got through."""
