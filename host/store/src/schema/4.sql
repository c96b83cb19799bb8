-- What the host has taken with instances of paused VMs, and how long it took for that and for free memory.
ALTER TABLE totals ADD COLUMN condemned_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE totals ADD COLUMN taking_ns INTEGER NOT NULL DEFAULT 0;
