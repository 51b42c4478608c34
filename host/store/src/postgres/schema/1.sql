-- `k` is the row key of the embedded engine, and `body` its row, byte for byte. All other columns
-- are derived from the body, serve lookups and are never believed. `slot` is what moves together:
-- the workspace that the row belongs to.

CREATE TABLE directory (
  k bytea PRIMARY KEY,
  slot smallint NOT NULL,
  -- The workspace; empty for workspaces and unscoped keys.
  ws bytea NOT NULL,
  kind smallint NOT NULL,
  -- Labels of keys are not names.
  name text,
  -- The row key of the member or intern that a key acts for.
  owner bytea,
  made_ms bigint NOT NULL,
  body bytea NOT NULL
);
CREATE UNIQUE INDEX directory_name ON directory (ws, kind, name);
CREATE INDEX directory_made ON directory (ws, kind, made_ms DESC, k);
CREATE INDEX directory_owner ON directory (owner) WHERE owner IS NOT NULL;

-- The rows that transactions lock: heads of vaults, workspaces, accounts, and the store. A row
-- without a body is only a guard.
CREATE TABLE head (
  k bytea PRIMARY KEY,
  slot smallint NOT NULL,
  body bytea
);

CREATE TABLE key_record (
  k bytea PRIMARY KEY,
  slot smallint NOT NULL,
  body bytea NOT NULL
);

-- `meta` is the row of the keyspace `meta`, `value` that of `values`.
CREATE TABLE secret (
  k bytea PRIMARY KEY,
  slot smallint NOT NULL,
  meta bytea,
  value bytea
);
ALTER TABLE secret ALTER COLUMN value SET STORAGE EXTERNAL;

-- Spend, daily totals, and intents of requests.
CREATE TABLE ledger (
  k bytea PRIMARY KEY,
  body bytea NOT NULL
);

-- One chain of audit records for each lane and life of a process. `changed` is the last commit that
-- has rows in `change`; `checked` counts questions what became of a commit.
CREATE TABLE chain (
  id bytea PRIMARY KEY,
  host text NOT NULL,
  seq bigint NOT NULL,
  head bytea NOT NULL,
  changed bigint NOT NULL,
  checked bigint NOT NULL,
  sealed_ms bigint
) WITH (fillfactor = 50);

-- `position` is the number of the transaction, so rows of all chains have one order. Rows with a
-- smaller number than every transaction in progress are final.
CREATE TABLE audit (
  day integer NOT NULL,
  chain bytea NOT NULL,
  seq bigint NOT NULL,
  position bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
  body bytea NOT NULL,
  PRIMARY KEY (chain, seq, day)
) PARTITION BY RANGE (day);
CREATE TABLE audit_rest PARTITION OF audit DEFAULT;
CREATE INDEX audit_position ON audit (position);

CREATE TABLE usage (
  day integer NOT NULL,
  chain bytea NOT NULL,
  seq bigint NOT NULL,
  part integer NOT NULL,
  position bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
  body bytea NOT NULL,
  PRIMARY KEY (chain, seq, part, day)
) PARTITION BY RANGE (day);
CREATE TABLE usage_rest PARTITION OF usage DEFAULT;
CREATE INDEX usage_position ON usage (position, part);

-- What each commit changed, for other hosts. `topic` is a row key.
CREATE TABLE change (
  chain bytea NOT NULL,
  seq bigint NOT NULL,
  n integer NOT NULL,
  topic bytea NOT NULL,
  PRIMARY KEY (chain, seq, n)
);
