"""Plain text: replace, select, sort, count."""

from bench.ability.checks import every, lists, number, says, unchanged
from bench.ability.task import Task

_WORDS = "pear\napple\nfig\napple\nplum\npear\napple\ncherry\n"
_STORY = "".join(f"This is line {number} of the story.\n" for number in range(1, 41))
_NOTES = """# Notes
TODO buy milk
call Anna
TODO write the report
nothing to do here
- TODO: water the plants
done: pay the rent
TODO book a table
"""
_POEM = "Roses are red\n\n\nViolets are blue\n\nSugar is sweet\n\n"
_CONTACTS = """Anna Berg, anna.berg@example.com, Berlin
phone: 030 1234
Please write to info@shop.example or call us.
Tom <tom_k@mail.example.org>
no address here @ all
"""

TASKS = (
    Task(
        "text-unique", "text", 1,
        "Write the lines of words.txt, sorted and without duplicates, into unique.txt.",
        every(lists("unique.txt", "apple", "cherry", "fig", "pear", "plum"), unchanged("words.txt", _WORDS)),
        "sort -u words.txt > unique.txt",
        {"words.txt": _WORDS},
    ),
    Task(
        "text-replace", "text", 2,
        "Replace the word colour by color in all .txt files of this folder.",
        every(
            says("one.txt", "The color of the sea.\nNo color, no fun: color!"),
            says("two.txt", "A color print"),
            says("page.html", "<b>colour</b>"),
        ),
        "sed -i s/colour/color/g *.txt",
        {
            "one.txt": "The colour of the sea.\nNo colour, no fun: colour!\n",
            "two.txt": "A colour print\n",
            "page.html": "<b>colour</b>\n",
        },
    ),
    Task(
        "text-part", "text", 1,
        "Write lines 10 to 20 of story.txt into part.txt.",
        lists("part.txt", *(f"This is line {number} of the story." for number in range(10, 21))),
        "sed -n 10,20p story.txt > part.txt",
        {"story.txt": _STORY},
    ),
    Task(
        "text-todo", "text", 1,
        "How many lines of notes.txt contain the word TODO? Write only the number into todo.txt.",
        number("todo.txt", 4),
        "grep -c TODO notes.txt > todo.txt",
        {"notes.txt": _NOTES},
    ),
    Task(
        "text-blank", "text", 1,
        "Remove all blank lines from poem.txt.",
        says("poem.txt", "Roses are red\nViolets are blue\nSugar is sweet"),
        "sed -i '/^$/d' poem.txt",
        {"poem.txt": _POEM},
    ),
    Task(
        "text-emails", "text", 2,
        "Write all e-mail addresses that stand in contacts.txt into emails.txt, one on each line.",
        lists("emails.txt", "anna.berg@example.com", "info@shop.example", "tom_k@mail.example.org", in_order=False),
        r"grep -oE '[A-Za-z0-9._-]+@[A-Za-z0-9.-]+\.[a-z]+' contacts.txt > emails.txt",
        {"contacts.txt": _CONTACTS},
    ),
    Task(
        "text-upper", "text", 1,
        "Write the content of names.txt in upper case into upper.txt.",
        every(says("upper.txt", "ANNA BERG\nTOM KLEIN\nZOE"), unchanged("names.txt", "Anna Berg\nTom Klein\nZoe\n")),
        "tr a-z A-Z < names.txt > upper.txt",
        {"names.txt": "Anna Berg\nTom Klein\nZoe\n"},
    ),
)  # fmt: skip
