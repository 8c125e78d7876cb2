"""Adds COUNT rows to the timeline of a home: copies of its newest checkpoint, each the child of the one before.

Usage: rows.py CATALOG COUNT. Only for tests of long lists: the copies share the objects of the first.
"""

import sqlite3
import sys

DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(milliseconds, number):
    """The 26 letters of an id."""
    value = (milliseconds << 80) | number
    letters = []
    for _ in range(26):
        letters.append(DIGITS[value & 31])
        value >>= 5
    return "".join(reversed(letters))


def main():
    catalog, count = sys.argv[1], int(sys.argv[2])
    database = sqlite3.connect(catalog, isolation_level=None)
    database.execute("PRAGMA foreign_keys = OFF")
    database.execute("BEGIN IMMEDIATE")
    cursor = database.execute("SELECT * FROM checkpoints ORDER BY seq DESC LIMIT 1")
    columns = [column[0] for column in cursor.description]
    row = dict(zip(columns, cursor.fetchone()))
    parts = database.execute(
        "SELECT position, kind, key, document FROM checkpoint_parts WHERE checkpoint_id = ?", (row["id"],)
    ).fetchall()
    names = [name for name in columns if name != "seq"]
    insert = f"INSERT INTO checkpoints ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    parent = row["id"]
    milliseconds = row["created_at"] // 1000
    for number in range(1, count + 1):
        clone = dict(row, id=ulid(milliseconds + number, number), parent=parent, created_at=row["created_at"] + number * 1000, label=f"row {number}")
        database.execute(insert, [clone[name] for name in names])
        for part in parts:
            database.execute("INSERT INTO checkpoint_parts VALUES (?, ?, ?, ?, ?)", (clone["id"], *part))
        parent = clone["id"]
    database.execute("UPDATE workspaces SET head = ? WHERE id = ?", (parent, row["workspace_id"]))
    database.execute("COMMIT")


main()
