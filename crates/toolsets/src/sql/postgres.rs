//! Queries on a PostgreSQL server.
//!
//! Each query runs in its own transaction, which is read-only unless configured otherwise. A read query is wrapped in
//! another one. The server then returns the rows as JSON, stops at the row limit, and accepts nothing but a query,
//! whatever the text is. Parameters are sent as text, and the server converts them.
//!
//! Connections outlive the requests that made them, so they live on the control runtime of the server.

use std::error::Error as StdError;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::future::{Either, select};
use futures_util::{StreamExt, pin_mut};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Format, IsNull, Kind as TypeKind, ToSql, Type, to_sql_checked};
use tokio_postgres::{CancelToken, Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::SqlLimits;
use super::connect;
use super::error::SqlError;
use super::rows::{Capacity, Rows, unique};
use super::tools::{Kind, Question, StatementResult};
use crate::blocking::overdue;
use crate::environment::Secret;
use crate::limit::SectionHits;
use crate::net::{self, Background, FairSemaphore, Mutex, with_causes};
use crate::protocol::scan::paired_text;
use crate::source::limits::time_limit;

/// Query for the tables and views.
pub(super) const TABLES: &str = "SELECT c.oid::regclass::text AS name, \
     CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END AS type \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' \
     AND n.nspname NOT LIKE 'pg\\_%' AND has_schema_privilege(n.oid, 'USAGE') \
     AND has_any_column_privilege(c.oid, 'SELECT') ORDER BY 1";

/// Query for the columns of a table.
pub(super) const COLUMNS: &str = "SELECT a.attnum - 1 AS cid, a.attname AS name, \
     format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS notnull, \
     pg_get_expr(d.adbin, d.adrelid) AS dflt_value, coalesce(a.attnum = ANY (k.conkey), false) AS pk \
     FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
     LEFT JOIN pg_constraint k ON k.conrelid = a.attrelid AND k.contype = 'p' \
     WHERE a.attrelid = to_regclass(:table_name) AND 0 < a.attnum AND NOT a.attisdropped ORDER BY a.attnum";

/// Discards all state of a session except prepared statements, with which the library looks up types. A query can call
/// functions whose effects outlast its transaction.
const FORGET: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
     SELECT pg_advisory_unlock_all(); DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES";

/// Timeout for cancelling a query at the server.
const CANCEL: Duration = Duration::from_secs(5);

pub(super) struct Postgres {
    name: String,
    config: Config,
    tls: MakeRustlsConnect,
    limits: SqlLimits,
    hits: SectionHits,
    places: FairSemaphore,
    idle: Arc<Mutex<Vec<Session>>>,
    background: Background,
}

/// Stage of a query, which decides what its timeout means.
enum Stage {
    /// Other queries run.
    Waiting,
    Connecting,
    Running,
}

/// An open connection. On drop it is closed, at the latest after [`CANCEL`].
struct Session {
    client: Client,
    is_superuser: bool,
    _open: oneshot::Sender<()>,
}

type Cause = Box<dyn StdError + Send + Sync>;

impl Postgres {
    /// Creates a database at a URL. The connection is made for the first query.
    pub(super) fn new(
        name: &str,
        url: &Secret,
        ca_file: Option<&Path>,
        limits: &SqlLimits,
        hits: SectionHits,
        background: Background,
    ) -> Result<Self, (&'static str, String)> {
        let config = connect::config(
            url.expose(),
            ca_file.is_some(),
            time_limit(limits.timeout_seconds),
        )
        .map_err(|problem| (".postgres", problem))?;
        Ok(Self {
            name: name.to_owned(),
            config,
            tls: connect::tls(ca_file).map_err(|problem| (".ca_file", problem))?,
            limits: limits.clone(),
            hits,
            places: FairSemaphore::new(limits.concurrency),
            idle: Arc::default(),
            background,
        })
    }

    pub(super) async fn ask(&self, question: Question) -> Result<StatementResult, SqlError> {
        let limit = time_limit(self.limits.timeout_seconds);
        let mut stage = Stage::Waiting;
        let begun = Instant::now();
        let mut waited = None;
        let asked = timeout(limit, async {
            if self.places.is_exhausted() {
                self.hits.count("concurrency");
            }
            let place = self.places.acquire().await.map_err(|_| SqlError::Busy)?;
            waited = Some(begun.elapsed());
            stage = Stage::Connecting;
            let session = match self.idle_session() {
                Some(session) => session,
                None => self.connect().await?,
            };
            stage = Stage::Running;
            let underway = CancelOnDrop {
                cancel: Some(session.client.cancel_token()),
                tls: &self.tls,
                background: &self.background,
            };
            let answer = self.run_statement(&session, &question).await;
            // The rows that no longer fit could take long to arrive, so that query is cancelled.
            let is_cut = matches!(&answer, Ok(StatementResult::Rows(rows)) if rows.is_cut());
            if !is_cut {
                underway.disarm();
                // A rejected query aborts the transaction, not the connection.
                self.keep(session, question.kind, answer.is_ok()).await;
            }
            drop(place);
            answer
        });
        let asked = asked.await;
        asked.unwrap_or_else(|_| {
            self.hits.count("timeout_seconds");
            let has_waited = waited.is_some_and(|waited| limit / 10 < waited);
            Err(match stage {
                Stage::Waiting => SqlError::Busy,
                Stage::Connecting if !has_waited => {
                    SqlError::unusable(&self.name, "no connection in time")
                }
                _ => SqlError::Answer(overdue("the query", limit, waited)),
            })
        })
    }

    fn idle_session(&self) -> Option<Session> {
        let mut idle = self.idle.lock();
        while let Some(session) = idle.pop() {
            if !session.client.is_closed() {
                return Some(session);
            }
        }
        None
    }

    /// Ends the transaction, and keeps the connection for the next query unless that fails.
    async fn keep(&self, session: Session, kind: Kind, went_well: bool) {
        let is_over = kind == Kind::Write && went_well;
        if !is_over && session.client.batch_execute("ROLLBACK").await.is_err() {
            return;
        }
        if kind == Kind::Free && session.client.batch_execute(FORGET).await.is_err() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < self.limits.concurrency {
            idle.push(session);
        }
    }

    async fn connect(&self) -> Result<Session, SqlError> {
        let (config, tls) = (self.config.clone(), self.tls.clone());
        let (name, limit) = (self.name.clone(), time_limit(self.limits.timeout_seconds));
        // The call may be over before this ends.
        let opened = self.background.spawn(async move {
            let opened = match timeout(limit, open(&config, tls)).await {
                Ok(opened) => opened.map_err(Cause::from),
                Err(_) => Err(Cause::from("the server does not respond")),
            };
            opened.inspect_err(|error| {
                tracing::warn!(database = %name, error = %with_causes(&**error), "a database cannot be reached");
            })
        });
        let Some(opened) = opened else {
            return Err(SqlError::unusable(&self.name, "no runtime for connections"));
        };
        match opened.await {
            Ok(opened) => opened.map_err(|error| SqlError::unusable(&self.name, error)),
            Err(error) => Err(SqlError::unusable(&self.name, error)),
        }
    }

    async fn run_statement(
        &self,
        session: &Session,
        question: &Question,
    ) -> Result<StatementResult, SqlError> {
        let client = &session.client;
        let free = question.kind == Kind::Free;
        if free && session.is_superuser {
            let problem = "read_query is not available to a superuser, whom nothing limits to reading; the operator of this server must configure another role";
            return Err(SqlError::Refused(problem.to_owned()));
        }
        let mode = match question.kind {
            Kind::Write => "READ WRITE",
            Kind::Fixed | Kind::Free => "READ ONLY",
        };
        let milliseconds = time_limit(self.limits.timeout_seconds).as_millis();
        let begin = format!(
            "BEGIN {mode}; SET LOCAL statement_timeout = {milliseconds}; \
             SET LOCAL idle_in_transaction_session_timeout = {milliseconds}"
        );
        let ask = async {
            client.batch_execute(&begin).await?;
            let text = &question.statement.numbered;
            if question.kind == Kind::Write {
                let count = client
                    .execute_raw(text, question.values.iter().map(Parameter))
                    .await?;
                client.batch_execute("COMMIT").await?;
                return Ok(Ok(StatementResult::Changed(count)));
            }
            // The query is first prepared alone, which gives errors in its own terms, ensures that it is one
            // statement, and tells its columns.
            let prepared = client.prepare(text).await?;
            if prepared.columns().is_empty() {
                let problem = "only queries that read may be asked here";
                return Ok(Err(SqlError::Refused(problem.to_owned())));
            }
            if prepared.params().len() != question.values.len() {
                let problem = "a parameter such as $1 has no value; write the value in its place";
                return Ok(Err(SqlError::Refused(problem.to_owned())));
            }
            let columns = prepared.columns().iter();
            let columns: Vec<_> = columns.map(|c| (c.name(), c.type_().clone())).collect();
            self.rows(
                client,
                &as_json(text, &columns, &self.limits),
                &question.values,
            )
            .await
            .map(|rows| Ok(StatementResult::Rows(rows)))
        };
        ask.await.map_err(|error: Error| self.in_words(error))?
    }

    async fn rows(&self, client: &Client, query: &str, values: &[Value]) -> Result<Rows, Error> {
        let mut found = Rows::new(&self.limits);
        let rows = client
            .query_raw(query, values.iter().map(Parameter))
            .await?;
        pin_mut!(rows);
        while let Some(row) = rows.next().await {
            let row = row?;
            let text: &str = row.try_get(0)?;
            if found.push(&paired_text(text)) == Capacity::Full {
                self.hits.count(found.full());
                break;
            }
        }
        Ok(found)
    }

    fn in_words(&self, error: Error) -> SqlError {
        let Some(answer) = error.as_db_error() else {
            if error.is_closed() || error.source().is_some_and(|e| e.is::<std::io::Error>()) {
                return SqlError::unusable(&self.name, error);
            }
            return SqlError::Answer(with_causes(&error));
        };
        if *answer.code() == SqlState::QUERY_CANCELED {
            self.hits.count("timeout_seconds");
            let limit = time_limit(self.limits.timeout_seconds);
            return SqlError::Answer(overdue("the query", limit, Some(Duration::ZERO)));
        }
        let mut text = answer.message().to_owned();
        if let Some(hint) = answer.hint() {
            text.push_str("; ");
            text.push_str(hint);
        }
        let refusals = [
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::INSUFFICIENT_PRIVILEGE,
        ];
        if refusals.contains(answer.code()) {
            return SqlError::Refused(format!("this query is not allowed here: {text}"));
        }
        SqlError::Answer(text)
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Postgres").field(&self.name).finish()
    }
}

async fn open(config: &Config, tls: MakeRustlsConnect) -> Result<Session, Error> {
    let (client, connection) = config.connect(tls).await?;
    let (open, closed) = oneshot::channel::<()>();
    net::spawn(async move {
        // By itself, the connection waits for the result of its query, which may never come.
        let given_up = async {
            let _ = closed.await;
            sleep(CANCEL).await;
        };
        if let Either::Left((Err(error), _)) = select(pin!(connection), pin!(given_up)).await {
            tracing::debug!(%error, "a connection to a database has ended");
        }
    });
    let row = client
        .query_one("SELECT current_setting('is_superuser') = 'on'", &[])
        .await?;
    Ok(Session {
        is_superuser: row.get(0),
        client,
        _open: open,
    })
}

/// Cancels the running query of a connection at the server on drop.
struct CancelOnDrop<'p> {
    cancel: Option<CancelToken>,
    tls: &'p MakeRustlsConnect,
    background: &'p Background,
}

