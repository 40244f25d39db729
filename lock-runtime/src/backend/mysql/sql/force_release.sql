-- Takes a lock away from its holder, and notes the holder for those who watch. No row: nobody had it.
--
-- A row that is noted stays locked until both is done: nobody is noted who gave the lock back before. One that was free is
-- not locked, and whoever acquires it meanwhile would be noted nowhere: that holder keeps it.
-- $1 name
START TRANSACTION;
DELETE FROM {table}_forced WHERE forced_at < {micros} - 60000000;
INSERT INTO {table}_forced (forced_at, holder)
SELECT {micros}, COALESCE(IF(l.expires_at > {micros}, l.holder, NULL), s.h)
FROM {table} AS l LEFT JOIN {shared} AS s ON s.e > {micros}
WHERE l.name = $1 AND l.kind <> 'ids' AND ((l.holder IS NOT NULL AND l.expires_at > {micros}) OR s.h IS NOT NULL)
FOR UPDATE /*!80001 OF l */;
SET @noted = ROW_COUNT();
UPDATE {table} AS l SET permits = IF({is_by_request}, NULL, permits), holder = NULL,
    expires_at = IF({was_by_request}, {micros}, LEAST(expires_at, {micros})), shares = NULL
WHERE l.name = $1 AND @noted > 0 AND ((holder IS NOT NULL AND expires_at > {micros}) OR (shares IS NOT NULL AND {live} IS NOT NULL));
SET @forced = ROW_COUNT();
COMMIT;
SELECT @forced FROM DUAL WHERE @forced > 0
