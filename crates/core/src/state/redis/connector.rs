//! Connections: to a server, to the master that sentinels name, to a cluster.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::{
    ConnectionLike, ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSub,
};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, Pipeline, RedisError, RedisFuture, RedisResult, ServerErrorKind,
    TlsCertificates, TlsMode, Value,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::address::{Address, Login};
use super::on_demand::{Connect, ERRORS_MAX, OnDemand, REPLACEMENT};
use crate::net::Mutex;

/// Timeout of connecting to one server.
const CONNECT: Duration = Duration::from_secs(2);
/// Time without acknowledgement after which the system closes a connection.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);
/// Maximum number of cluster redirections for one call.
const REDIRECTIONS: u32 = 3;

/// Connection to the store, by the kind of its deployment.
#[derive(Clone)]
pub(super) enum Deployment {
    /// A single server; its connection is restored in the background.
    One(Arc<SingleNode>),
    /// The present master, asked for again after its connection is lost.
    Sentinel(Arc<OnDemand<Sentinels>>),
    /// A cluster; its connections come back by themselves, once there was one.
    Cluster(Arc<OnDemand<Nodes>>),
}

pub(super) struct SingleNode {
    client: Client,
    managed: Mutex<ManagedConnection>,
    /// Number of errors in a row.
    errors: AtomicU32,
    within: Duration,
}

#[derive(Default)]
struct ManagedConnection {
    /// Made at the first call, on a runtime that runs then.
    manager: Option<ConnectionManager>,
    replaced: Option<Instant>,
}

pub(super) struct Sentinels {
    client: tokio::sync::Mutex<SentinelClient>,
    config: AsyncConnectionConfig,
    /// Address of the master that calls go to. Empty before the first call.
    master: watch::Sender<String>,
}

/// The master that a connection for subscriptions leads to, if sentinels name it.
pub(super) struct FollowedMaster(Option<(String, watch::Receiver<String>)>);

pub(super) struct Nodes {
    client: ClusterClient,
    addresses: Vec<ConnectionAddr>,
    login: Login,
    certificates: Option<TlsCertificates>,
}

/// A connection of one of the kinds.
pub(super) enum Connection {
    One(ConnectionManager),
    Sentinel(MultiplexedConnection, u64),
    Cluster(ClusterConnection),
}

/// Builds a client that asks sentinels for the master of a service. The logins are for the master and for the sentinels.
fn sentinel_client(
    (sentinels, service): (Vec<ConnectionAddr>, String),
    is_secure: bool,
    certificates: Option<TlsCertificates>,
    (login, sentinel_login): (&Login, &Login),
) -> RedisResult<SentinelClientBuilder> {
    let mut builder = SentinelClientBuilder::new(sentinels, service, SentinelServerType::Master)?
        .set_client_to_redis_db(login.database)
        .set_client_to_redis_tcp_settings(tcp_settings());
    if is_secure {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }
    if let Some(user) = &login.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &login.password {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = &sentinel_login.user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = &sentinel_login.password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    Ok(builder)
}

impl Deployment {
    /// The way to an address. Nothing is connected yet.
    pub(super) fn new(
        address: Address,
        certificates: Option<TlsCertificates>,
        within: Duration,
    ) -> RedisResult<Self> {
        Ok(match address {
            Address::One(server) => Self::One(Arc::new(SingleNode {
                client: client(server, certificates.as_ref())?,
                managed: Mutex::default(),
                errors: AtomicU32::new(0),
                within,
            })),
            Address::Sentinel {
                sentinels,
                service,
                is_secure,
                login,
                sentinel_login,
            } => {
                let logins = (&login, &sentinel_login);
                let builder =
                    sentinel_client((sentinels, service), is_secure, certificates, logins)?;
                Self::Sentinel(OnDemand::new(Sentinels {
                    client: tokio::sync::Mutex::new(builder.build()?),
                    config: AsyncConnectionConfig::new()
                        .set_connection_timeout(Some(CONNECT))
                        .set_response_timeout(Some(within)),
                    master: watch::Sender::default(),
                }))
            }
            Address::Cluster {
                nodes,
                is_secure,
                login,
            } => {
                let mut builder = ClusterClientBuilder::new(nodes.clone())
                    .retries(REDIRECTIONS)
                    .connection_timeout(CONNECT)
                    .response_timeout(within)
                    .tcp_settings(tcp_settings());
                if is_secure {
                    builder = builder.tls(TlsMode::Secure);
                }
                if let Some(certificates) = &certificates {
                    builder = builder.certs(certificates.clone());
                }
                if let Some(user) = &login.user {
                    builder = builder.username(user);
                }
                if let Some(password) = &login.password {
                    builder = builder.password(password);
                }
                Self::Cluster(OnDemand::new(Nodes {
                    client: builder.build()?,
                    addresses: nodes,
                    login,
                    certificates,
                }))
            }
        })
    }

    /// A connection to ask over.
    pub(super) async fn connection(&self) -> RedisResult<Connection> {
        Ok(match self {
            Self::One(one) => Connection::One(one.connection()?),
            Self::Sentinel(kept) => {
                let (connection, number) = kept.connection().await?;
                Connection::Sentinel(connection, number)
            }
            Self::Cluster(kept) => Connection::Cluster(kept.connection().await?.0),
        })
    }

    /// Drops a connection without responses, or one to a former master. `error` is that of a call over it, if any.
    pub(super) fn judge(&self, connection: &Connection, error: Option<&RedisError>) {
        match (self, connection) {
            (Self::One(one), _) => one.judge(error),
            (Self::Sentinel(kept), Connection::Sentinel(_, number))
                if error.is_some_and(is_of_a_lost_master) =>
            {
                kept.lose(*number);
            }
            (Self::Cluster(kept), _) if error.is_some_and(RedisError::is_timeout) => kept.miss(),
            _ => {}
        }
    }

    /// Counts a call that was given up before it had a response.
    pub(super) fn miss(&self) {
        match self {
            Self::One(one) => one.fail(false),
            Self::Sentinel(kept) => kept.miss(),
            Self::Cluster(kept) => kept.miss(),
        }
    }

    /// Opens a connection for subscriptions. In a cluster each node forwards messages of all others.
    pub(super) async fn listen(&self) -> RedisResult<(PubSub, FollowedMaster)> {
        let nobody = FollowedMaster(None);
        match self {
            Self::One(one) => Ok((one.client.get_async_pubsub().await?, nobody)),
            Self::Sentinel(kept) => {
                let current = kept.way.master.subscribe();
                let master = kept.way.client.lock().await.async_get_client().await?;
                let connection = master.get_async_pubsub().await?;
                Ok((
                    connection,
                    FollowedMaster(Some((address(&master), current))),
                ))
            }
            Self::Cluster(kept) => Ok((kept.way.listen().await?, nobody)),
        }
    }
}

impl FollowedMaster {
    /// Waits until calls go to another master. The former one may hang, and keep its connections.
    pub(super) async fn is_left(&mut self) {
        let Some((own, current)) = &mut self.0 else {
            return pending().await;
        };
        while current.changed().await.is_ok() {
            if *current.borrow_and_update() != *own {
                return;
            }
        }
        pending::<()>().await;
    }
}

fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

fn client(server: ConnectionInfo, certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
    let server = server.set_tcp_settings(tcp_settings());
    match certificates {
        Some(certificates) => Client::build_with_tls(server, certificates.clone()),
        None => Client::open(server),
    }
}

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default();
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_MAX);
    settings
}

