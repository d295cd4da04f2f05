//! Queries on an SQLite file.
//!
//! Each query has its own connection, so that no state is left for the next one and a replaced file is noticed
//! immediately. The authorizer decides during preparation what a statement can do; its text is not parsed. The file
//! is opened read-only, and the connection is also set to query-only, unless the query writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rusqlite::config::DbConfig;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Batch, Connection, Error, ErrorCode, OpenFlags, Row, ffi};
use serde_json::{Number, Value};

use super::config::SqlLimits;
use super::error::SqlError;
use super::placeholder::Statement;
use super::rows::{Capacity, Rows, unique};
use super::tools::{Kind, Question, StatementResult};
use crate::catalog::ToolError;
use crate::limit::SectionHits;
use crate::source::builtin::{Blocking, Stop};
use crate::source::limits::time_limit;

/// Query for the tables and views.
pub(super) const TABLES: &str = "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') \
     AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name";

/// Query for the columns of a table, generated ones included. Virtual tables have hidden columns, which are not listed.
pub(super) const COLUMNS: &str = "SELECT cid, name, type, \"notnull\", dflt_value, pk \
     FROM pragma_table_xinfo(:table_name) WHERE hidden <> 1";

/// Maximum size of a value, a row or a statement, in bytes.
const VALUE_BYTES: i32 = 16 * 1024 * 1024;
/// Maximum size of a value in a free query that uses one of [`SLOW`], in bytes.
const SLOW_VALUE_BYTES: i32 = 256 * 1024;
/// Functions whose time is proportional to the product of the sizes of their arguments. Nothing interrupts a function.
const SLOW: [&str; 7] = [
    "instr",
    "replace",
    "trim",
    "ltrim",
    "rtrim",
    "json_patch",
    "jsonb_patch",
];
/// Maximum memory of all queries of this process together, in bytes.
const HEAP_BYTES: i64 = 256 * 1024 * 1024;
/// Maximum length of a pattern of LIKE or GLOB in a free query, in bytes. Their time is proportional to the product of the
/// lengths of text and pattern.
const FREE_PATTERN_BYTES: i32 = 100;
/// Number of virtual machine steps between two checks of the time.
const STEPS: i32 = 200;
/// Maximum time to wait for another writing process, in milliseconds, within the query's timeout.
const BUSY_MS: u64 = 2000;

#[derive(Debug)]
pub(super) struct Sqlite {
    name: String,
    path: PathBuf,
    limits: SqlLimits,
    pool: Blocking,
}

