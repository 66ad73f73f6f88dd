"""Which commands are refused for want of a terminal."""

import pytest

from stockade_sandbox.agent.session import refuse_fullscreen


@pytest.mark.parametrize(
    "command",
    [
        "vim",
        "vim notes.txt",
        "/usr/bin/vi x",
        "nano -w x",
        "EDITOR=1 emacs x",
        "top",
        "htop -d 5",
        "  vim 'a b' # edit",
    ],
)
def test_refused(command: str) -> None:
    reason = refuse_fullscreen(command)
    assert reason
    assert "terminal" in reason


@pytest.mark.parametrize(
    "command",
    ["", "# vim", "cat vim.txt", "echo vim", "vim --version", "git log", "less x", "man ls", "top -b -n1", "top -bn1",
     "which vim", "apt-get install -y vim", "vim -es x", "echo x | vim -", "ls; vim x", "vim() { :; }", "EDITOR=vim",
     "command -v nano", "'vim", "emacs --batch -l x", "tmux new-session -d", "/opt/vim/run"],
)  # fmt: skip
def test_not_refused(command: str) -> None:
    assert refuse_fullscreen(command) is None
