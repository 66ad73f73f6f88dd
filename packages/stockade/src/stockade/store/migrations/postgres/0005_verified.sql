-- Whether the checks passed, of a run that had some: 1 or 0. By its text: JSONB refuses the NUL that an answer may hold.
ALTER TABLE runs ADD COLUMN verified SMALLINT;
UPDATE runs SET verified = (SELECT substring(body FROM '"verified":(true|false)')::boolean::integer FROM events
    WHERE events.run_id = runs.run_id AND type = 'run_finished' ORDER BY seq DESC LIMIT 1);