impl Sqlite {
    /// Opens a database whose file exists and is readable.
    pub(super) fn new(
        name: &str,
        path: &Path,
        limits: &SqlLimits,
        hits: SectionHits,
    ) -> Result<Self, String> {
        let database = Self {
            name: name.to_owned(),
            path: path.to_owned(),
            limits: limits.clone(),
            pool: Blocking::new(limits.concurrency, time_limit(limits.timeout_seconds))
                .counting(hits),
        };
        let shown = path.display();
        let found = std::fs::metadata(path).map_err(|error| {
            format!("names {shown}, which cannot be read: {error}; create the database first")
        })?;
        // Opening a named pipe would block.
        if !found.is_file() {
            return Err(format!("names {shown}, which is not a file"));
        }
        database
            .connect(false)
            .and_then(|connection| {
                connection.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))
            })
            .map_err(|error| {
                let problem = match needs_writing(&error) {
                    true => UNREADABLE.to_owned(),
                    false => message(&error),
                };
                format!("names {shown}, which cannot be used: {problem}")
            })?;
        Ok(database)
    }

    /// Checks that a statement is valid, without running it.
    pub(super) fn check(&self, statement: &Statement, kind: Kind) -> Result<(), String> {
        let mut connection = self
            .connect(kind == Kind::Write)
            .map_err(|error| message(&error))?;
        authorize(&mut connection, kind).map_err(|error| message(&error))?;
        prepared(&connection, statement, kind)
            .map(|_| ())
            .map_err(|error| match error {
                Problem::Database(error) => message(&error),
                Problem::Refused(problem) => problem,
            })
    }

    pub(super) async fn ask(
        self: &Arc<Self>,
        question: Question,
    ) -> Result<StatementResult, ToolError> {
        let this = Arc::clone(self);
        let work = move |stop: &Stop| this.run_statement(&question, stop).map_err(ToolError::from);
        self.pool.run(work).await
    }

    fn run_statement(&self, question: &Question, stop: &Stop) -> Result<StatementResult, SqlError> {
        self.try_answer(question, stop)
            .map_err(|problem| match problem {
                Problem::Database(error) => self.in_words(error, stop),
                Problem::Refused(problem) => SqlError::Refused(problem),
            })
    }

    fn try_answer(&self, question: &Question, stop: &Stop) -> Result<StatementResult, Problem> {
        let mut connection = self.connect(question.kind == Kind::Write)?;
        let is_slow = authorize(&mut connection, question.kind)?;
        let stop_of = stop;
        let stop = stop.clone();
        connection.progress_handler(STEPS, Some(move || stop.check().is_err()))?;
        let mut statement = prepared(&connection, &question.statement, question.kind)?;
        if question.kind == Kind::Free {
            connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, FREE_PATTERN_BYTES)?;
            if is_slow.load(Ordering::Relaxed) {
                connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, SLOW_VALUE_BYTES)?;
            }
        }
        for (name, value) in question.statement.names.iter().zip(&question.values) {
            if let Some(index) = statement.parameter_index(&format!(":{name}"))? {
                statement.raw_bind_parameter(index, bound(value))?;
            }
        }
        if question.kind == Kind::Write {
            let mut rows = statement.raw_query();
            while rows.next()?.is_some() {}
            drop(rows);
            return Ok(StatementResult::Changed(connection.changes()));
        }
        let keys: Vec<String> = unique(statement.column_names())
            .into_iter()
            .map(|name| Value::from(name).to_string())
            .collect();
        let mut found = Rows::new(&self.limits);
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let capacity = match object(row, &keys, self.limits.result_bytes)? {
                Some(row) => found.push(&row),
                None => found.leave_out(),
            };
            if capacity == Capacity::Full {
                stop_of.hit(found.full());
                break;
            }
        }
        Ok(StatementResult::Rows(found))
    }

    fn connect(&self, write: bool) -> Result<Connection, Error> {
        let mode = if write {
            OpenFlags::SQLITE_OPEN_READ_WRITE
        } else {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        };
        let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(
            std::time::Duration::from_millis(BUSY_MS).min(time_limit(self.limits.timeout_seconds)),
        )?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        for (limit, value) in [
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, 1024 * 1024),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
            (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        ] {
            connection.set_limit(limit, value)?;
        }
        // Temporary data that exceeds the memory limit fails the query; it is not written to disk.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        let heap = format!("PRAGMA hard_heap_limit = {HEAP_BYTES}");
        connection.query_row(&heap, (), |_| Ok(()))?;
        connection.pragma_update(None, "query_only", !write)?;
        Ok(connection)
    }

    fn in_words(&self, error: Error, stop: &Stop) -> SqlError {
        let Some(code) = error.sqlite_error_code() else {
            return SqlError::Answer(message(&error));
        };
        match code {
            ErrorCode::ReadOnly if needs_writing(&error) => {
                tracing::warn!(database = %self.name, "a database cannot be read: {UNREADABLE}");
                SqlError::unusable(&self.name, error)
            }
            ErrorCode::OperationInterrupted => SqlError::Answer(stop.overdue("the query")),
            ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly => {
                let problem = format!("this query is not allowed here: {}", message(&error));
                SqlError::Refused(problem)
            }
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                SqlError::Answer("another process is writing; try again in a moment".to_owned())
            }
            ErrorCode::TooBig => {
                let problem = format!(
                    "a value is too long ({}): at most {} KiB each with instr, replace, trim and json_patch, and {} MiB otherwise",
                    message(&error),
                    SLOW_VALUE_BYTES / 1024,
                    VALUE_BYTES / 1024 / 1024
                );
                SqlError::Answer(problem)
            }
            ErrorCode::OutOfMemory => {
                SqlError::Answer("the query needs too much memory; ask for less".to_owned())
            }
            ErrorCode::CannotOpen
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::DiskFull
            | ErrorCode::NotADatabase
            | ErrorCode::PermissionDenied
            | ErrorCode::SystemIoFailure => SqlError::unusable(&self.name, error),
            _ => SqlError::Answer(message(&error)),
        }
    }
}

/// Internal error of a query.
enum Problem {
    Database(Error),
    Refused(String),
}

impl Problem {
    fn refused(problem: &str) -> Self {
        Self::Refused(problem.to_owned())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

fn prepared<'a>(
    connection: &'a Connection,
    statement: &Statement,
    kind: Kind,
) -> Result<rusqlite::Statement<'a>, Problem> {
    // `prepare` recurses for each following statement, so a text of many semicolons would overflow the stack.
    let mut statements = Batch::new(connection, &statement.named);
    let Some(prepared) = statements.next()? else {
        return Err(Problem::refused("the statement is empty"));
    };
    if statements.next()?.is_some() {
        return Err(Problem::refused(
            "there are several statements; send one at a time",
        ));
    }
    if kind != Kind::Write && !(prepared.readonly() && 0 < prepared.column_count()) {
        return Err(Problem::refused("only queries that read may be asked here"));
    }
    check_parameters(&prepared, statement, kind)?;
    Ok(prepared)
}

