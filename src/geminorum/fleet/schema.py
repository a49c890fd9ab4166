"""The fleet's tables, and how they are made and brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geminorum.errors import FleetError, Unsupported
from geminorum.fleet.database import Connection, Database
from geminorum.runtime.lazy import lazy_module

if TYPE_CHECKING:
    from procrastinate import schema as procrastinate_schema
else:
    procrastinate_schema = lazy_module("procrastinate.schema")

_LOCK = 0x67656D666C656574
"""Held by the one that makes the tables, while others want to."""

_TABLES = """
CREATE TABLE geminorum_fleet (
    version integer NOT NULL,
    initialised_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE geminorum_workers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    slots integer NOT NULL,
    about jsonb NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_draining boolean NOT NULL DEFAULT false,
    is_lost boolean NOT NULL DEFAULT false
);

CREATE TABLE geminorum_jobs (
    id uuid PRIMARY KEY,
    entry bigint NOT NULL,
    tenant text NOT NULL,
    via text NOT NULL,
    spec bytea NOT NULL,
    pack bytea,
    priority integer NOT NULL,
    max_attempts integer NOT NULL,
    idempotency_key text,
    digest bytea NOT NULL,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done')),
    attempt integer NOT NULL DEFAULT 0,
    worker bigint,
    is_cancelled boolean NOT NULL DEFAULT false,
    waits_for text,
    not_before timestamptz NOT NULL DEFAULT clock_timestamp(),
    submitted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    status text,
    outcome bytea,
    patch bytea,
    UNIQUE (tenant, idempotency_key)
);
CREATE UNIQUE INDEX geminorum_jobs_entry ON geminorum_jobs (entry);
CREATE INDEX geminorum_jobs_open ON geminorum_jobs (state, tenant, via, priority)
    WHERE state <> 'done';
CREATE INDEX geminorum_jobs_submitted ON geminorum_jobs (submitted_at);

CREATE TABLE geminorum_attempts (
    job uuid NOT NULL REFERENCES geminorum_jobs ON DELETE CASCADE,
    number integer NOT NULL,
    worker text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    ending text,
    session text,
    checkpoints integer NOT NULL DEFAULT 0,
    usd numeric,
    PRIMARY KEY (job, number)
);

CREATE TABLE geminorum_events (
    job uuid NOT NULL REFERENCES geminorum_jobs ON DELETE CASCADE,
    attempt integer NOT NULL,
    seq integer NOT NULL,
    count integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (job, attempt, seq)
);
"""
# A limit's key, tenant and model are a name, '' for all together, or '*' for each of its own.
# A bucket holds what one of them has used: `full_at` of a rate is when it will be full again.
_LIMITS = """
CREATE TABLE geminorum_limits (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (
        kind IN ('requests_per_minute', 'tokens_per_minute', 'usd_per_day', 'concurrency')),
    key text NOT NULL,
    tenant text NOT NULL,
    model text NOT NULL,
    amount numeric NOT NULL CHECK (amount > 0),
    burst numeric NOT NULL CHECK (burst > 0),
    refuses boolean NOT NULL,
    label text NOT NULL,
    set_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (kind, key, tenant, model)
);

CREATE TABLE geminorum_buckets (
    limit_id bigint NOT NULL REFERENCES geminorum_limits ON DELETE CASCADE,
    key text NOT NULL,
    tenant text NOT NULL,
    model text NOT NULL,
    full_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    day date NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'UTC')::date,
    used numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (limit_id, key, tenant, model)
) WITH (fillfactor = 50);

CREATE FUNCTION geminorum_wait(
    limits geminorum_limits, bucket geminorum_buckets, wanted numeric
) RETURNS double precision LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN limits.kind <> 'usd_per_day' THEN greatest(0,
            extract(epoch FROM bucket.full_at - clock_timestamp())::double precision
            - ((limits.burst - least(wanted, limits.burst)) * 60 / limits.amount)::double precision)
        WHEN bucket.day < (clock_timestamp() AT TIME ZONE 'UTC')::date
            OR (bucket.used < limits.amount
                AND bucket.used + least(wanted, limits.amount) <= limits.amount) THEN 0
        ELSE extract(epoch FROM
            date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') + interval '1 day'
            - clock_timestamp() AT TIME ZONE 'UTC')::double precision
    END
