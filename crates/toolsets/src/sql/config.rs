//! Configuration of the toolset `sql`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::environment::Secret;
use crate::source::argument::ArgumentConfig;

/// The toolset `sql`: databases that can be inspected, and queries that become tools.
///
/// ```yaml
/// toolsets: [sql]
/// builtin:
///   sql:
///     databases:
///       - name: shop
///         sqlite: /srv/shop.db
///     queries:
///       - name: orders_of_customer
///         description: What a customer has ordered, the newest first.
///         arguments:
///           customer: { type: integer, description: "Number of a customer" }
///         sql: SELECT id, total FROM orders WHERE customer = :customer ORDER BY id DESC
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SqlConfig {
    /// Databases. With more than one, the inspection tools take `database` as an argument.
    pub databases: Vec<DatabaseConfig>,
    /// Queries, each offered as a tool.
    pub queries: Vec<QueryConfig>,
    /// Offer `list_tables` and `describe_table`.
    pub inspection: bool,
    /// Limits of a query.
    pub limits: SqlLimits,
}

impl Default for SqlConfig {
    fn default() -> Self {
        Self {
            databases: Vec::new(),
            queries: Vec::new(),
            inspection: true,
            limits: SqlLimits::default(),
        }
    }
}

/// A database: an SQLite file, or a PostgreSQL server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseConfig {
    /// Name of the database.
    pub name: String,
    /// File of an SQLite database, which must exist.
    #[schemars(extend("x-path" = "file"))]
    pub sqlite: Option<PathBuf>,
    /// URL of a PostgreSQL database, such as `postgres://reader:${PASSWORD}@db.internal/shop`. Connections
    /// to other hosts require TLS unless it has `sslmode=disable`.
    pub postgres: Option<Secret>,
    /// PEM file with the CA certificates for a PostgreSQL server. Default: the public CA certificates.
    #[schemars(extend("x-path" = "file"))]
    pub ca_file: Option<PathBuf>,
    /// Offer `read_query`, which runs any read-only query on this database.
    pub read_query: bool,
    /// Allow queries with `write` on this database.
    pub writable: bool,
}

/// A query with a fixed text. Values are bound as parameters, and never become a part of the text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueryConfig {
    /// Name of the tool.
    pub name: String,
    /// Display name of the tool.
    pub title: Option<String>,
    /// Description of the tool, for the model.
    pub description: Option<String>,
    /// Database to query. Default: the only one.
    pub database: Option<String>,
    /// Arguments of the tool. An omitted one is NULL.
    #[schemars(with = "BTreeMap<String, ArgumentConfig>")]
    pub arguments: Map<String, Value>,
    /// SQL statement; `:name` is the value of an argument. A list or an object is bound as JSON, or as an array where
    /// PostgreSQL expects one.
    pub sql: String,
    /// Declare that the query changes data.
    pub write: bool,
}

/// Limits of a query.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SqlLimits {
    /// Maximum number of rows in a result; further rows are left out, with a note.
    pub rows: usize,
    /// Maximum size of a result's rows as JSON, in bytes.
    pub result_bytes: usize,
    /// Maximum length of a `read_query` statement, in bytes.
    pub query_bytes: usize,
    /// Timeout of a query, in seconds. It is then interrupted.
    pub timeout_seconds: u64,
    /// Maximum number of concurrent queries on each database.
    pub concurrency: usize,
}

impl Default for SqlLimits {
    fn default() -> Self {
        Self {
            rows: 1000,
            result_bytes: 1024 * 1024,
            query_bytes: 64 * 1024,
            timeout_seconds: 10,
            concurrency: 8,
        }
    }
}
