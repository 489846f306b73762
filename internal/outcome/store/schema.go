package store

// schemaVersion stands in the file's header; a file of another version is refused.
const schemaVersion = 1

// applicationID tells a ledger from other files of SQLite: "ckdl".
const applicationID = 0x636b646c

// The tables. All that differs between databases is here: the types of the columns and clustered.
// Unsigned numbers are stored as signed ones of the same 64 bits. Each row that counts ends with a
// checksum over its table, its key and its columns.
const (
	clustered = " WITHOUT ROWID"

	schema = `
CREATE TABLE identity (one SMALLINT PRIMARY KEY, id TEXT, generation BIGINT, branch TEXT, commits BIGINT, sum BIGINT);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT, sum BIGINT)` + clustered + `;
CREATE TABLE policy (hash BLOB PRIMARY KEY, body BLOB, sum BIGINT);
CREATE TABLE promise (promise INTEGER PRIMARY KEY, policy BLOB, version BIGINT, name TEXT, period BIGINT, sum BIGINT, UNIQUE (policy, version));
CREATE TABLE cohort (cohort INTEGER PRIMARY KEY, promise BIGINT, start BIGINT, changes BIGINT, commits BIGINT, sum BIGINT, UNIQUE (promise, start));
CREATE INDEX cohort_commits ON cohort (commits);
CREATE TABLE decision (decision INTEGER PRIMARY KEY, promise BIGINT, time BIGINT, sealer BIGINT, number BIGINT, draw BIGINT, rank BIGINT, grp BIGINT, duplicate SMALLINT,
	body BLOB, readings BLOB, sum BIGINT, sealed BLOB);
CREATE UNIQUE INDEX decision_input ON decision (draw, promise, rank);
CREATE INDEX decision_grp ON decision (grp) WHERE grp <> 0;
CREATE TABLE count (promise BIGINT, start BIGINT, counted BIGINT, body BLOB, sum BIGINT, PRIMARY KEY (promise, start));
CREATE TABLE taken (promise BIGINT, start BIGINT, taken SMALLINT, bets BLOB, point BLOB, sum BIGINT, PRIMARY KEY (promise, start));
CREATE TABLE issued (promise BIGINT, cohort BIGINT, start BIGINT, stratum SMALLINT, process TEXT, decisions BIGINT, eligible BIGINT,
	receipts BIGINT, reviews BIGINT, due BIGINT, expected BIGINT, due_weight BIGINT, settings BIGINT, sum BIGINT,
	PRIMARY KEY (promise, cohort, start, stratum, process))` + clustered + `;
CREATE TABLE issued_sum (promise BIGINT, start BIGINT, stratum SMALLINT, decisions BIGINT, eligible BIGINT,
	receipts BIGINT, reviews BIGINT, due BIGINT, expected BIGINT, due_weight BIGINT, commits BIGINT, sum BIGINT,
	PRIMARY KEY (promise, start, stratum))` + clustered + `;
CREATE INDEX issued_sum_commits ON issued_sum (commits);
CREATE TABLE settings (settings INTEGER PRIMARY KEY, body BLOB UNIQUE, sum BIGINT);
CREATE TABLE applied (promise BIGINT, start BIGINT, settings BIGINT, issued BIGINT, sum BIGINT, PRIMARY KEY (promise, start, settings))` + clustered + `;
CREATE TABLE sealer (sealer INTEGER PRIMARY KEY, name BLOB UNIQUE, through BIGINT, receipt_key TEXT, at BIGINT, commits BIGINT, sum BIGINT);
CREATE INDEX sealer_commits ON sealer (commits);
CREATE TABLE evidence (model TEXT PRIMARY KEY, epoch BIGINT, body BLOB, sum BIGINT);
CREATE TABLE trail (event INTEGER PRIMARY KEY, body BLOB, sum BIGINT);
`
)
