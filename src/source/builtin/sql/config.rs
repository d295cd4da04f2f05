//! What the toolset `sql` may be asked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Secret;
use crate::source::argument::ArgumentConfig;
use crate::source::config::TIMEOUT_SECONDS_MAX;

/// Databases that can be looked into, and questions that can be asked of them.
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
    /// The databases. With more than one, the tools that look into them take `database` as an argument.
    pub databases: Vec<DatabaseConfig>,
    /// Questions, each of which is a tool of its own.
    pub queries: Vec<QueryConfig>,
    /// Whether there are `list_tables` and `describe_table`. Default: true.
    pub inspection: bool,
    /// How much and how long.
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

/// One database: a file of SQLite's, or a PostgreSQL server's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseConfig {
    /// What it is called.
    pub name: String,
    /// The file of an SQLite database. It must exist.
    #[schemars(extend("x-path" = "file"))]
    pub sqlite: Option<PathBuf>,
    /// URL of a PostgreSQL database, such as `postgres://reader:${PASSWORD}@db.internal/shop`. Connections
    /// to other hosts require TLS unless it has `sslmode=disable`.
    pub postgres: Option<Secret>,
    /// File with the certificates, as PEM, of whoever vouches for a PostgreSQL server. Default: the authorities that the
    /// web trusts.
    #[schemars(extend("x-path" = "file"))]
    pub ca_file: Option<PathBuf>,
    /// Whether there is `read_query`, by which any reading query can be asked of it. Default: false.
    pub read_query: bool,
    /// Whether queries that `write` may be asked of it. Default: false.
    pub writable: bool,
}

/// A question whose text stands fixed. What varies is bound to it, and never becomes a part of its text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueryConfig {
    /// The tool's name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it finds out, for the model that chooses.
    pub description: Option<String>,
    /// Which database it is asked of. Default: the only one.
    pub database: Option<String>,
    /// Its arguments. One that is left out is NULL.
    #[schemars(with = "BTreeMap<String, ArgumentConfig>")]
    pub arguments: Map<String, Value>,
    /// The statement; `:name` stands for an argument's value. A list or an object is bound as JSON, or as an array where
    /// PostgreSQL wants one.
    pub sql: String,
    /// Whether it changes something. Default: false.
    pub write: bool,
}

/// How much may be asked at once, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SqlLimits {
    /// How many rows a result may have; what is beyond is left out, and the result says so. Default: 1000.
    pub rows: usize,
    /// How many bytes the rows of a result may have, as JSON. Default: 1048576, 1 MiB.
    pub result_bytes: usize,
    /// How many bytes the text of `read_query` may have. Default: 65536, 64 KiB.
    pub query_bytes: usize,
    /// How long a query may take, in seconds. It is interrupted then. Default: 10.
    pub timeout_seconds: u64,
    /// How many queries run at once, on each database. Default: 8.
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

impl SqlLimits {
    #[cfg_attr(not(feature = "sql"), expect(dead_code, reason = "nobody asks"))]
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.clamp(1, TIMEOUT_SECONDS_MAX))
    }
}
