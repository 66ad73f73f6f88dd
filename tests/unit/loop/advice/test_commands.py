"""Commands that do something else than what they look like: what is asked about, and what is not."""

import pytest

from stockade.loop.advice import commands
from stockade.loop.advice.said import INSTEAD

NOT = [
    ("ls -l | wc -l", "How many files are here?", "ls -1 | wc -l"),
    ("ls -la site | wc -l > n.txt", "Count the files in site into n.txt.", "ls -A site | wc -l > n.txt"),
    ("wc -l a.txt | grep -c TODO", "", "grep -c TODO a.txt"),
    ("wc -l a.txt | grep TODO | awk '{print $1}' > n.txt", "", "grep -c TODO a.txt > n.txt"),
    ("ls -1 b.zip | wc -l > n.txt", "", "unzip -Z1 b.zip | grep -vc '/$' > n.txt"),
    ("ls b.tar.gz | wc -l", "", "tar -tf b.tar.gz | grep -vc '/$'"),
    ("tar -czvf s.tar.gz site", "Pack site without its .log files.", "tar --exclude='*.log' -czvf s.tar.gz site"),
    ("zip -r s.zip site", "Zip site, leaving out the *.tmp files", "zip -r s.zip site -x '*.tmp'"),
    ("chmod -R +x bin/", "Make the .sh files in bin executable", "find bin/ -name '*.sh' -exec chmod +x {} +"),
    ("chmod -R a+x bin/*", "Make the .sh files in bin executable", "find bin -name '*.sh' -exec chmod a+x {} +"),
    (
        'for f in *.conf; do cp "$f" "${f%.conf}.bak"; done',
        "a copy with .bak added, like app.conf.bak",
        'for f in *.conf; do cp "$f" "${f}.bak"; done',
    ),
    ("echo '.log' >> .gitignore && git add .", "ignore all .log files", "echo '*.log' >> .gitignore && git add ."),
    ("grep -oP '[^@]+@[^@]+' a.txt > b.txt", "", f"grep -oE '{commands.MAIL}' a.txt > b.txt"),
    ("grep -c 'active: true' users.json > n", "", "grep -c '.active.: true' users.json > n"),
    ("sed '/^$/d' a.txt > a.txt", "", "sed '/^$/d' a.txt > a.txt.new && mv a.txt.new a.txt"),
    ("cat a.txt | sort -u > a.txt", "", "cat a.txt | sort -u > a.txt.new && mv a.txt.new a.txt"),
    (
        "jq '.a; .b' /w/c.json > /w/c.json && mv /w/c.json /w/c.json",
        "",
        "jq '.a; .b' /w/c.json > /w/c.json.new && mv /w/c.json.new /w/c.json",
    ),
    ("cd x && tac a > a; cat a", "", "cd x && tac a > a.new && mv a.new a; cat a"),
    ("git revert --no-edit <COMMIT>", "", "git log --oneline -n 20"),
    ("git show <commit-hash>:a.txt > b.txt", "", "git log --oneline -n 20"),
    ("sort -r stops.txt > back.txt", "the same lines in the opposite order", "tac stops.txt > back.txt"),
    ("bash a.sh > s.txt", "put its exit status into s.txt", "bash a.sh; echo $? > s.txt"),
    ("mkdir x && mv a.pdf b.pdf c.md x/", "Put the PDF files into x", "mkdir x && mv a.pdf b.pdf x/"),
    ("git reset --hard HEAD~1", "Take the last commit back, but keep its changes", "git reset HEAD~1"),
    (
        "git log --grep='RETRIES'",
        "Which commit brought the word RETRIES into client.py?",
        "git log -S RETRIES --oneline -- client.py",
    ),
    ("git reset --hard HEAD~1", "app.ini was changed by accident", "git checkout HEAD -- app.ini"),
    ("ls -l data | sort -hr | head -n 1 | awk '{print $9}' > n", "the largest file", "ls -S data | head -n 1 > n"),
]
MEANT = [
    ("ls | wc -l", "How many files are here?"),
    ("ls -ld */ | wc -l", "How many folders are here?"),
    ("ls -l a.txt | wc -l", "How many files are called a.txt?"),
    ("ls -l | grep -c ^-", "How many files are here?"),
    ("jq '. | .a > .b' c.json > d.json && mv d.json c.json", ""),
    ("cat a.txt > b.txt && cat a.txt > c.txt", ""),
    ("echo 'a > a'", ""),
    ("sleep 8; echo ended > ended", ""),
    ("printf done > done && cat done", ""),
    ("sort <in.txt >out.txt", ""),
    ("echo '<COMMIT>' > a", ""),
    ("cat <<< VALUE", ""),
    ("wc -l a.txt | awk '{print $1}'", ""),
    ("wc -l *.txt | grep total", ""),
    ("ls data | wc -l", ""),
    ("ls *.zip | wc -l", ""),
    ("tar -czf s.tar.gz site", "Pack site."),
    ("tar -xzf s.tar.gz", "Unpack it without its .log files"),
    ("tar --exclude='*.log' -czf s.tar.gz site", "without its .log files"),
    ("chmod -R +x bin/", "Make everything in bin executable"),
    ('mv "$f" "${f%.conf}.bak"', "rename the .conf files to .bak"),
    ("echo '.env' >> .gitignore", "ignore .env"),
    ("grep -c '@' a.txt", ""),
    ("git reset --hard HEAD~1", "Throw the last commit away"),
    ("git log --grep fix", "Which commits have fix in their message?"),
    ("zip -r a.zip src", ""),
    ("tar -czf a.tar.gz src", ""),
    ("sort -r names.txt > down.txt", "sort them in reverse order of the alphabet"),
    ("sort -r names.txt", "the largest first"),
    ("bash a.sh > s.txt", "put what it prints into s.txt"),
    ("mv a.pdf b.pdf x/", "Put the PDF files into x"),
    ("mv a.pdf b.txt", "the pdf files"),
    ("mv a.pdf b.pdf c.md x/", "Put the PDF files and the md files into x"),
    ("sort a.txt > b.txt", ""),
    ("sort data/a.txt > a.txt", ""),
    ("echo x >> a.txt", ""),
    ("cat a.txt >> a.txt", ""),
    ("sort a.txt 2> a.txt.log", ""),
    ("grep -c 'active: true' users.yaml", ""),
    ("grep -c true users.json", ""),
    ("grep -oE 'a@b' a.txt", ""),
    ("git reset --hard HEAD", "undo everything"),
    ("git checkout HEAD -- a.ini", "restore a.ini"),
    ("git checkout main", "merge the branch into a.txt"),
    ("ls -l data | sort -k5 -n | tail -n 1", "the largest file"),
]


@pytest.mark.parametrize(("command", "task", "instead"), NOT)
def test_a_command_that_is_surely_not_meant_has_one_that_is(command: str, task: str, instead: str) -> None:
    said = commands.doubt(command, task)
    assert said is not None
    assert said.partition(INSTEAD)[2] == instead


@pytest.mark.parametrize(("command", "task", "instead"), NOT)
def test_nothing_is_said_about_what_was_proposed(command: str, task: str, instead: str) -> None:
    assert commands.doubt(instead, task) is None


@pytest.mark.parametrize(("command", "task"), MEANT)
def test_other_commands_are_done(command: str, task: str) -> None:
    assert commands.doubt(command, task) is None


@pytest.mark.parametrize(
    ("command", "said"),
    [("zip -r old.tar.gz old", "Make old.tar.gz with tar"), ("tar -cf old.zip old", "Make old.zip with zip")],
)
def test_a_packer_makes_what_it_makes_whatever_the_name(command: str, said: str) -> None:
    assert said in (commands.doubt(command, "") or "")


def test_a_placeholder_has_to_be_found_out() -> None:
    said = commands.doubt("grep -c x <FILE_NAME>", "")
    assert said is not None
    assert "<FILE_NAME> stands for something" in said
    assert INSTEAD not in said
