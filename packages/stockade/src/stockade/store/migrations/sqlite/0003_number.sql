-- The order of the runs is that in which they were put on record: a clock may be wrong. `number` counts them.
CREATE TABLE numbered (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, started REAL NOT NULL, task TEXT NOT NULL, bot TEXT NOT NULL,
    model TEXT NOT NULL, status TEXT NOT NULL, turns INTEGER NOT NULL
);
INSERT INTO numbered (run_id, started, task, bot, model, status, turns)
    SELECT run_id, started, task, bot, model, status, turns FROM runs ORDER BY started, run_id;
DROP TABLE runs;
ALTER TABLE numbered RENAME TO runs;
