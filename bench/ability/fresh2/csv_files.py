"""Tables in CSV: columns, stack, doubles, dates, join."""

import csv
from pathlib import Path

from bench.ability.checks import every, lists, table, text, unchanged
from bench.ability.task import Task

_COLUMNS = ("ticket", "opened", "closed", "priority", "assignee", "minutes_spent")
_TICKETS = ",".join(_COLUMNS) + "\n811,2026-02-01,2026-02-02,high,uma,45\n812,2026-02-01,,low,ravi,5\n"
_MONTHS = {
    "monthly/jan.csv": "day,visits\n2026-01-10,310\n2026-01-20,295\n",
    "monthly/feb.csv": "day,visits\n2026-02-10,402\n2026-02-20,371\n",
    "monthly/mar.csv": "day,visits\n2026-03-10,388\n",
}
_VISITS = tuple(
    tuple(line.split(",")) for content in _MONTHS.values() for line in content.splitlines() if line != "day,visits"
)
_SIGNUPS = """email,name,plan
ravi@example.org,Ravi,free
june@example.org,June,pro
ravi@example.org,Ravi K.,pro
omar@example.org,Omar,free
june@example.org,June,pro
tess@example.org,Tess,team
"""
_BOOKINGS = "room,date,guests\n12,03.04.2026,2\n7,21.12.2026,1\n12,09.11.2025,4\n"
_ORDERS = "order_id,customer_id,total\n5001,c3,45.50\n5002,c1,12.25\n5003,c3,8.75\n5004,c2,99.90\n"
_CUSTOMERS = "customer_id,name,city\nc1,Hartmann,Kiel\nc2,Oyelaran,Leeds\nc3,Petit,Lyon\nc4,Sato,Turin\n"


def _has_names(folder: Path) -> bool:
    """Rows in any order; 45.5 is as good as 45.50."""
    header, *rows = (row for row in csv.reader(text(folder / "orders_named.csv").splitlines()) if row)
    found = sorted((order.strip(), name.strip(), float(total)) for order, name, total in rows)
    wanted = [("5001", "Petit", 45.5), ("5002", "Hartmann", 12.25), ("5003", "Petit", 8.75), ("5004", "Oyelaran", 99.9)]
    return [cell.strip() for cell in header] == ["order_id", "customer", "total"] and found == wanted


TASKS = (
    Task(
        "csv-columns", "csv", 1,
        "Which columns does tickets.csv have? Put the column names into columns.txt, one per line.",
        lists("columns.txt", *_COLUMNS, in_order=False),
        "head -n 1 tickets.csv | tr , '\\n' > columns.txt",
        {"tickets.csv": _TICKETS},
    ),
    Task(
        "csv-stack", "csv", 2,
        "The three files in monthly all have the same header. Combine them into a single quarter.csv with all the rows"
        " and the header just once at the top.",
        every(
            table("quarter.csv", ("day", "visits"), *_VISITS, in_order=False),
            *(unchanged(name, content) for name, content in _MONTHS.items()),
        ),
        "awk 'NR == 1 || FNR > 1' monthly/*.csv > quarter.csv",
        _MONTHS,
    ),
    Task(
        "csv-doubles", "csv", 2,
        "Some people signed up more than once in signups.csv. Keep only the first row for each email address and write"
        " the result, header included, to signups_clean.csv.",
        every(
            table("signups_clean.csv", ("email", "name", "plan"), ("ravi@example.org", "Ravi", "free"),
                  ("june@example.org", "June", "pro"), ("omar@example.org", "Omar", "free"),
                  ("tess@example.org", "Tess", "team"), in_order=False),
            unchanged("signups.csv", _SIGNUPS),
        ),
        "awk -F, '!seen[$1]++' signups.csv > signups_clean.csv",
        {"signups.csv": _SIGNUPS},
    ),
    Task(
        "csv-dates", "csv", 2,
        "The dates in bookings.csv are written as DD.MM.YYYY. Change them in the file to YYYY-MM-DD, so 03.04.2026"
        " becomes 2026-04-03. Nothing else in it should change.",
        table("bookings.csv", ("room", "date", "guests"), ("12", "2026-04-03", "2"), ("7", "2026-12-21", "1"),
              ("12", "2025-11-09", "4")),
        "sed -i -E 's/([0-9]{2})\\.([0-9]{2})\\.([0-9]{4})/\\3-\\2-\\1/' bookings.csv",
        {"bookings.csv": _BOOKINGS},
    ),
    Task(
        "csv-join", "csv", 3,
        "orders.csv only has customer ids, the names are in customers.csv. Create orders_named.csv with the columns"
        " order_id,customer,total where customer is the customer's name. One row per order.",
        every(_has_names, unchanged("orders.csv", _ORDERS), unchanged("customers.csv", _CUSTOMERS)),
        "(echo order_id,customer,total; awk -F, 'FNR == 1 {next} NR == FNR {n[$1] = $2; next}"
        " {print $1 \",\" n[$2] \",\" $3}' customers.csv orders.csv) > orders_named.csv",
        {"orders.csv": _ORDERS, "customers.csv": _CUSTOMERS},
    ),
)  # fmt: skip
