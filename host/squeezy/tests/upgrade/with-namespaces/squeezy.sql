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
, namespace TEXT GENERATED ALWAYS AS (
    CASE WHEN action LIKE '/%' THEN substr(action, 2, instr(substr(action, 2), '/') - 1) ELSE 'guest' END
) VIRTUAL, cause TEXT, limits TEXT) STRICT;
INSERT INTO "activations" VALUES(1,'08bea06cb04af3ddbe71768f8d45e282','p/hello','0.0.1','python:3.11',1795933427543,3,0,NULL,NULL,0,274,'{"error":"the VM for it could not be booted, or has ended: 8.2 TiB of memory are needed, but the host has 21.9 GiB left: use fewer or smaller instances, or free memory"}',NULL,'7f41497093cd7cb8c62a44c1b5e9c834',NULL);
INSERT INTO "activations" VALUES(2,'7f41497093cd7cb8c62a44c1b5e9c834','both','0.0.1','sequence',1795933427543,3,7479688,NULL,NULL,0,330,'{"error":"the VM for it could not be booted, or has ended: 8.2 TiB of memory are needed, but the host has 21.9 GiB left: use fewer or smaller instances, or free memory"}','["08bea06cb04af3ddbe71768f8d45e282"]',NULL,'{"concurrency":1,"logs":10,"memory":1048576}');
INSERT INTO "activations" VALUES(3,'92d10af4a57f5c1cac4b3f6a38c4a134','/acme/hello','0.0.1','python:3.11',1795933427568,3,0,NULL,NULL,0,274,'{"error":"the VM for it could not be booted, or has ended: 8.2 TiB of memory are needed, but the host has 21.9 GiB left: use fewer or smaller instances, or free memory"}',NULL,NULL,NULL);
CREATE TABLE running (
    id TEXT PRIMARY KEY,
    action TEXT NOT NULL,
    version TEXT NOT NULL,
    kind TEXT NOT NULL,
    start_ms INTEGER NOT NULL
, cause TEXT) STRICT, WITHOUT ROWID;
CREATE TABLE totals (
    function TEXT PRIMARY KEY,
    cold INTEGER NOT NULL,
    warm INTEGER NOT NULL,
    recreated INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    reclaimed_bytes INTEGER NOT NULL,
    taken_bytes INTEGER NOT NULL
, condemned_bytes INTEGER NOT NULL DEFAULT 0, taking_ns INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
INSERT INTO "totals" VALUES('/acme/hello',0,0,0,1,0,0,0,0);
INSERT INTO "totals" VALUES('p/hello',0,0,0,1,0,0,0,0);
CREATE INDEX by_action ON activations (action);
CREATE INDEX by_time ON activations (start_ms);
CREATE INDEX by_action_and_time ON activations (action, start_ms);
CREATE INDEX by_namespace ON activations (namespace);
CREATE INDEX by_namespace_and_time ON activations (namespace, start_ms);
COMMIT;
PRAGMA application_id = 1936816761;
PRAGMA user_version = 4;
