-- The first folder of a run; and what is searched: tasks, answers and commands, their beginnings.
ALTER TABLE runs ADD COLUMN folder TEXT NOT NULL DEFAULT '';
CREATE TABLE said (
    number BIGSERIAL PRIMARY KEY, run_id TEXT COLLATE "C" NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX said_by_run ON said (run_id);
CREATE INDEX said_words ON said USING gin (to_tsvector('simple', regexp_replace(text, '[^[:alnum:]]+', ' ', 'g')));
UPDATE runs SET folder = coalesce((SELECT body::jsonb #>> '{policy,folders,0,host}' FROM events
    WHERE events.run_id = runs.run_id AND seq = 0), '');
INSERT INTO said (run_id, kind, text)
    SELECT run_id, kind, substr(text, 1, 20000) FROM (
        SELECT run_id, seq, CASE type WHEN 'run_finished' THEN 'answer' WHEN 'action_started' THEN 'command'
            ELSE 'task' END AS kind,
            body::jsonb #>> CASE type WHEN 'run_finished' THEN '{answer}'::text[]
                WHEN 'action_started' THEN '{action,action,command}'::text[] ELSE '{task}'::text[] END AS text
        FROM events WHERE type IN ('run_started', 'run_resumed', 'run_finished', 'action_started')
    ) AS found WHERE text != '' ORDER BY run_id, seq;