impl CancelOnDrop<'_> {
    fn disarm(mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            let tls = self.tls.clone();
            self.background.spawn(async move {
                let _ = timeout(CANCEL, cancel.cancel_query(tls)).await;
            });
        }
    }
}

/// Wraps a query in another one that returns its rows as JSON objects. Columns of one name are numbered, and bytes are
/// encoded in Base64.
fn as_json(text: &str, columns: &[(&str, Type)], limits: &SqlLimits) -> String {
    // One row more than allowed, to detect that there are more.
    let rows_max = limits.rows.saturating_add(1).min(i64::MAX as usize);
    let bytes_max = limits.result_bytes.saturating_add(1).min(i32::MAX as usize);
    let names = unique(columns.iter().map(|(name, _)| *name));
    let mut selected = Vec::with_capacity(columns.len());
    for (number, ((_, r#type), name)) in columns.iter().zip(&names).enumerate() {
        let column = match *r#type {
            // PostgreSQL breaks its Base64 into lines.
            Type::BYTEA => format!("translate(encode(c{number}, 'base64'), E'\\n', '')"),
            _ => format!("c{number}"),
        };
        let name = name.replace('"', "\"\"");
        selected.push(format!("{column} AS \"{name}\""));
    }
    let selected = selected.join(", ");
    let numbered: Vec<String> = (0..columns.len())
        .map(|number| format!("c{number}"))
        .collect();
    let numbered = numbered.join(", ");
    format!(
        "SELECT left(row_to_json(longshore.*)::text, {bytes_max}) FROM (SELECT {selected} FROM (\n{text}\n) \
         AS asked ({numbered})) AS longshore LIMIT {rows_max}"
    )
}

/// An argument in PostgreSQL's text format.
#[derive(Debug)]
struct Parameter<'a>(&'a Value);

impl ToSql for Parameter<'_> {
    fn to_sql(
        &self,
        r#type: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::String(text) => out.extend_from_slice(text.as_bytes()),
            Value::Array(items) if is_array(r#type) => {
                out.extend_from_slice(array(items).as_bytes());
            }
            other => out.extend_from_slice(other.to_string().as_bytes()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

fn is_array(r#type: &Type) -> bool {
    match r#type.kind() {
        TypeKind::Array(_) => true,
        TypeKind::Domain(base) => is_array(base),
        _ => false,
    }
}

/// Formats a list as a PostgreSQL array.
fn array(items: &[Value]) -> String {
    let items: Vec<String> = items
        .iter()
        .map(|item| match item {
            Value::Null => "NULL".to_owned(),
            Value::Array(items) => array(items),
            Value::Bool(_) | Value::Number(_) => item.to_string(),
            Value::String(text) => quoted(text),
            Value::Object(_) => quoted(&item.to_string()),
        })
        .collect();
    format!("{{{}}}", items.join(","))
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
mod tests;
