-- "C": ids sort by their bytes, as in SQLite.
CREATE TABLE events (
    run_id TEXT COLLATE "C" NOT NULL, seq INTEGER NOT NULL, at DOUBLE PRECISION NOT NULL, type TEXT NOT NULL,
    body TEXT NOT NULL, crc BIGINT, large TEXT,
    PRIMARY KEY (run_id, seq)
);
CREATE TABLE runs (
    run_id TEXT COLLATE "C" PRIMARY KEY, started DOUBLE PRECISION NOT NULL, task TEXT NOT NULL, bot TEXT NOT NULL,
    model TEXT NOT NULL, status TEXT NOT NULL, turns INTEGER NOT NULL
);
CREATE INDEX runs_by_time ON runs (started);
-- Who drives a run. fence goes up with every change of hands and never down; holder is NULL when nobody does.
CREATE TABLE leases (
    run_id TEXT COLLATE "C" PRIMARY KEY, fence BIGINT NOT NULL, holder TEXT, seen DOUBLE PRECISION NOT NULL
);
-- Large outputs: a run may go on on another host, so they are here and not in files.
CREATE TABLE large_outputs (sha256 TEXT COLLATE "C" PRIMARY KEY, data BYTEA NOT NULL);
