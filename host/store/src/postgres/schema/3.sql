-- How far the use of a rate limit is ahead of its rate: the time, in nanoseconds since 1970 by the clock of
-- the database, at which the use so far is paid off. `id` names the limit and the id of its key or workspace.
-- A crash or a failover of the server empties both tables, which costs each limit once more.
CREATE UNLOGGED TABLE bucket (
  id text COLLATE "C" PRIMARY KEY,
  until_ns bigint NOT NULL
) WITH (fillfactor = 50);

-- How many requests a host may run for a key at the same time, out of what hosts share.
CREATE UNLOGGED TABLE seat (
  key text COLLATE "C",
  host bytea,
  taken bigint NOT NULL,
  PRIMARY KEY (key, host)
) WITH (fillfactor = 50);

-- Programs of earlier schemas do not tell which schemas they know. One of them that found an earlier schema and
-- makes its row after the upgrade becomes no host.
ALTER TABLE host ADD CONSTRAINT host_tells_schema CHECK (about LIKE '%"schema":%') NOT VALID;
