PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
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
INSERT INTO "activations" VALUES(1,'7504c41d5825e756171d9d72a02ae729','hello','0.0.2','python:3.11',1795627384061,3,0,NULL,NULL,0,274,'{"error":"the VM for it could not be booted, or has ended: 8.2 TiB of memory are needed, but the host has 22.5 GiB left: use fewer or smaller instances, or free memory"}',NULL);
INSERT INTO "activations" VALUES(2,'5bd01b37fdc8d7908fbb7f6810cccc92','image','0.0.1','blackbox',1795627384084,3,0,NULL,NULL,0,274,'{"error":"the VM for it could not be booted, or has ended: 8.2 TiB of memory are needed, but the host has 22.5 GiB left: use fewer or smaller instances, or free memory"}',NULL);
CREATE TABLE running (
    id TEXT PRIMARY KEY,
    action TEXT NOT NULL,
    version TEXT NOT NULL,
    kind TEXT NOT NULL,
    start_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE totals (
    function TEXT PRIMARY KEY,
    cold INTEGER NOT NULL,
    warm INTEGER NOT NULL,
    recreated INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    reclaimed_bytes INTEGER NOT NULL,
    taken_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "totals" VALUES('hello',0,0,0,1,0,0);
INSERT INTO "totals" VALUES('image',0,0,0,1,0,0);
CREATE INDEX by_action ON activations (action);
CREATE INDEX by_time ON activations (start_ms);
CREATE INDEX by_action_and_time ON activations (action, start_ms);
COMMIT;
PRAGMA application_id = 1936816761;
PRAGMA user_version = 1;
