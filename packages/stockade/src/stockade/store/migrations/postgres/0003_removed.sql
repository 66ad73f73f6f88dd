-- Runs that the user removed, so that what is left of them elsewhere is known to be nobody's.
CREATE TABLE removed (run_id TEXT COLLATE "C" PRIMARY KEY, at DOUBLE PRECISION NOT NULL);