$$;
COMMENT ON FUNCTION geminorum_wait IS
    'Seconds until a bucket has room for so much; for more than it holds, until it is full.';

CREATE FUNCTION geminorum_obstacle(whose text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT limits.label
    FROM geminorum_limits AS limits LEFT JOIN geminorum_buckets AS bucket
        ON bucket.limit_id = limits.id AND bucket.key = '' AND bucket.model = ''
            AND bucket.tenant = CASE limits.tenant WHEN '' THEN '' ELSE whose END
    WHERE limits.key = '' AND limits.model = '' AND limits.tenant IN ('', '*', whose)
        AND NOT limits.refuses AND CASE limits.kind
            WHEN 'concurrency' THEN limits.amount <= (
                SELECT count(*) FROM geminorum_jobs AS job
                WHERE job.state = 'running' AND (limits.tenant = '' OR job.tenant = whose))
            ELSE bucket.limit_id IS NOT NULL AND geminorum_wait(limits, bucket, 0) > 60
        END
    ORDER BY limits.id LIMIT 1
$$;
COMMENT ON FUNCTION geminorum_obstacle IS
    'The limit that keeps the jobs of a tenant in the queue: a job would only wait for it.';

ALTER TABLE geminorum_jobs ADD COLUMN excused integer NOT NULL DEFAULT 0,
    ADD COLUMN progress bytea;
COMMENT ON COLUMN geminorum_jobs.excused IS
    'Attempts that a limit or a leaving worker ended: they do not count.';
COMMENT ON COLUMN geminorum_jobs.progress IS
    'What the last attempt had changed in the workspace when it was put back.';
"""
_MIGRATIONS: tuple[str, ...] = (_TABLES, _LIMITS)
"""Each brings the tables from the version of its place to the next."""
VERSION = len(_MIGRATIONS)


async def initialise(database: Database, version: int = VERSION) -> int:
    """Makes the tables, or brings them up to date; returns the version that was there before."""
    async with database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        found = await _version(connection)
        _refuse_newer(found)
        if not await _exists(connection, "procrastinate_jobs"):
            await connection.execute(_raw(procrastinate_schema.SchemaManager.get_schema()))
        for migration in _MIGRATIONS[found:version]:
            await connection.execute(_raw(migration))
        await connection.execute("DELETE FROM geminorum_fleet")
        await connection.execute("INSERT INTO geminorum_fleet (version) VALUES (%s)", (version,))
    return found


async def require_current(database: Database) -> None:
    """Raises if the tables are missing, older or newer than this program."""
    async with database.transaction() as connection:
        found = await _version(connection)
    _refuse_newer(found)
    if found < VERSION:
        text = "the fleet's tables are older than this geminorum" if found else "no fleet is here"
        raise FleetError(text, hint="type `geminorum fleet init` once, with the same database")


def _refuse_newer(found: int) -> None:
    if found > VERSION:
        raise Unsupported(
            f"the fleet's tables are of version {found}, and this geminorum knows {VERSION}",
            hint="update this one with `pip install --upgrade 'geminorum[fleet]'`",
        )


async def _version(connection: Connection) -> int:
    if not await _exists(connection, "geminorum_fleet"):
        return 0
    row = await (await connection.execute("SELECT version FROM geminorum_fleet")).fetchone()
    return int(row[0]) if row else 0


async def _exists(connection: Connection, table: str) -> bool:
    row = await (await connection.execute("SELECT to_regclass(%s)", (table,))).fetchone()
    return row is not None and row[0] is not None


def _raw(statements: str) -> Any:
    """Several statements at once; psycopg's types want literal strings, which these are."""
    return statements.encode()
