-- Whether the checks passed, of a run that had some: 1 or 0.
ALTER TABLE runs ADD COLUMN verified INTEGER;
UPDATE runs SET verified = (SELECT json_extract(body, '$.verified') FROM events
    WHERE events.run_id = runs.run_id AND type = 'run_finished' AND json_valid(body) ORDER BY seq DESC LIMIT 1);
