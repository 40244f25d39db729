-- The table of the locks. One row is one lock, and every operation is one statement about one row, so PostgreSQL's row
-- locks make it atomic. Rows of free locks stay, because tokens have to rise: see docs/postgres.md for how to delete them.
--
-- There is no index but the primary key, on purpose: an index on `expires_at` would make every acquire and every release
-- write to it, and no update would be HOT. Pages stay half empty for the same reason.
CREATE TABLE IF NOT EXISTS {table} (
    -- The namespace and the name, byte for byte.
    name         text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) <= 512),
    -- What it was used for last: exclusive, read_write, semaphore, latch or ids.
    kind         text COLLATE "C" NOT NULL,
    -- Who holds it alone. NULL: nobody. A source of ids looks held until a day after its last id.
    holder       text COLLATE "C",
    -- When that hold ends, or ended, by this database's clock. For a semaphore that requests have set: as many µs after 1970
    -- as they have set permits.
    expires_at   timestamptz NOT NULL,
    -- The fencing token of the last hold; of a source of ids, its last id.
    token        bigint NOT NULL DEFAULT 0,
    -- The last token that was given out or set aside. Never goes back.
    last_token   bigint NOT NULL DEFAULT 0,
    -- The last token of `fenced`, which counts from 1.
    counter      bigint NOT NULL DEFAULT 0,
    -- Until then somebody waits, and wants to be notified.
    waited_until timestamptz NOT NULL DEFAULT 'epoch',
    -- Readers, or leased permits: {"holder": [end in microseconds since 1970, how many]}. NULL: none.
    shares       jsonb,
    -- Until then a writer waits, and no further reader comes in.
    writer_until timestamptz,
    -- Until then somebody waits who does not listen: the process that releases lets others come first now and then.
    polled_until timestamptz NOT NULL DEFAULT 'epoch',
    -- Who waits for a fair lock, in order: [{"h": holder, "d": dead from then on, in microseconds, "t": topic}].
    queue        jsonb,
    -- A semaphore's permits, leased ones included, or a latch's count.
    permits      bigint
) WITH (fillfactor = 50);

-- Who the managers are, for operators. Nothing depends on it.
CREATE TABLE IF NOT EXISTS {table}_managers (
    name       text COLLATE "C" PRIMARY KEY,
    id         text NOT NULL,
    app        text NOT NULL,
    host       text NOT NULL,
    process_id bigint NOT NULL,
    version    text NOT NULL,
    began_at   timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
