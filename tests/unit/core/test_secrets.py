"""Secrets: found in every spelling that one meets, hidden everywhere, and nothing else is touched."""

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.core.actions import Answer, HookWords, Shell, Step
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    ModelAnswered,
    NetworkRequested,
    RunEvent,
    RunStarted,
    to_json,
)
from stockade.core.messages import ModelAnswer, Reasoning
from stockade.core.redact import mark
from stockade.core.secret_formats import ANY_LITERAL, FORMATS, secret_variables
from stockade.core.secrets import (
    Redactor,
    build_redactor,
    named_redactor,
    redact_callbacks,
    restore_secrets,
    view_of,
    without_marks,
)
from stockade.testing.conformance.store import first
from stockade_sandbox.results import Chunk, CommandOutput
from tests.support.scale import scaled

SECRET = "correct horse/battery+staple"
SECOND = 'pä"ss\\wörd'
AWS = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
REDACTOR = Redactor({SECRET: "ONE", SECOND: "TWO"})

# Put together here, so that no scanner takes this file for a leak.
REAL = {
    "AWS key": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub token": "ghp_" + "aB3" * 12,
    "GitLab token": "glpat-" + "aB3_" * 5,
    "API key": "sk-" + "proj-" + "aB3_" * 12,
    "Stripe key": "sk_live_" + "aB3d" * 6,
    "Slack token": "xoxb-" + "123456789012-" * 2 + "aB3d",
    "Google key": "AIza" + "SyA-bC3_D" * 3 + "abcdefgh",
    "Hugging Face token": "hf_" + "aBcD" * 9,
    "npm token": "npm_" + "aB3d" * 9,
    "PyPI token": "pypi-" + "AgEIcHlwaS5vcmc" * 4,
    "Docker token": "dckr_pat_" + "aB3_" * 6,
    "SendGrid key": "SG." + "aB3_" * 5 + "ab." + "aB3_" * 10 + "abc",
    "Vault token": "hvs." + "aB3_" * 8,
    "Telegram token": "123456789:" + "AA" + "aB3" * 11,
    "JWT": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "aB3_" * 10,
    "age key": "AGE-SECRET-KEY-1" + "QPZRY9X8GF" * 5 + "QPZRY9X8",
    "private key": "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END " + "OPENSSH PRIVATE KEY-----",
}  # fmt: skip


@pytest.mark.parametrize(("name", "secret"), REAL.items(), ids=REAL)
def test_well_known_formats(name: str, secret: str) -> None:
    for text in (secret, f"token={secret}\n", f'{{"k": "{secret}"}}', f"'{secret}', and more"):
        hidden = Redactor().text(text)
        assert secret not in hidden
        assert hidden == text.replace(secret, mark(name)), hidden


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgresql://me:s3cr3t!@db.example/x", "s3cr3t!"),
        ("curl https://x-access-token:abcdef123@github.com/", "abcdef123"),
        ("redis://:hunter22@cache:6379", "hunter22"),
        ("Authorization: Bearer abcdef.ghi-jkl", "abcdef.ghi-jkl"),
        ('{"authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
        ("-H 'AUTHORIZATION: token 0123456789abcdef'", "0123456789abcdef"),
        (f"aws_secret_access_key = {AWS}", AWS),
        ("AccountName=x;AccountKey=" + "aB3/" * 21 + "==;", "aB3/" * 21 + "=="),
        ("-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEcut off here", "MIIEcut off here"),
    ],
)  # fmt: skip
def test_secrets_by_what_stands_before_them(text: str, secret: str) -> None:
    hidden = Redactor().text(text)
    assert secret not in hidden
    assert Redactor().text(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "sk-fading-circle sk-cube-grid-very-long-class-name",
        "https://example.com:8080/path@v1 git@github.com:me/repo.git ssh://git@host/x",
        "npm_config_registry=https://registry.npmjs.org hf_hub pypi-server AKIA AIza eyJ ghp_ xox",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE----- ssh-rsa AAAAB3Nza",
        "the authorization: it is required",
        "sha256:" + "ab12" * 16,
        "20261122-020648-k3f9 550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize("secret", [SECRET, SECOND])
def test_a_value_is_found_in_every_usual_spelling(secret: str) -> None:
    data = secret.encode()
    for spelled in (secret, quote(secret, safe=""), json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        assert secret[4:] not in REDACTOR.text(f"x {spelled} y")
        assert "redacted" in REDACTOR.text(f"x {spelled} y")
    for before in (b"", b"a", b"ab", b"user:"):
        for after in (b"", b"\n", b"zz"):
            text = base64.b64encode(before + data + after).decode()
            assert "redacted" in REDACTOR.text(text), (before, after)
    assert REDACTOR.text("nothing of it") == "nothing of it"


def test_lines_of_a_value_are_hidden_one_by_one() -> None:
    redactor = Redactor({"first line of a key 123\nsecond line of a key 456\n": "KEY"})
    assert redactor.text("| second line of a key 456 |") == "| [redacted: KEY] |"


@settings(deadline=None)
@given(st.text(), st.text(min_size=8), st.text())
def test_it_is_gone_whatever_stands_around_it(before: str, secret: str, after: str) -> None:
    redactor = Redactor({secret: "X"})
    hidden = redactor.text(before + secret + after)
    assert secret not in hidden or secret in mark("X")


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6)), st.integers(0, 40), st.data())
def test_a_secret_in_chunks_is_found_wherever_it_is_cut(around: list[str], at: int, data: st.DataObject) -> None:
    whole = ("".join(around[: at % 5]) + " " + SECOND + " " + "".join(around[at % 5 :])).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    chunks: list[Chunk] = []
    for piece in pieces:
        chunks += [Chunk.of("stdout", piece), Chunk.of("stderr", b"between")]
    hidden = REDACTOR.output(CommandOutput(exit_code=0, chunks=tuple(chunks)))
    assert hidden.stdout == whole.replace(SECOND.encode(), b"[redacted: TWO]")
    assert hidden.stderr == b"between" * len(pieces)


