-- The table of the locks. One row is one lock, and every operation is one statement about one row, so InnoDB's row locks
-- make it atomic. Rows of free locks stay, because tokens have to rise: see docs/mysql.md for how to delete them.
--
-- Moments are microseconds since 1970, by this database's clock, so no time zone has a say. Texts are compared byte for
-- byte. There is no index but the primary key, on purpose: every acquire and every release would write to it.
CREATE TABLE IF NOT EXISTS {table} (
    -- The namespace and the name, byte for byte.
    name         VARBINARY(512) NOT NULL PRIMARY KEY,
    -- What it was used for last: exclusive, read_write, semaphore, latch or ids.
    kind         VARBINARY(16) NOT NULL,
    -- Who holds it alone. NULL: nobody. A source of ids looks held until a day after its last id.
    holder       VARBINARY(64),
    -- When that hold ends, or ended. For a semaphore that requests have set: the number of permits that they have set.
    expires_at   BIGINT NOT NULL DEFAULT 0,
    -- The fencing token of the last hold; of a source of ids, its last id.
    token        BIGINT NOT NULL DEFAULT 0,
    -- The last token that was given out or set aside. Never goes back.
    last_token   BIGINT NOT NULL DEFAULT 0,
    -- The last token of `fenced`, which counts from 1.
    counter      BIGINT NOT NULL DEFAULT 0,
    -- Readers, or leased permits: [{"h": holder, "e": end, "u": how many}]. NULL: none.
    shares       MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- Until then a writer waits, and no further reader comes in.
    writer_until BIGINT NOT NULL DEFAULT 0,
    -- Until then somebody waits: the process that releases lets others come first now and then.
    polled_until BIGINT NOT NULL DEFAULT 0,
    -- Who waits for a fair lock: [{"h": holder, "n": its place, "d": dead from then on}].
    queue        MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- A semaphore's permits, leased ones included, or a latch's count.
    permits      BIGINT
) ENGINE = InnoDB;

-- Whose locks were taken away by force in the last minute: their managers look here.
CREATE TABLE IF NOT EXISTS {table}_forced (
    forced_at BIGINT NOT NULL,
    holder    VARBINARY(64) NOT NULL,
    PRIMARY KEY (forced_at, holder)
) ENGINE = InnoDB;

-- Who the managers are, for operators. Nothing depends on it.
CREATE TABLE IF NOT EXISTS {table}_managers (
    name       VARBINARY(512) NOT NULL PRIMARY KEY,
    id         VARBINARY(64) NOT NULL,
    app        VARBINARY(1024) NOT NULL,
    host       VARBINARY(1024) NOT NULL,
    process_id BIGINT NOT NULL,
    version    VARBINARY(256) NOT NULL,
    began_at   BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
) ENGINE = InnoDB
