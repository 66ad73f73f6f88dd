-- The order of the runs is that in which they were put on record: a clock may be wrong. `number` counts them.
ALTER TABLE runs ADD COLUMN number BIGINT;
UPDATE runs SET number = found.number
    FROM (SELECT run_id, row_number() OVER (ORDER BY started, run_id) AS number FROM runs) AS found
    WHERE found.run_id = runs.run_id;
CREATE SEQUENCE runs_number OWNED BY runs.number;
SELECT setval('runs_number', (SELECT coalesce(max(number), 0) + 1 FROM runs), false);
ALTER TABLE runs ALTER COLUMN number SET DEFAULT nextval('runs_number');
ALTER TABLE runs ALTER COLUMN number SET NOT NULL;
CREATE UNIQUE INDEX runs_by_number ON runs (number);
DROP INDEX runs_by_time;
