//! Tools of the SQL toolset.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::config::{DatabaseConfig, QueryConfig, SqlConfig};
use super::error::SqlError;
use super::placeholder::Statement;
use super::postgres::{self, Postgres};
use super::rows::{Rows, changed};
use super::sqlite::{self, Sqlite};
use crate::catalog::{Arguments, CallContext, Definition, Output, ToolError};
use crate::limit::SectionHits;
use crate::net::Background;
use crate::source::argument::{fill_in, input_schema, tree, with_integers};
use crate::source::builtin::{Toolset, ToolsetContext, ToolsetError};
use crate::source::limits::{GRACE, time_limit};
use crate::source::tool_plan::{PlanTool, ToolPlan};

/// A query on a database.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) statement: Arc<Statement>,
    /// Values for each of the statement's names.
    pub(super) values: Vec<Value>,
    pub(super) kind: Kind,
}

/// Trust level of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The text comes from the configuration, or is built in.
    Fixed,
    /// The text comes from the configuration, and it changes data.
    Write,
    /// The text comes from a model.
    Free,
}

#[derive(Debug)]
pub(super) enum StatementResult {
    Rows(Rows),
    /// Number of changed rows.
    Changed(u64),
}

#[derive(Clone, Debug)]
enum Backend {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

#[derive(Debug)]
struct Database {
    name: String,
    backend: Backend,
    read_query: bool,
    writable: bool,
}

/// Limits whose hits are counted.
const LIMITS: [&str; 5] = [
    "rows",
    "result_bytes",
    "query_bytes",
    "timeout_seconds",
    "concurrency",
];

/// Creates the configured tools.
pub fn toolset(grounds: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    let config: &SqlConfig = &grounds.settings.sql;
    let hits = grounds.hits("sql.limits", &LIMITS);
    if config.databases.is_empty() {
        return Err(ToolsetError::setting(
            "builtin.sql.databases",
            "is empty, but toolsets has sql; describe a database, or remove sql",
        ));
    }
    let mut databases: Vec<Arc<Database>> = Vec::new();
    for (position, one) in config.databases.iter().enumerate() {
        let refuse = |setting: &str, problem: String| {
            let setting = format!("builtin.sql.databases[{position}]{setting}");
            ToolsetError::setting(setting, problem)
        };
        if one.name.is_empty() {
            return Err(refuse(".name", "is empty; name the database".to_owned()));
        }
        if databases.iter().any(|other| other.name == one.name) {
            let problem = format!(
                "is {:?}, which another database has too; choose another name",
                one.name
            );
            return Err(refuse(".name", problem));
        }
        let database = Database::new(one, config, &hits, grounds.background)
            .map_err(|(setting, problem)| refuse(setting, problem))?;
        databases.push(Arc::new(database));
    }
    let mut toolset = Toolset::default();
    let timeout = time_limit(config.limits.timeout_seconds) + GRACE;
    let mut offer = |mut tool: SqlTool| {
        tool.definition = tool.definition.timeout(timeout);
        toolset.tools.push(Arc::new(tool));
    };
    let free: Vec<_> = databases.iter().filter(|d| d.read_query).cloned().collect();
    if !free.is_empty() {
        offer(read_query(free, config.limits.query_bytes, hits.clone()));
    }
    if config.inspection {
        offer(list_tables(&databases));
        offer(describe_table(&databases));
    }
    for (position, query) in config.queries.iter().enumerate() {
        let tool = named(query, &databases).map_err(|(setting, problem)| {
            let setting = format!("builtin.sql.queries[{position}]{setting}");
            ToolsetError::setting(setting, problem)
        })?;
        offer(tool);
    }
    Ok(toolset)
}

/// A setting below the current one, and its problem.
type Wrong = (&'static str, String);

impl Database {
    fn new(
        config: &DatabaseConfig,
        all: &SqlConfig,
        hits: &SectionHits,
        background: &Background,
    ) -> Result<Self, Wrong> {
        let limits = &all.limits;
        let backend = match (&config.sqlite, &config.postgres) {
            (Some(path), None) => {
                let sqlite = Sqlite::new(&config.name, path, limits, hits.clone());
                Backend::Sqlite(Arc::new(sqlite.map_err(|problem| (".sqlite", problem))?))
            }
            (None, Some(url)) => {
                let ca_file = config.ca_file.as_deref();
                let postgres = Postgres::new(
                    &config.name,
                    url,
                    ca_file,
                    limits,
                    hits.clone(),
                    background.clone(),
                )?;
                Backend::Postgres(Arc::new(postgres))
            }
            _ => {
                let problem = "does not name the database; set sqlite or postgres";
                return Err(("", problem.to_owned()));
            }
        };
        Ok(Self {
            name: config.name.clone(),
            backend,
            read_query: config.read_query,
            writable: config.writable,
        })
    }

    async fn ask(&self, question: Question) -> Result<StatementResult, ToolError> {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.ask(question).await,
            Backend::Postgres(postgres) => Ok(postgres.ask(question).await?),
        }
    }
}

type SqlTool = PlanTool<Asks>;

/// Queries a database.
struct Asks {
    databases: Vec<Arc<Database>>,
    what: What,
    schema: Value,
}

enum What {
    /// Statements for SQLite and for PostgreSQL, and the message for an empty result.
    Inspect {
        sqlite: Arc<Statement>,
        postgres: Arc<Statement>,
        nothing: Option<&'static str>,
    },
    Free {
        bytes_max: usize,
        hits: SectionHits,
    },
    Named {
        statement: Arc<Statement>,
        kind: Kind,
    },
}

fn read_query(databases: Vec<Arc<Database>>, bytes_max: usize, hits: SectionHits) -> SqlTool {
    let definition = Definition::new("read_query")
        .title("Ask a database")
        .description("Execute a SELECT query on the database");
    let query = json!({"type": "string", "description": "SELECT SQL query to execute"});
    reading(
        definition,
        &[("query", query)],
        databases,
        What::Free { bytes_max, hits },
    )
}

fn list_tables(databases: &[Arc<Database>]) -> SqlTool {
    let definition = Definition::new("list_tables")
        .title("Tables of a database")
        .description("List all tables and views in the database");
    let what = What::Inspect {
        sqlite: Arc::new(Statement::read(sqlite::TABLES)),
        postgres: Arc::new(Statement::read(postgres::TABLES)),
        nothing: None,
    };
    reading(definition, &[], databases.to_vec(), what)
}

fn describe_table(databases: &[Arc<Database>]) -> SqlTool {
    let definition = Definition::new("describe_table")
        .title("Columns of a table")
        .description("Get the schema information for a specific table");
    let table = json!({"type": "string", "description": "Name of the table to describe"});
    let what = What::Inspect {
        sqlite: Arc::new(Statement::read(sqlite::COLUMNS)),
        postgres: Arc::new(Statement::read(postgres::COLUMNS)),
        nothing: Some("the table does not exist; list_tables lists all"),
    };
    reading(
        definition,
        &[("table_name", table)],
        databases.to_vec(),
        what,
    )
}

/// Creates the tool for a configured query.
fn named(query: &QueryConfig, databases: &[Arc<Database>]) -> Result<SqlTool, Wrong> {
    let database = match (&query.database, databases) {
        (Some(name), _) => databases
            .iter()
            .find(|one| one.name == *name)
            .ok_or_else(|| {
                let names: Vec<&str> = databases.iter().map(|one| &*one.name).collect();
                let problem = format!("is {name:?}, but the databases are {}", names.join(", "));
                (".database", problem)
            })?,
        (None, [only]) => only,
        (None, _) => {
            return Err((
                ".database",
                "is missing, and there are several databases; name one".to_owned(),
            ));
        }
    };
    if query.write && !database.writable {
        let problem =
            "is true, but the database is not writable; set writable there, or remove write";
        return Err((".write", problem.to_owned()));
    }
    let statement = Statement::read(&query.sql);
    for name in &statement.names {
        if !query.arguments.contains_key(name) {
            let problem =
                format!("has :{name}, which is not an argument; describe it in arguments");
            return Err((".sql", problem));
        }
    }
    for name in query.arguments.keys() {
        if !statement.names.contains(name) {
            let problem =
                format!("has {name}, which sql does not use; write :{name} there, or remove it");
            return Err((".arguments", problem));
        }
    }
    let kind = if query.write {
        Kind::Write
    } else {
        Kind::Fixed
    };
    if let Backend::Sqlite(sqlite) = &database.backend {
        sqlite
            .check(&statement, kind)
            .map_err(|problem| (".sql", format!("cannot be asked: {problem}")))?;
    }
    let schema = input_schema(&query.arguments, None)
        .map_err(|problem| ("", format!("has a mistake: {problem}")))?;
    let mut definition = Definition::new(&query.name)
        .input_schema(schema.clone())
        .read_only(!query.write)
        .open_world(false);
    if let Some(title) = &query.title {
        definition = definition.title(title);
    }
    if let Some(description) = &query.description {
        definition = definition.description(description);
    }
    if !query.write {
        definition = definition.output_schema(rows_schema());
    }
    Ok(SqlTool {
        definition,
        plan: Arc::new(Asks {
            databases: vec![Arc::clone(database)],
            what: What::Named {
                statement: Arc::new(statement),
                kind,
            },
            schema,
        }),
    })
}

fn rows_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"type": "object"}, "description": "Rows of the result"},
            "truncated": {"type": "boolean", "description": "True if rows were omitted"},
        },
        "required": ["rows", "truncated"],
    })
}

