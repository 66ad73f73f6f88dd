"""What a sandbox is shown of /etc and /var/lib: what programs start with, and no secret of the machine's."""

from pathlib import Path

import pytest

from stockade_sandbox.backends.host_files import shown_etc, shown_var_lib

EXTENSION = "; configuration for php\n; priority=20\nextension=dom.so\n"


def made(etc: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(text)


def test_what_programs_start_with_is_shown_and_the_settings_of_the_site_are_not(tmp_path: Path) -> None:
    shown = (
        "R/Renviron",
        "java-21-openjdk/a",
        "maven/m2.conf",
        "mono/4.5/machine.config",
        "fpc-3.2.2.cfg",
        "texmf/a/b",
    )
    hidden = ("R/Renviron.site", "R/Rprofile.site", "maven/settings.xml", "chromium.d/apikeys", "shadow", "pip.conf",
              "php/8.2/cli/php.ini", "mysql/debian.cnf", "odbc.ini", "gitconfig")  # fmt: skip
    made(tmp_path, dict.fromkeys((*shown, *hidden), "x = 1\n"))
    assert set(shown_etc(tmp_path)) == {"R/Renviron", "java-21-openjdk", "maven/m2.conf", "mono/4.5/machine.config",
                                        "fpc-3.2.2.cfg", "texmf"}  # fmt: skip


def test_extensions_of_php_are_shown_as_a_folder(tmp_path: Path) -> None:
    opcache = "zend_extension=opcache.so\nopcache.jit=off\n\n"
    made(tmp_path, {"php/8.2/mods-available/dom.ini": EXTENSION, "php/8.2/mods-available/opcache.ini": opcache})
    (tmp_path / "php/8.2/cli/conf.d").mkdir(parents=True)
    (tmp_path / "php/8.2/cli/conf.d/20-dom.ini").symlink_to("../../mods-available/dom.ini")
    assert shown_etc(tmp_path) == ("php/8.2/mods-available", "php/8.2/cli/conf.d")


@pytest.mark.parametrize(
    "text",
    ["extension=agent.so\nagent.license=0123\n", "agent.token = 1 ; extension=x", "\xff\nsecret", "x\rextension=a"],
)
def test_beside_one_that_says_more_each_other_is_shown_alone(tmp_path: Path, text: str) -> None:
    made(tmp_path, {"php/8.2/mods-available/agent.ini": text, "php/8.2/mods-available/dom.ini": EXTENSION})
    made(tmp_path, {"php/8.3/mods-available/dom.ini": EXTENSION, "php/8.3/mods-available/.agent.ini": text})
    (tmp_path / "php/8.2/mods-available/gone.ini").symlink_to("nowhere")
    assert shown_etc(tmp_path) == ("php/8.2/mods-available/dom.ini", "php/8.3/mods-available/dom.ini")


def test_of_var_lib_what_is_there(tmp_path: Path) -> None:
    for name in ("texmf", "ghc", "postgresql"):
        (tmp_path / name).mkdir()
    assert shown_var_lib(tmp_path) == ("texmf", "ghc")
    assert shown_var_lib(tmp_path / "none") == ()