/// Rejects a parameter that gets no value, which SQLite would take for NULL. A free query has no values.
fn check_parameters(
    prepared: &rusqlite::Statement<'_>,
    statement: &Statement,
    kind: Kind,
) -> Result<(), Problem> {
    let is_bound = |name: &str| {
        let name = name.strip_prefix(':').filter(|_| kind != Kind::Free);
        name.is_some_and(|name| statement.names.iter().any(|known| known == name))
    };
    let mut all = (1..=prepared.parameter_count()).map(|index| prepared.parameter_name(index));
    let Some(name) = all.find(|name| !name.is_some_and(is_bound)) else {
        return Ok(());
    };
    let name = name.unwrap_or("?");
    Err(Problem::Refused(match kind {
        Kind::Free => format!("the parameter {name} has no value; write the value in its place"),
        Kind::Fixed | Kind::Write => format!(
            "the parameter {name} has no value; write :name, with ASCII letters, digits and underscores"
        ),
    }))
}

/// Limits a statement to reading tables, and to writing them if the query is configured to write. The flag is set when a
/// statement is prepared that uses one of [`SLOW`].
fn authorize(connection: &mut Connection, kind: Kind) -> Result<Arc<AtomicBool>, Error> {
    let write = kind == Kind::Write;
    let is_slow = Arc::new(AtomicBool::new(false));
    let uses_slow = Arc::clone(&is_slow);
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        let is_allowed = match context.action {
            AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
            AuthAction::Function { function_name } => {
                let name = function_name.to_ascii_lowercase();
                if SLOW.contains(&&*name) {
                    uses_slow.store(true, Ordering::Relaxed);
                }
                !matches!(&*name, "load_extension" | "fts3_tokenizer")
            }
            // The first two are allowed as the table-valued functions `pragma_table_info` and `pragma_table_xinfo`, which
            // only read. FTS5 tables use the third to find out whether they have changed.
            AuthAction::Pragma {
                pragma_name,
                pragma_value,
            } => {
                pragma_name.eq_ignore_ascii_case("table_info")
                    || pragma_name.eq_ignore_ascii_case("table_xinfo")
                    || (pragma_name.eq_ignore_ascii_case("data_version") && pragma_value.is_none())
            }
            AuthAction::Insert { table_name }
            | AuthAction::Update { table_name, .. }
            | AuthAction::Delete { table_name } => {
                !table_name.starts_with("sqlite_") && (write || is_of_rtree(table_name))
            }
            _ => false,
        };
        if is_allowed {
            Authorization::Allow
        } else {
            Authorization::Deny
        }
    }))?;
    Ok(is_slow)
}

/// Returns true for the names of the tables in which R-tree tables store their content. An R-tree prepares its writes
/// even to be read. Nothing can run them, since the connection is read-only.
fn is_of_rtree(table: &str) -> bool {
    ["_node", "_rowid", "_parent"]
        .iter()
        .any(|ending| table.ends_with(ending))
}

/// Explanation of errors for which [`needs_writing`] is true.
const UNREADABLE: &str = "the program that wrote to it has crashed, or it is in WAL mode and its folder cannot be written; \
     open it once with a program that may write to it, or make the folder writable";

/// Returns true if SQLite has to write before it can read: to roll back an unfinished transaction, or to create the
/// files of WAL mode.
fn needs_writing(error: &Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| code & 0xff == ffi::SQLITE_READONLY && code != ffi::SQLITE_READONLY)
}

/// Writes a row as a JSON object. Returns `None` if it is longer than `max` bytes, without copying what does not fit: a
/// value can occur in all of up to 2,000 columns.
fn object(row: &Row<'_>, keys: &[String], max: usize) -> Result<Option<String>, Error> {
    let mut json = String::from("{");
    for (index, key) in keys.iter().enumerate() {
        let value = row.get_ref(index)?;
        let size = match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        if max < json.len() + key.len() + size {
            return Ok(None);
        }
        if 0 < index {
            json.push(',');
        }
        json.push_str(key);
        json.push(':');
        json.push_str(&shown(value).to_string());
    }
    json.push('}');
    Ok(Some(json))
}

/// Returns SQLite's message without the statement, which the caller knows.
fn message(error: &Error) -> String {
    match error {
        Error::SqliteFailure(_, Some(message)) => message.clone(),
        Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// Converts a column value to JSON; bytes are encoded in Base64. JSON has no infinity, which PostgreSQL writes like this.
fn shown(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(f64::INFINITY) => "Infinity".into(),
        ValueRef::Real(f64::NEG_INFINITY) => "-Infinity".into(),
        ValueRef::Real(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => STANDARD.encode(bytes).into(),
    }
}

/// Converts an argument to an SQLite value.
fn bound(value: &Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(truth) => SqlValue::Integer((*truth).into()),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => SqlValue::Integer(whole),
            (None, Some(number)) => SqlValue::Real(number),
            (None, None) => SqlValue::Text(number.to_string()),
        },
        Value::String(text) => SqlValue::Text(text.clone()),
        other => SqlValue::Text(other.to_string()),
    }
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;