/// Creates a tool that reads from one of several databases.
fn reading(
    definition: Definition,
    arguments: &[(&str, Value)],
    databases: Vec<Arc<Database>>,
    what: What,
) -> SqlTool {
    let mut properties = Map::new();
    for (name, schema) in arguments {
        properties.insert((*name).to_owned(), schema.clone());
    }
    if 1 < databases.len() {
        let names: Vec<&str> = databases.iter().map(|one| &*one.name).collect();
        let schema =
            json!({"type": "string", "description": "Name of the database", "enum": names});
        properties.insert("database".to_owned(), schema);
    }
    let required: Vec<String> = properties.keys().cloned().collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema["additionalProperties"] = false.into();
    SqlTool {
        definition: definition
            .input_schema(schema.clone())
            .output_schema(rows_schema())
            .read_only(true)
            .destructive(false)
            .idempotent(true)
            .open_world(false),
        plan: Arc::new(Asks {
            databases,
            what,
            schema,
        }),
    }
}

impl ToolPlan for Asks {
    async fn run(
        self: Arc<Self>,
        _: Arc<CallContext>,
        arguments: Arguments,
    ) -> Result<Output, ToolError> {
        let mut arguments = tree(&arguments)?;
        fill_in(&mut arguments, &self.schema);
        let database = self.database(&arguments)?;
        let question = self.question(database, &arguments)?;
        match database.ask(question).await? {
            StatementResult::Rows(rows) if rows.is_empty() => match self.what {
                What::Inspect {
                    nothing: Some(nothing),
                    ..
                } => Err(ToolError::new(nothing)),
                _ => rows.output(),
            },
            StatementResult::Rows(rows) => rows.output(),
            StatementResult::Changed(count) => changed(count),
        }
    }
}