fn is_of_a_lost_master(error: &RedisError) -> bool {
    error.is_connection_dropped()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Io
                | ErrorKind::Server(
                    ServerErrorKind::ReadOnly
                        | ServerErrorKind::MasterDown
                        | ServerErrorKind::BusyLoading
                )
        )
}

impl SingleNode {
    fn connection(&self) -> RedisResult<ConnectionManager> {
        let mut managed = self.managed.lock();
        if let Some(manager) = &managed.manager {
            return Ok(manager.clone());
        }
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(200))
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(self.within));
        let made = ConnectionManager::new_lazy_with_config(self.client.clone(), config)?;
        Ok(managed.manager.insert(made).clone())
    }

    /// Replaces the connection after several errors in a row, or one that another connection may not have: the manager
    /// keeps a connection that was rejected, and one to a server that is not the master any more.
    fn judge(&self, error: Option<&RedisError>) {
        let Some(error) = error else {
            self.errors.store(0, Ordering::Relaxed);
            return;
        };
        let is_of_this_connection = matches!(
            error.kind(),
            ErrorKind::AuthenticationFailed
                | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        );
        self.fail(is_of_this_connection);
    }

    fn fail(&self, is_of_this_connection: bool) {
        let errors = self.errors.fetch_add(1, Ordering::Relaxed) + 1;
        if is_of_this_connection || ERRORS_MAX <= errors {
            let mut managed = self.managed.lock();
            if managed
                .replaced
                .is_none_or(|at| REPLACEMENT <= at.elapsed())
            {
                managed.manager = None;
                managed.replaced = Some(Instant::now());
                self.errors.store(0, Ordering::Relaxed);
            }
        }
    }
}

pub(super) fn unreachable(why: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, why))
}

impl Connect for Sentinels {
    type Connection = MultiplexedConnection;

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let master = self.client.lock().await.async_get_client().await?;
        let config = &self.config;
        let connection = master
            .get_multiplexed_async_connection_with_config(config)
            .await?;
        self.master.send_replace(address(&master));
        Ok(connection)
    }
}

impl Connect for Nodes {
    type Connection = ClusterConnection;

    async fn connect(&self) -> RedisResult<ClusterConnection> {
        self.client.get_async_connection().await
    }
}

impl Nodes {
    async fn listen(&self) -> RedisResult<PubSub> {
        let mut problem = unreachable("the cluster has no node");
        for address in &self.addresses {
            let server = address.clone().into_connection_info()?;
            let server = server.set_redis_settings(self.login.settings());
            let client = client(server, self.certificates.as_ref())?;
            match timeout(CONNECT, client.get_async_pubsub()).await {
                Ok(Ok(listening)) => return Ok(listening),
                Ok(Err(error)) => problem = error,
                Err(_) => problem = unreachable("connecting took too long"),
            }
        }
        Err(problem)
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(command),
            Self::Sentinel(connection, _) => connection.req_packed_command(command),
            Self::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Sentinel(connection, _) => {
                connection.req_packed_commands(pipeline, offset, count)
            }
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Sentinel(connection, _) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
