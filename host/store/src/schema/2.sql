-- `action` is `/NAMESPACE/NAME` if the namespace is not `guest`, which has no prefix. The column is not stored, so what
-- is there need not be written anew.
ALTER TABLE activations ADD COLUMN namespace TEXT GENERATED ALWAYS AS (
    CASE WHEN action LIKE '/%' THEN substr(action, 2, instr(substr(action, 2), '/') - 1) ELSE 'guest' END
) VIRTUAL;
CREATE INDEX by_namespace ON activations (namespace);
CREATE INDEX by_namespace_and_time ON activations (namespace, start_ms);
