-- The first folder of a run; and what is searched: tasks, answers and commands, their beginnings.
ALTER TABLE runs ADD COLUMN folder TEXT NOT NULL DEFAULT '';
UPDATE runs SET folder = coalesce((SELECT json_extract(body, '$.policy.folders[0].host') FROM events
    WHERE events.run_id = runs.run_id AND seq = 0 AND json_valid(body)), '');
CREATE TABLE said (
    number INTEGER PRIMARY KEY, run_id TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX said_by_run ON said (run_id);
CREATE VIRTUAL TABLE words USING fts5(text, content='said', content_rowid='number');
CREATE TRIGGER said_added AFTER INSERT ON said BEGIN
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER said_removed AFTER DELETE ON said BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
END;
INSERT INTO said (run_id, kind, text)
    SELECT run_id, kind, substr(text, 1, 20000) FROM (
        SELECT run_id, seq, CASE type WHEN 'run_finished' THEN 'answer' WHEN 'action_started' THEN 'command'
            ELSE 'task' END AS kind,
            json_extract(body, CASE type WHEN 'run_finished' THEN '$.answer'
                WHEN 'action_started' THEN '$.action.action.command' ELSE '$.task' END) AS text
        FROM events WHERE type IN ('run_started', 'run_resumed', 'run_finished', 'action_started') AND json_valid(body)
    ) WHERE text != '' ORDER BY run_id, seq;
