"""Results of the ability bench: kept line by line, gone on with, and put into tables."""

import json
import re
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from bench.ability.arms import Did, sealed
from bench.ability.command import CACHE, attempt, chosen, main, results
from bench.ability.outcome import Outcome, Tokens, append, read
from bench.ability.proxy import MAX_ANSWER_TOKENS, proxy
from bench.ability.report import markdown
from bench.ability.sets import SETS
from bench.ability.tasks import TASKS


def outcome(arm: str, number: int, *, solved: bool, ended: str = "done") -> Outcome:
    return Outcome(arm, TASKS[number].name, solved, ended, 3, 1, Tokens(100, 80, 20), 10.0)  # type: ignore[arg-type]


def test_outcomes_are_read_back_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a" / "arm.jsonl"
    assert read(file) == []
    append(file, outcome("arm", 0, solved=True))
    append(file, outcome("arm", 1, solved=False))
    with file.open("a") as more:
        more.write('{"arm": "cut')
    assert read(file) == [outcome("arm", 0, solved=True), outcome("arm", 1, solved=False)]


def test_the_tables_say_who_solved_what(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path / "ours.jsonl", outcome("ours", number, solved=number != 1))
        append(tmp_path / "peer.jsonl", outcome("peer", number, solved=False, ended="turns" if number else "done"))
    text = markdown(tmp_path)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line]
    ours = next(row for row in rows if row[0] == "ours")
    peer = next(row for row in rows if row[0] == "peer")
    assert ours[1:6] == ["3 of 4 (75 %)", "2 of 2 (100 %)", "1", "4", "0"]
    assert ours[8] == "400 (80 %)"
    assert peer[1:6] == ["0 of 4 (0 %)", "0 of 2 (0 %)", "1", "4", "3"]
    assert [f"{TASKS[1].name}", "false end", "endless"] in rows
    assert [f"{TASKS[0].name} *", "yes", "false end"] in rows


class OneCommand:
    """An arm that runs the task's own solution."""

    name = "solution"

    def do(self, words: str, folder: Path, run: str, max_turns: int) -> Did:
        (folder / "count.txt").write_text("5\n")
        return Did("done", 1, 0, Tokens(1, 0, 1), "five", "", [{"said": words}])


def test_an_attempt_is_judged_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (task,) = chosen("files-count", "all")
    found = attempt(OneCommand(), task, tmp_path, 12)
    assert (found.solved, found.ended, found.answer) == (True, "done", "five")
    assert json.loads((tmp_path / "files-count.jsonl").read_text()) == {"said": task.words}


@pytest.mark.parametrize(
    ("said", "right"),
    [("five", True), ("It has **5** lines.", True), ("The task is done.", False), ("15", False), ("5.2", False)],
)
def test_of_a_question_the_answer_is_judged(tmp_path: Path, said: str, right: bool) -> None:
    class Answers(OneCommand):
        def do(self, words: str, folder: Path, run: str, max_turns: int) -> Did:
            return Did("done", 1, 0, Tokens(1, 0, 1), said, "", [])

    (task,) = chosen("question-lines", "all", "questions")
    assert attempt(Answers(), task, tmp_path, 12).solved == right


def test_the_halves_are_disjoint() -> None:
    tuned, held = chosen("", "tuned"), chosen("", "held-out")
    assert len(tuned) == len(held) == len(TASKS) // 2
    assert not {task.name for task in tuned} & {task.name for task in held}


def test_the_fresh_set_has_no_halves(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen("", "all", "fresh") == list(SETS["fresh"])
    with pytest.raises(SystemExit):
        main(["--set", "fresh", "--half", "tuned"])
    assert "the set fresh has no halves" in capsys.readouterr().err


def test_results_of_two_sets_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (results(None, "tasks"), results(None, "fresh")) == (CACHE / "qwen", CACHE / "qwen-fresh")
    append(tmp_path / "ours.jsonl", outcome("ours", 0, solved=True))
    assert results(tmp_path, "tasks") == tmp_path
    with pytest.raises(SystemExit):
        main(["--set", "fresh", "--into", str(tmp_path)])
    assert "holds results of the set tasks, not of fresh" in capsys.readouterr().err
    fresh = Outcome("peer", SETS["fresh"][0].name, True, "done", 3, 0, Tokens(), 1.0)
    append(tmp_path / "peer.jsonl", fresh)
    with pytest.raises(ValueError, match="not all of one set"):
        markdown(tmp_path)


def test_the_tables_of_the_fresh_set_have_its_tasks_alone(tmp_path: Path) -> None:
    append(tmp_path / "ours.jsonl", Outcome("ours", SETS["fresh"][0].name, True, "done", 3, 0, Tokens(), 1.0))
    text = markdown(tmp_path)
    assert "held-out" not in text
    named = re.findall(r"^\| ([a-z]+-[a-z]+)", text, re.MULTILINE)
    assert named == [task.name for task in SETS["fresh"]]


def test_a_peer_can_write_in_its_folder_alone(tmp_path: Path) -> None:
    words = sealed(tmp_path, ["/usr/bin/python3", "peer.py"])
    assert words[0] == "bwrap"
    assert ["--ro-bind", "/usr", "/usr"] in [words[at : at + 3] for at in range(len(words))]
    assert [words[at + 1 : at + 3] for at, word in enumerate(words) if word == "--bind"] == [
        [str(tmp_path), "/workspace"]
    ]
    assert {"--unshare-pid", "--die-with-parent", "--cap-drop"} <= set(words)


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 7}}
        body = json.dumps({"asked": asked, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_the_proxy_sets_the_sampling_and_counts() -> None:
    with HTTPServer(("127.0.0.1", 0), _Answering) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with proxy(f"http://127.0.0.1:{server.server_address[1]}/v1") as between:
            for limit in (None, 50_000):
                asked = json.dumps({"messages": [], "temperature": 1, "stream": True, "max_tokens": limit}).encode()
                request = urllib.request.Request(f"{between.address('r')}/chat/completions", asked)
                with urllib.request.urlopen(request) as response:
                    seen = json.load(response)["asked"]
                assert (seen["temperature"], seen["seed"], seen["stream"]) == (0, 1, False)
                assert seen["max_tokens"] == MAX_ANSWER_TOKENS
            assert between.runs["r"].tokens == Tokens(prompt=20, cached=14, completion=10)
        server.shutdown()
        thread.join()