def test_bytes_beside_a_secret_are_exact() -> None:
    chunks = (Chunk.of("stdout", b"\xff\x00" + SECRET.encode() + b"\x1b[31m\xfe"), Chunk.of("stdout", b"\x80"))
    hidden = REDACTOR.output(CommandOutput(exit_code=0, chunks=chunks))
    assert hidden.stdout == b"\xff\x00[redacted: ONE]\x1b[31m\xfe\x80"


def test_output_without_a_secret_is_the_same_object() -> None:
    output = CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", b"\xff"), Chunk.of("stdout", b"ordinary")))
    assert REDACTOR.output(output) is output
    event = ActionFinished(at=1.0, turn=1, step=0, observation=output)
    assert REDACTOR.event(event) == event


def _everywhere() -> Iterable[RunEvent]:
    step = Step(action=Shell(command=f"login '{SECRET}'"), comment=SECRET)
    yield first("r", task=f"use {SECRET}")
    yield first("r").model_copy(update={"options": {"deep": [{"er": SECOND}]}, "system_prompt": SECRET})
    yield AnswerUnderstood(at=1.0, turn=1, answer=Answer(thought=SECOND, steps=(step,)))
    yield ActionStarted(at=1.0, turn=1, step=0, action=step)
    yield NetworkRequested(at=1.0, host=f"{quote(SECRET, safe='')}.evil.example", port=443, method="GET",
                           verdict="refused", reason=SECRET)  # fmt: skip
    yield ActionFinished(at=1.0, turn=1, step=0, observation=CommandOutput(
        exit_code=0, cwd=f"/tmp/{SECRET}", chunks=(Chunk.of("stdout", SECRET.encode() + b"\xff"),)))  # fmt: skip


@pytest.mark.parametrize("event", list(_everywhere()), ids=lambda event: event.type)
def test_an_event_is_clean_and_still_an_event(event: RunEvent) -> None:
    hidden = REDACTOR.event(event)
    assert type(hidden) is type(event)
    text = to_json(hidden)
    for secret in (SECRET, SECOND):
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode()[:20] not in text
        assert quote(secret, safe="") not in text
    assert hidden != event
    assert REDACTOR.event(hidden) == hidden


def test_names_of_ours_are_not_torn_apart() -> None:
    redactor = Redactor({"run_started": "A", "bubblewrap": "B", "stdout": "C"})
    event = first("r").model_copy(update={"sandbox": "bubblewrap"})
    assert redactor.event(event) == event


@settings(deadline=None, max_examples=scaled(30))
@given(st.text(max_size=20), st.text(max_size=20), st.data())
def test_streamed_text_never_shows_a_part_of_it(before: str, after: str, data: st.DataObject) -> None:
    whole = f"{before} {SECRET} {after} {REAL['private key']} {REAL['GitHub token']} end"
    shown: list[str | None] = []
    stream = REDACTOR.stream(shown.append)
    at = 0
    while at < len(whole):
        size = data.draw(st.integers(1, 60))
        stream(whole[at : at + size])
        at += size
        assert "horse" not in "".join(piece or "" for piece in shown)
        assert "aB3aB3" not in "".join(piece or "" for piece in shown)
    stream.flush()
    assert "".join(piece or "" for piece in shown) == REDACTOR.text(whole)


def test_an_answer_that_begins_again_is_void() -> None:
    shown: list[str | None] = []
    stream = REDACTOR.stream(shown.append)
    stream("correct ho")
    stream(None)
    stream("hello")
    stream.flush()
    assert shown == [None, "hello"]


