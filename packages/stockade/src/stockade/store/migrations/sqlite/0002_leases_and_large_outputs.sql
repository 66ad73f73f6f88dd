-- crc: of the body. large: what was taken out of the body into files (rows.py); both NULL in rows of before.
ALTER TABLE events ADD COLUMN crc INTEGER;
ALTER TABLE events ADD COLUMN large TEXT;
-- Who drives a run. fence goes up with every change of hands and never down; holder is NULL when nobody does.
CREATE TABLE leases (
    run_id TEXT PRIMARY KEY, fence INTEGER NOT NULL, holder TEXT, seen REAL NOT NULL
) WITHOUT ROWID;
