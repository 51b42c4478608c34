-- Each life of a process of a host has a row, from its start to its end. `beat` grows with each sign of
-- life. `seen` lists how far the host has seen the changes of each chain: 16 bytes of the chain and 8
-- bytes of the number, the highest byte first, for each of them. `about` is for people.
CREATE TABLE host (
  id bytea PRIMARY KEY,
  beat bigint NOT NULL,
  seen bytea NOT NULL,
  about text NOT NULL
);

-- `host` of a chain is the id of its host in hexadecimal digits. Chains of earlier versions belong to no
-- host and are sealed. A retired chain is sealed, and every host has seen its changes.
ALTER TABLE chain ADD COLUMN retired boolean NOT NULL DEFAULT false;
UPDATE chain SET sealed_ms = 0 WHERE sealed_ms IS NULL;
CREATE INDEX chain_live ON chain (id) WHERE NOT retired;
CREATE INDEX chain_host ON chain (host);