def test_a_token_of_thinking_is_passed_on_and_moves_nothing() -> None:
    shown: list[str | None] = []
    stream = REDACTOR.stream(shown.append)
    for piece in ("", "correct ho", "", "rse"):
        stream(piece)
    stream.flush()
    assert shown[:2] == ["", ""]
    assert "correct horse" in "".join(piece or "" for piece in shown)


def test_a_listener_gets_the_rest_before_the_event() -> None:
    seen: list[object] = []
    on_event, on_text = redact_callbacks(REDACTOR, seen.append, seen.append)
    assert on_event is not None
    assert on_text is not None
    on_text("a last word")
    on_event(first("r"))
    assert "word" not in seen


def test_which_variables_look_secret() -> None:
    environ = {
        "GITHUB_TOKEN": "12345678", "AWS_SECRET_ACCESS_KEY": "abcdefgh9", "DB_PASSWORD": "pass-word",
        "MYAPIKEY": "abcd1234", "DATABASE_URL": "mysql://u:p%40ssword@h/d", "TOKEN_FILE": "/run/secrets/x",
        "PATH": "/usr/bin:/bin", "SSH_AUTH_SOCK": "/tmp/ssh-1/agent", "KEYBOARD": "us-german",
        "TOKENIZERS_PARALLELISM": "disabled1", "SHORT_TOKEN": "abc", "USE_AUTH": "disabled",
        "PUBLIC_KEY": "ssh-rsa AAAA", "HOME": "/root", "MONKEY": "banana-1",
    }  # fmt: skip
    found = secret_variables(environ)
    assert set(found.values()) == {"GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "MYAPIKEY", "DATABASE_URL"}
    assert {"p%40ssword", "p@ssword"} <= set(found)


def test_what_the_user_names() -> None:
    given = {"DOG": "bello the dog"}
    redactor = build_redactor({"PET": "rex the cat"}, given, ["PET", "DOG"])
    assert redactor.text("rex the cat and bello the dog") == "[redacted: PET] and [redacted: DOG]"
    assert redactor.recorded == {"redact": ["PET", "DOG"]}
    with pytest.raises(UsageError, match="--redact CAT: the variable is not set"):
        build_redactor({}, {}, ["CAT"])


def test_a_value_under_eight_bytes_is_not_hidden_and_that_is_said() -> None:
    environ = {"PIN": "1234567", "BIRD": "äöü äöü"}
    redactor = build_redactor(environ, {}, ["PIN", "BIRD"])
    assert redactor.text("1234567 äöü äöü") == "1234567 [redacted: BIRD]"
    assert redactor.named == ("BIRD",)
    assert redactor.warnings == ("--redact PIN: its value has fewer than 8 bytes and is not hidden",)


def on_record(environment: dict[str, str], *named: str) -> RunStarted:
    begun = first("r")
    begun.options["redact"] = list(named)
    return begun.model_copy(update={"policy": replace(begun.policy, environment=environment)})


def test_a_run_that_goes_on_gets_its_variables_again() -> None:
    recorded = on_record({"TOKEN": mark("TOKEN"), "PLAIN": "x"}, "NAMED")
    environ = {"TOKEN": "abc", "PLAIN": "other", "NAMED": "n"}
    assert restore_secrets(recorded, environ).policy.environment == {"TOKEN": "abc", "PLAIN": "x"}
    for gone in ("TOKEN", "NAMED"):
        left = {name: value for name, value in environ.items() if name != gone}
        with pytest.raises(UsageError, match=f"the run hid the value of {gone}, which is not on record"):
            restore_secrets(recorded, left)


def test_what_a_run_hid_is_known_again_by_name() -> None:
    environment = {"A": mark("A"), "LINE": f"x --key {mark('B')}", "KEY": mark("GitHub token")}
    view = view_of(on_record(environment, "C"), {"A": "value of a", "C": "value of c", "D": "value of d"}, ["D", "E"])
    assert view.unknown == ("B",)
    assert view.redactor.text("value of a, value of c, value of d") == f"{mark('A')}, {mark('C')}, {mark('D')}"
    with pytest.raises(UsageError, match="hid the value of B, which is not set here"):
        view.check_files()
    view_of(on_record({"KEY": mark("GitHub token")}), {}).check_files()


def test_what_was_replaced_is_put_back_as_far_as_it_is_known() -> None:
    action = {"command": [f"echo {mark('ONE')} {mark('GitHub token')}"], "n": 1}
    assert REDACTOR.restored(action) == {"command": [f"echo {SECRET} {mark('GitHub token')}"], "n": 1}


def test_only_what_was_named_is_hidden_in_exact_output() -> None:
    only = named_redactor({"ONE": SECRET, "MY_TOKEN": "other-secret"}, {}, ["ONE"])
    data = b"\xff\x00" + SECRET.encode() + b" other-secret " + REAL["GitHub token"].encode()
    assert only.raw(data) == b"\xff\x00[redacted: ONE] other-secret " + REAL["GitHub token"].encode()


@pytest.mark.parametrize("side", ["+", "-", " "])
def test_in_a_diff_every_line_has_its_side_before_it(side: str) -> None:
    short_lines = "ab cd\nef gh\nij"
    redactor = Redactor({short_lines: "KEY"})
    lines = "".join(f"{side}{line}\n" for line in (*short_lines.split("\n"), REAL["GitHub token"]))
    hidden = redactor.text("@@ -1 +1 @@\n" + lines)
    assert hidden == f"@@ -1 +1 @@\n{side}{mark('KEY')}\n{side}{mark('GitHub token')}\n"
    assert REAL["GitHub token"] not in redactor.text(json.dumps(lines))


def test_exports_without_what_is_not_known() -> None:
    assert without_marks(None) is None
    assert without_marks('declare -x A="b"\n') == 'declare -x A="b"\n'
    assert without_marks(f'declare -x A="b"\ndeclare -x T="{mark("T")}"\ndeclare -x C="d"\n') == (
        'declare -x A="b"\ndeclare -x C="d"\n'
    )


def finished(**output: Any) -> ActionFinished:
    seen = CommandOutput(**{"exit_code": 0, **output})
    return ActionFinished(at=1.0, turn=1, step=0, observation=seen)


def test_what_a_hook_said_is_looked_through_too() -> None:
    words = (HookWords(hook="mine", text=f"x now holds:\n{SECRET}"),)
    hidden = REDACTOR.event(finished().model_copy(update={"words": words}))
    assert SECRET not in to_json(hidden)
    assert mark("ONE") in to_json(hidden)


@pytest.mark.parametrize(
    "chunks",
    [
        (Chunk.of("stdout", b"nothing"),),
        (Chunk.of("stdout", b"no"), Chunk.of("stderr", b"thing"), Chunk.of("stdout", b"here")),
        (Chunk.of("stdout", b"\xff\xfe"),),
    ],
    ids=["whole", "cut", "bytes"],
)
def test_an_event_without_secrets_is_the_same_object_or_equal(chunks: tuple[Chunk, ...]) -> None:
    event = finished(chunks=chunks)
    assert REDACTOR.event(event) == event


@pytest.mark.parametrize("at", range(1, len(SECRET)))
def test_a_secret_cut_in_two_by_anything_in_between_is_found(at: int) -> None:
    one, other = SECRET[:at].encode(), SECRET[at:].encode()
    cut = (Chunk.of("stdout", one), Chunk.of("stderr", b"noise"), Chunk.of("stdout", other))
    line = to_json(REDACTOR.event(finished(chunks=cut)))
    assert mark("ONE") in line
    assert SECRET[-4:] not in line


def test_the_line_of_an_event_is_that_of_its_copy_only_when_nothing_changed() -> None:
    event = finished(chunks=(Chunk.of("stdout", b"a"),))
    assert '"turn":1' in to_json(event)
    assert '"turn":2' in to_json(event.model_copy(update={"turn": 2}))
    assert event == finished(chunks=(Chunk.of("stdout", b"a"),))
    assert hash(event) == hash(finished(chunks=(Chunk.of("stdout", b"a"),)))


def test_lines_in_ascii() -> None:
    event = finished(cwd="/\u00e9\x7f\x1b")
    assert to_json(event, ascii_only=True).isascii()
    assert "\x7f" not in to_json(event, ascii_only=True)
    assert json.loads(to_json(event, ascii_only=True)) == json.loads(to_json(event))


def test_the_one_look_finds_every_literal_and_nothing_else() -> None:
    literals = {literal for one in FORMATS for literal in one.literals}
    for literal in literals:
        assert ANY_LITERAL.fullmatch(literal)
        assert ANY_LITERAL.search(f"xx{literal}yy")
        assert not ANY_LITERAL.search(literal[:-1]) or any(other in literal[:-1] for other in literals)


def test_thinking_with_a_secret_in_it_does_not_go_back() -> None:
    """Its signature would not hold any more."""
    for text, changed in ((f"It is {SECRET}.", True), ("It is hidden.", False)):
        items = ({"type": "thinking", "thinking": text, "signature": "s"},)
        answer = ModelAnswer(content=SECRET, reasoning=Reasoning(form="anthropic", items=items))
        event = REDACTOR.event(ModelAnswered(at=0.0, turn=1, answer=answer))
        assert isinstance(event, ModelAnswered)
        assert event.answer.reasoning is not None
        assert event.answer.reasoning.changed is changed
        assert SECRET not in to_json(event)
