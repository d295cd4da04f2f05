//! Hooks and background tasks of an application, over real sockets.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore::{App, Config, StopSignal, tool};
use tokio::sync::Notify;

use crate::support::{Running, Serve, becomes_so, until};

/// Events in the order in which they happened.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn add(&self, event: &'static str) {
        self.0.lock().expect("no panics").push(event);
    }

    fn events(&self) -> Vec<&'static str> {
        self.0.lock().expect("no panics").clone()
    }

    /// Returns a hook that adds an event.
    fn hook(
        &self,
        event: &'static str,
    ) -> impl FnOnce() -> std::future::Ready<()> + Send + 'static {
        let log = self.clone();
        move || {
            log.add(event);
            std::future::ready(())
        }
    }

    /// Returns a task that adds an event when it starts, and another when it was told to stop.
    fn task(
        &self,
        started: &'static str,
        stopped: &'static str,
    ) -> impl FnOnce(StopSignal) -> futures_util::future::BoxFuture<'static, ()> + Send + 'static
    {
        let log = self.clone();
        move |stop| {
            Box::pin(async move {
                log.add(started);
                stop.given().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                log.add(stopped);
            })
        }
    }
}

/// Adds two integers.
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

fn detailed(server: &Running) -> String {
    server.admin_page("/health/detailed").body
}

/// Waits until the details of health contain a text.
fn wait_for(server: &Running, text: &str) -> String {
    until(|| Some(detailed(server)).filter(|details| details.contains(text)))
}

#[test]
fn hooks_run_around_the_tasks_and_the_tasks_around_the_calls() {
    let log = Log::default();
    let own = log.clone();
    let server = Serve::new()
        .app(move |app| {
            let part = App::new().on_start(own.hook("start of the part"));
            app.on_start(own.hook("start"))
                .background("queue", own.task("task", "task stops"))
                .on_stop(own.hook("last to stop"))
                .on_stop(own.hook("first to stop"))
                .import("part_", part)
                .tool(add)
        })
        .start();
    let called = server.session("2025-06-18");
    drop(called);
    drop(server);
    assert_eq!(
        log.events(),
        [
            "start",
            "start of the part",
            "task",
            "task stops",
            "first to stop",
            "last to stop"
        ]
    );
}

#[test]
fn a_task_that_fails_makes_the_server_unready_and_is_named() {
    let server = Serve::new()
        .admin()
        .app(|app| {
            app.background("prices", async |_| {
                Err::<(), _>(io::Error::other("connection refused"))
            })
            .background("once", async |_| {})
        })
        .start();
    let details = wait_for(&server, "prices");
    assert!(
        details.contains("background task prices, which failed: connection refused"),
        "{details}"
    );
    let ready = "GET /health/ready HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(server.connect_to_admin().send(ready).receive().status, 503);
    // Calls are answered all the same.
    let _ = server.session("2025-06-18");
}

#[test]
fn a_task_that_panics_is_named_too() {
    let server = Serve::new()
        .admin()
        .app(|app| {
            app.background("cache", async |_| {
                if true {
                    panic!("out of step");
                }
            })
        })
        .start();
    let details = wait_for(&server, "cache");
    assert!(details.contains("panicked: out of step"), "{details}");
}

fn config() -> Config {
    let mut config = Config::default();
    config.http.port = 0;
    config.http.workers = Some(1);
    config
}

#[tokio::test]
async fn a_start_hook_that_fails_stops_the_start() {
    let log = Log::default();
    let app = App::new()
        .config(config())
        .on_start(log.hook("start"))
        .on_start(async || Err::<(), _>(io::Error::other("no database")))
        .on_start(log.hook("later"))
        .background("task", log.task("task", "stops"))
        .on_stop(log.hook("stop"));
    let error = app.serve().await.expect_err("it does not start");
    let shown = longshore::app::MainError::from(error).to_string();
    assert_eq!(
        shown,
        "a function of App::on_start failed: no database [LS-APP-01]"
    );
    // What the first one opened can be closed.
    assert_eq!(log.events(), ["start", "stop"]);
}

#[tokio::test]
async fn a_stop_during_a_start_hook_runs_the_stop_hooks() {
    let log = Log::default();
    let waits = Arc::new(Notify::new());
    let started = Arc::clone(&waits);
    let bound = App::new()
        .config(config())
        .on_start(log.hook("start"))
        .on_start(async move || {
            started.notify_one();
            std::future::pending::<()>().await;
        })
        .on_start(log.hook("later"))
        .background("task", log.task("task", "stops"))
        .on_stop(log.hook("stop"))
        .bind()
        .await
        .expect("bound");
    let stop = async move { waits.notified().await };
    Box::pin(bound.serve_until(stop)).await.expect("stopped");
    assert_eq!(log.events(), ["start", "stop"]);
}

#[tokio::test]
async fn a_task_that_does_not_stop_is_aborted_within_the_grace_period() {
    let mut config = config();
    config.drain.grace_seconds = Some(5);
    let log = Log::default();
    let started = Arc::new(Notify::new());
    let running = Arc::clone(&started);
    let bound = App::new()
        .config(config)
        .background("stuck", async move |_| {
            running.notify_one();
            std::future::pending::<()>().await;
        })
        .on_stop(log.hook("stop"))
        .bind()
        .await
        .expect("bound");
    let began = Instant::now();
    let stop = async move { started.notified().await };
    Box::pin(bound.serve_until(stop)).await.expect("served");
    let took = began.elapsed();
    // A second for calls, which the task may use up; the rest is the patience of a busy machine.
    assert!(
        Duration::from_millis(900) < took && took < Duration::from_secs(20),
        "{took:?}"
    );
    assert_eq!(log.events(), ["stop"]);
}

#[tokio::test]
async fn a_server_that_is_dropped_takes_its_tasks_along() {
    let log = Log::default();
    let bound = App::new()
        .config(config())
        .background("queue", log.task("task", "task stops"))
        .bind()
        .await
        .expect("bound");
    let serving = tokio::spawn(bound.serve_until(std::future::pending()));
    becomes_so(|| std::future::ready(!log.events().is_empty())).await;
    serving.abort();
    let _ = serving.await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(log.events(), ["task"]);
}
