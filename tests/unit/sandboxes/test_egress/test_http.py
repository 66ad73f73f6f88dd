"""Heads that two programs could read in two ways are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade_sandbox.egress import http
from stockade_sandbox.egress.http import Body, Request, Response
from stockade_sandbox.egress.rules import Refused, Target, shown

A = Target("a.org", 80)


def request(*lines: str) -> Request:
    return http.parse_request("\r\n".join(lines).encode("latin-1") + http.END)


def response(*lines: str) -> Response:
    return http.parse_response("\r\n".join(lines).encode("latin-1") + http.END)


def test_a_plain_request() -> None:
    found = request("GET http://A.org/x?y HTTP/1.1", "Host: a.org", "Accept: */*", "Proxy-Connection: keep-alive")
    target, path = http.absolute_form(found.target)
    assert (target, path) == (A, "/x?y")
    http.check_host(found, target, 80)
    assert http.request_framing(found) == 0
    assert found.keeps_connection
    assert http.request_head(found, target, path, 0) == (
        b"GET /x?y HTTP/1.1\r\nHost: a.org\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("GET http://a.org/",),
        ("GET  http://a.org/ HTTP/1.1",),
        ("GET http://a.org/ HTTP/1.1 ",),
        ("GET http://a.org/ HTTP/2.0",),
        ("GET http://a.org/ http/1.1",),
        ("get http://a.org/ HTTP/1.1",),
        ("G@T http://a.org/ HTTP/1.1",),
        ("GET http://a.org/\x00 HTTP/1.1",),
        ("GET http://a.org/\xe4 HTTP/1.1",),
        ("GET http://a.org/\tx HTTP/1.1",),
        ("GET http://a.org/ HTTP/1.1", "Host : a.org"),
        ("GET http://a.org/ HTTP/1.1", " Host: a.org"),
        ("GET http://a.org/ HTTP/1.1", "Host: a.org", " folded"),
        ("GET http://a.org/ HTTP/1.1", "no colon"),
        ("GET http://a.org/ HTTP/1.1", ": x"),
        ("GET http://a.org/ HTTP/1.1", "A: b\x00"),
        ("GET http://a.org/ HTTP/1.1", "A: b\nTransfer-Encoding: chunked"),
        ("GET http://a.org/ HTTP/1.1", "A: b\rTransfer-Encoding: chunked"),
        ("GET http://a.org/ HTTP/1.1\nA: b",),
        ("GET http://a.org/ HTTP/1.1", *["A: b"] * 201),
        ("", "GET http://a.org/ HTTP/1.1"),
    ],
)
def test_heads_that_are_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as refused:
        request(*lines)
    assert refused.value.status in (400, 431)


@pytest.mark.parametrize(
    "target",
    ["/", "*", "a.org", "a.org:80", "https://a.org/", "ftp://a.org/", "http:/a.org/", "http://", "http:///x",
     "http://u@a.org/", "http://u:p@a.org/", "http://a.org:80@b.org/", "http://0177.0.0.1/", "http://2130706433/",
     "http://[::1%lo]/", "http://[127.0.0.1]/", "http://[::1", "http://[::1]x/",
     "http://a.org\\@b.org/", "http://a.org#@b.org/", "http://a.org/#x", "http://a.org:0/",
     "http://a%2eorg/", "http://a.org%00.b.org/", "http://a.org:80:80/", "HTTP://0x7f.1/"],
)  # fmt: skip
def test_targets_that_are_refused(target: str) -> None:
    with pytest.raises(Refused):
        http.absolute_form(target)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("http://a.org", (A, "/")),
        ("http://a.org?q", (A, "/?q")),
        ("HTTP://A.ORG.:8080/x", (Target("a.org", 8080), "/x")),
        ("http://a.org/@b.org", (A, "/@b.org")),
        ("http://a.org//b.org/", (A, "//b.org/")),
    ],
)
def test_targets(target: str, expected: tuple[Target, str]) -> None:
    assert http.absolute_form(target) == expected


@pytest.mark.parametrize(
    "hosts", [("b.org",), ("a.org", "a.org"), (), ("a.org:81",), ("u@a.org",), ("a.org, b.org",), ("",), ("127.0.0.1",)]
)
def test_a_host_header_that_says_something_else(hosts: tuple[str, ...]) -> None:
    found = request("GET http://a.org/ HTTP/1.1", *(f"Host: {host}" for host in hosts))
    with pytest.raises(Refused):
        http.check_host(found, A, 80)


@pytest.mark.parametrize("host", ["a.org", "A.ORG", "a.org:80", "a.org."])
def test_a_host_header_that_says_the_same(host: str) -> None:
    http.check_host(request("GET http://a.org/ HTTP/1.1", f"Host: {host}"), A, 80)
    http.check_host(request("GET http://a.org/ HTTP/1.0"), A, 80)


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 3", "Content-Length: 3"),
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Content-Length: 3, 3",),
        ("Content-Length: +3",),
        ("Content-Length: 0x3",),
        ("Content-Length: -1",),
        ("Content-Length: ",),
        ("Content-Length: " + "9" * 30,),
        ("Content-Length: \u00b2",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: \x0bchunked",),
        ("transfer-encoding:",),
    ],
)
def test_lengths_that_contradict_each_other(headers: tuple[str, ...]) -> None:
    with pytest.raises(Refused):
        http.request_framing(request("POST http://a.org/ HTTP/1.1", *headers))


def test_chunks_in_http_1_0() -> None:
    with pytest.raises(Refused):
        http.request_framing(request("POST http://a.org/ HTTP/1.0", "Transfer-Encoding: chunked"))


def test_what_concerns_one_connection_is_not_passed_on() -> None:
    found = request(
        "POST http://a.org/ HTTP/1.1", "Connection: close, X-Secret", "X-Secret: 1", "Keep-Alive: 5", "TE: trailers",
        "Proxy-Authorization: Basic x", "Upgrade: websocket", "Trailer: x", "Transfer-Encoding: Chunked", "Expect: x",
        "Kept: yes", "Host: a.org",
    )  # fmt: skip
    framing = http.request_framing(found)
    assert framing is Body.CHUNKED
    assert http.request_head(found, A, "/", framing).split(b"\r\n")[1:-2] == [
        b"Host: a.org", b"Kept: yes", b"Transfer-Encoding: chunked", b"Connection: close",
    ]  # fmt: skip
    assert not found.keeps_connection


@pytest.mark.parametrize(
    ("lines", "method", "framing"),
    [
        (("HTTP/1.1 200 OK", "Content-Length: 5"), "GET", 5),
        (("HTTP/1.1 200 OK", "Content-Length: 5"), "HEAD", 0),
        (("HTTP/1.1 304 Not Modified", "Content-Length: 5"), "GET", 0),
        (("HTTP/1.1 204 No Content",), "GET", 0),
        (("HTTP/1.0 200 OK",), "GET", Body.UNTIL_CLOSE),
        (("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Content-Length: 5"), "GET", Body.CHUNKED),
    ],
)
def test_framing_of_answers(lines: tuple[str, ...], method: str, framing: http.Framing) -> None:
    assert http.response_framing(response(*lines), method) == framing


@pytest.mark.parametrize(
    "lines",
    [("nonsense",), ("HTTP/1.1 99 x",), ("HTTP/1.1 2000 x",), ("HTTP/2 200 OK",), ("HTTP/1.1 200 OK", "A : b"),
     ("HTTP/1.1 200 OK", "A: \x1b[2J"), ("HTTP/1.1 200 O\nK",)],
)  # fmt: skip
def test_answers_that_are_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as refused:
        response(*lines)
    assert refused.value.status == 502


@pytest.mark.parametrize("header", ["Content-Length: x", "Transfer-Encoding: gzip"])
def test_answers_whose_end_cannot_be_told(header: str) -> None:
    with pytest.raises(Refused):
        http.response_framing(response("HTTP/1.1 200 OK", header), "GET")


def test_the_length_of_what_head_asked_about_is_passed_on() -> None:
    answer = response("HTTP/1.1 200 OK", "Content-Length: 5")
    assert b"Content-Length: 5\r\n" in http.response_head(answer, "HEAD", 0, keep=True)
    nothing = http.response_head(response("HTTP/1.1 204 No Content"), "GET", 0, keep=False)
    assert nothing == b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


def test_a_refusal_names_the_rule_in_line_and_body() -> None:
    text = http.refusal(Refused("a.org is not on the --net allow list"))
    assert text.startswith(b"HTTP/1.1 403 stockade: a.org is not on the --net allow list\r\n")
    assert text.endswith(b"\r\n\r\nstockade: a.org is not on the --net allow list\n")


@given(st.binary(max_size=300))
def test_garbage_is_refused_in_one_line(data: bytes) -> None:
    reason = ""
    try:
        http.parse_request(data + http.END)
    except Refused as refused:
        reason = refused.reason
    assert shown(reason, 1000) == reason