impl Asks {
    fn database(&self, arguments: &Map<String, Value>) -> Result<&Database, ToolError> {
        let wanted = arguments.get("database").and_then(Value::as_str);
        let found = match &*self.databases {
            [only] => Some(only),
            several => several.iter().find(|one| Some(&*one.name) == wanted),
        };
        found
            .map(|database| &**database)
            .ok_or_else(|| ToolError::new("the database does not exist"))
    }

    fn question(
        &self,
        database: &Database,
        arguments: &Map<String, Value>,
    ) -> Result<Question, ToolError> {
        let (statement, kind) = match &self.what {
            What::Inspect {
                sqlite, postgres, ..
            } => match &database.backend {
                Backend::Sqlite(_) => (Arc::clone(sqlite), Kind::Fixed),
                Backend::Postgres(_) => (Arc::clone(postgres), Kind::Fixed),
            },
            What::Named { statement, kind } => (Arc::clone(statement), *kind),
            What::Free { bytes_max, hits } => {
                let text = arguments.get("query").and_then(Value::as_str);
                let statement = free(text.unwrap_or_default(), *bytes_max, hits)?;
                (Arc::new(statement), Kind::Free)
            }
        };
        let values = statement
            .names
            .iter()
            .map(|name| arguments.get(name).map(with_integers).unwrap_or_default())
            .collect();
        Ok(Question {
            statement,
            values,
            kind,
        })
    }
}

/// Prepares a model's query. Text that looks like a placeholder is left to the database, which gets no values for it.
fn free(text: &str, bytes_max: usize, hits: &SectionHits) -> Result<Statement, SqlError> {
    if bytes_max < text.len() {
        hits.count("query_bytes");
        let problem = format!("the query has more than {bytes_max} bytes; ask in fewer words");
        return Err(SqlError::Refused(problem));
    }
    let text = text.trim();
    let text = text.strip_suffix(';').unwrap_or(text).trim_end();
    if text.is_empty() {
        return Err(SqlError::Refused("the query is empty".to_owned()));
    }
    Ok(Statement {
        named: text.to_owned(),
        numbered: text.to_owned(),
        names: Vec::new(),
    })
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
