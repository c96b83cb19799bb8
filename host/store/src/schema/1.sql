-- Calls that have ended. `number` is the order in which they have. `size` is what the result and
-- the logs take in memory, in bytes; it comes before them, so that it is read without them.
CREATE TABLE activations (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    action TEXT NOT NULL,
    version TEXT NOT NULL,
    kind TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    status INTEGER NOT NULL,
    waited_ns INTEGER NOT NULL,
    waited_for TEXT,
    init_ns INTEGER,
    took_ns INTEGER NOT NULL,
    size INTEGER NOT NULL,
    result TEXT NOT NULL,
    logs TEXT
) STRICT;
-- Every list is read from one of these, in its order.
CREATE INDEX by_action ON activations (action);
CREATE INDEX by_time ON activations (start_ms);
CREATE INDEX by_action_and_time ON activations (action, start_ms);

-- Calls that have been accepted and have not ended.
CREATE TABLE running (
    id TEXT PRIMARY KEY,
    action TEXT NOT NULL,
    version TEXT NOT NULL,
    kind TEXT NOT NULL,
    start_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Of each function, since it was made.
CREATE TABLE totals (
    function TEXT PRIMARY KEY,
    cold INTEGER NOT NULL,
    warm INTEGER NOT NULL,
    recreated INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    reclaimed_bytes INTEGER NOT NULL,
    taken_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
