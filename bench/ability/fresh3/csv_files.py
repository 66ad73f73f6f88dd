"""Tables in CSV: look one thing up, leave a column out, compute a column, bring values up to date."""

import csv
from collections.abc import Mapping
from pathlib import Path

from bench.ability.checks import every, says, table, text, unchanged
from bench.ability.task import Check, Task

_STAFF = """id,name,team,phone
1038,Lena Fischer,platform,555-0121
1040,Tomas Novak,support,555-0177
1042,Priya Nair,platform,555-0143
1043,Ben Okafor,design,555-0190
"""
_PAYROLL = """employee,department,salary,start_date
Lena Fischer,platform,71200,2021-04-01
Tomas Novak,support,54300,2023-09-15
Priya Nair,platform,78900,2019-01-07
Ben Okafor,design,62500,2024-02-01
"""
_ITEMS = """sku,quantity,unit_price
CB-200,4,12.50
SW-008,1,89.90
RJ-045,100,0.35
PD-012,3,41.00
"""
_TOTALS = {"CB-200": (4, 12.5, 50.0), "SW-008": (1, 89.9, 89.9), "RJ-045": (100, 0.35, 35.0), "PD-012": (3, 41, 123.0)}
_PRODUCTS = """sku,name,price
A100,desk lamp,34.00
A101,monitor arm,79.50
A102,footrest,29.90
A103,cable tray,18.25
A104,webcam,64.00
"""
_NEW_PRICES = "sku,price\nA104,59.00\nA101,84.50\nA103,19.75\n"
_UPDATED = {
    "A100": ("desk lamp", 34.0),
    "A101": ("monitor arm", 84.5),
    "A102": ("footrest", 29.9),
    "A103": ("cable tray", 19.75),
    "A104": ("webcam", 59.0),
}


def _rows(path: Path) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(text(path).splitlines()) if row]


def _has_totals(folder: Path) -> bool:
    """50 is as good as 50.00."""
    header, *rows = _rows(folder / "items.csv")
    found = [(sku, int(quantity), float(price), round(float(total), 4)) for sku, quantity, price, total in rows]
    return header == ["sku", "quantity", "unit_price", "total"] and found == [(k, *v) for k, v in _TOTALS.items()]


def _has_prices(wanted: Mapping[str, tuple[str, float]]) -> Check:
    """84.5 is as good as 84.50."""

    def check(folder: Path) -> bool:
        header, *rows = _rows(folder / "products.csv")
        found = [(sku, (name, float(price))) for sku, name, price in rows]
        return header == ["sku", "name", "price"] and found == list(wanted.items())

    return check


TASKS = (
    Task(
        "csv-lookup", "csv", 1,
        "I need to call Priya Nair. Get her phone number from staff.csv and write just the number to phone.txt.",
        says("phone.txt", "555-0143"),
        "awk -F, '$2 == \"Priya Nair\" {print $4}' staff.csv > phone.txt",
        {"staff.csv": _STAFF},
    ),
    Task(
        "csv-drop", "csv", 2,
        "payroll.csv goes to another department and they must not see what people earn. Save a copy without the salary"
        " column as payroll_public.csv.",
        every(
            table("payroll_public.csv", ("employee", "department", "start_date"),
                  ("Lena Fischer", "platform", "2021-04-01"), ("Tomas Novak", "support", "2023-09-15"),
                  ("Priya Nair", "platform", "2019-01-07"), ("Ben Okafor", "design", "2024-02-01")),
            unchanged("payroll.csv", _PAYROLL),
        ),
        "cut -d, -f1,2,4 payroll.csv > payroll_public.csv",
        {"payroll.csv": _PAYROLL},
    ),
    Task(
        "csv-amount", "csv", 2,
        "Add a column total at the end of items.csv, with quantity times unit_price for each row. Change the file"
        " itself.",
        _has_totals,
        "awk -F, 'NR == 1 {print $0 \",total\"; next} {printf \"%s,%.2f\\n\", $0, $2 * $3}' items.csv > new.tmp"
        " && mv new.tmp items.csv",
        {"items.csv": _ITEMS},
    ),
    Task(
        "csv-prices", "csv", 3,
        "Some prices have changed: new_prices.csv has the new price by sku. Update the price column in products.csv"
        " with them. Products that are not in new_prices.csv keep their price, and the order of the rows"
        " stays the same.",
        every(_has_prices(_UPDATED), unchanged("new_prices.csv", _NEW_PRICES)),
        "awk -F, -v OFS=, 'NR == FNR {new[$1] = $2; next} FNR > 1 && $1 in new {$3 = new[$1]} {print}' new_prices.csv"
        " products.csv > new.tmp && mv new.tmp products.csv",
        {"products.csv": _PRODUCTS, "new_prices.csv": _NEW_PRICES},
    ),
)  # fmt: skip
