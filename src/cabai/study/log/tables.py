"""How studies are stored: three tables, the same in SQLite and PostgreSQL, and every statement about them.

`cabai_event` is the log: rows are added, and never changed. Its keys make a doubled result, and a lost update,
impossible in the database itself. `cabai_snapshot` is a cache of states, which may be deleted at any time. Times are
seconds since 1970, UTC.
"""

from __future__ import annotations

from cabai.study.log.events import Event

VERSION = 1  # of the tables
FORMAT = 1  # of a whole log in a file
SQLITE, POSTGRES = "sqlite", "postgresql"

WORDS = {  # by the kind of database; `number` counts studies, in the order in which they were created
    SQLITE: {"number": "INTEGER PRIMARY KEY AUTOINCREMENT", "end": " WITHOUT ROWID"},
    POSTGRES: {"number": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "end": ""},
}

MAKE = (
    "CREATE TABLE cabai_tables (version INTEGER NOT NULL)",
    f"INSERT INTO cabai_tables VALUES ({VERSION})",
    # request: the Idempotency-Key that created it; tests: how `cabai run` tries each arm
    "CREATE TABLE cabai_study (number {number}, id BIGINT NOT NULL UNIQUE, name VARCHAR(200) NOT NULL UNIQUE, "
    "token VARCHAR(32) NOT NULL UNIQUE, request VARCHAR(200), created DOUBLE PRECISION NOT NULL, recipe TEXT NOT NULL, "
    "tests TEXT)",
    "CREATE TABLE cabai_event (study BIGINT NOT NULL REFERENCES cabai_study (id) ON DELETE CASCADE, "
    "place BIGINT NOT NULL, kind VARCHAR(8) NOT NULL, time DOUBLE PRECISION NOT NULL, pull BIGINT, arm INTEGER, "
    "item BIGINT, reward DOUBLE PRECISION, cost DOUBLE PRECISION, worker VARCHAR(200), request VARCHAR(200), "
    "words TEXT, PRIMARY KEY (study, place)){end}",
    "CREATE UNIQUE INDEX cabai_one_result ON cabai_event (study, pull) "
    "WHERE kind IN ('tell', 'lose', 'counts', 'import')",
    "CREATE UNIQUE INDEX cabai_one_period ON cabai_event (study, request) WHERE kind = 'counts'",
    "CREATE INDEX cabai_turn ON cabai_event (study, place) WHERE kind IN ('stop', 'amend')",
    "CREATE TABLE cabai_snapshot (study BIGINT PRIMARY KEY REFERENCES cabai_study (id) ON DELETE CASCADE, "
    "version VARCHAR(20) NOT NULL, place BIGINT NOT NULL, state TEXT NOT NULL)",
)
TABLES_VERSION = "SELECT version FROM cabai_tables"
NAMES_OF_TABLES = {
    SQLITE: "SELECT name FROM sqlite_master WHERE type = 'table'",
    POSTGRES: "SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))",
}
ONE_MAKER = "SELECT pg_advisory_xact_lock(7402117)"  # PostgreSQL: one process at a time makes the tables

COLUMNS = ("id", "name", "token", "request", "created", "recipe")
STUDY = f"SELECT {', '.join(COLUMNS)} FROM cabai_study"
FIND_STUDY = f"{STUDY} WHERE name = ?"
STUDY_OF_ID = f"{STUDY} WHERE id = ?"
NAMES = "SELECT name FROM cabai_study ORDER BY number"
FIND_TOKEN = "SELECT id FROM cabai_study WHERE token = ?"
ADD_STUDY = f"INSERT INTO cabai_study ({', '.join(COLUMNS)}, tests) VALUES (?, ?, ?, ?, ?, ?, ?)"
DELETE_STUDY = "DELETE FROM cabai_study WHERE id = ?"
NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"
TESTS = "SELECT tests FROM cabai_study WHERE id = ?"
KEEP_TESTS = "UPDATE cabai_study SET tests = ? WHERE id = ?"

FIELDS = ", ".join(Event._fields)
FROM_STUDY = (  # one row of nulls if there are no events; none if there is no such study
    f"SELECT {', '.join(f'cabai_event.{name}' for name in Event._fields)} FROM cabai_study AS one "
    "LEFT JOIN cabai_event ON study = one.id AND"
)
EVENTS = f"{FROM_STUDY} place > ? WHERE one.id = ? ORDER BY place"
SOME_EVENTS = f"{EVENTS} LIMIT ?"
INTO = f"INSERT INTO cabai_event (study, {FIELDS}) VALUES"
APPEND = f"{INTO} (?{', ?' * len(Event._fields)})"
STOPS_AND_AMENDMENTS = f"{FROM_STUDY} kind IN ('stop', 'amend') WHERE one.id = ? ORDER BY place"
LAST_PLACE = "SELECT (SELECT max(place) FROM cabai_event WHERE study = one.id) FROM cabai_study AS one WHERE id = ?"
LAST_PLACES = (  # of all studies
    "SELECT id, coalesce((SELECT max(place) FROM cabai_event WHERE study = one.id), 0) FROM cabai_study AS one "
    "ORDER BY number"
)
OF_STUDY = f"SELECT {FIELDS} FROM cabai_event WHERE study = ?"
RESULT = f"{OF_STUDY} AND pull = ? AND kind IN ('tell', 'lose', 'counts', 'import')"
EVENT_AT = f"{OF_STUDY} AND place = ?"
PERIOD = f"{OF_STUDY} AND request = ? AND kind = 'counts'"
FAILURES = (  # by arm and reason, the most frequent twenty
    "SELECT arm, words, count(*) AS times, max(time) AS last FROM cabai_event WHERE study = ? "
    "AND place <= ? AND kind IN ('tell', 'lose', 'import') AND words IS NOT NULL GROUP BY arm, words "
    "ORDER BY times DESC, last DESC, arm LIMIT 20"
)

SNAPSHOT = "SELECT place, state FROM cabai_snapshot WHERE study = ? AND version = ?"
KEEP_SNAPSHOT = (
    "INSERT INTO cabai_snapshot (study, version, place, state) VALUES (?, ?, ?, ?) ON CONFLICT (study) "
    "DO UPDATE SET version = excluded.version, place = excluded.place, state = excluded.state"
)

# What is planned once for each connection to PostgreSQL. Who has waited for the lock must see what was committed
# meanwhile: so the events are read in a statement of their own, sent in the same message; without a join to the study,
# or they would be planned for each new place. The clock is the database's, since those of workers may be wrong.
PREPARE = "; ".join([
    "DEALLOCATE ALL",  # it was cut off in the middle, perhaps: by a time limit, say
    f"PREPARE cabai_lock AS SELECT {NOW} FROM cabai_study WHERE id = $1 FOR UPDATE",
    f"PREPARE cabai_tail AS {OF_STUDY} AND place > $2 ORDER BY place".replace("?", "$1"),
    f"PREPARE cabai_append AS {INTO} ({', '.join(f'${i}' for i in range(1, len(Event._fields) + 2))})",
])  # fmt: skip
