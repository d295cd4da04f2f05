//! Child processes that do not outlive their owner.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::child::{Group, Limits};
use super::lock::Mutex;

/// A program to start: never through a shell, in a process group of its own, with the environment that is named and
/// no other.
#[derive(Clone)]
pub struct Program {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, as they are.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// Working directory. Default: that of this process.
    pub folder: Option<PathBuf>,
}

impl Program {
    /// A program with the variables that programs need to work at all: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`,
    /// `LANG`, `TZ`, `TMPDIR` and the locale, where this process has them.
    pub fn new(program: impl Into<OsString>) -> Self {
        const INHERITED: [&str; 10] = [
            "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR",
        ];
        let environment = INHERITED
            .into_iter()
            .filter_map(|name| Some((name.into(), std::env::var_os(name)?)))
            .collect();
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment,
            folder: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Starts it, with pipes to all three of its streams.
    ///
    /// # Errors
    ///
    /// There is no such program, or the system does not let it start.
    pub fn start(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let prepared = Group::prepare(&mut command, Limits::default());
        let mut child = command.spawn()?;
        let group = prepared.started(child.id());
        Ok(Child {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            child,
            group,
        })
    }
}

impl std::fmt::Debug for Program {
    /// Leaves out arguments and variables, which may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// A child process with its descendants; drop kills them all.
#[derive(Debug)]
pub struct Child {
    /// Standard input; taken by its writer.
    pub stdin: Option<ChildStdin>,
    /// Standard output.
    pub stdout: Option<ChildStdout>,
    /// Standard error.
    pub stderr: Option<ChildStderr>,
    child: tokio::process::Child,
    group: Group,
}

impl Child {
    /// Waits until it ends of its own accord.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Stops the child: closes its input, waits for `grace`, sends a termination signal, waits again, and kills the
    /// rest of its group.
    pub async fn stop(mut self, grace: Duration) -> Option<ExitStatus> {
        self.stdin = None;
        let each = grace / 2;
        if let Ok(ended) = timeout(each, self.child.wait()).await {
            return ended.ok();
        }
        self.group.signal(Signal::TERM);
        if let Ok(ended) = timeout(each, self.child.wait()).await {
            return ended.ok();
        }
        self.group.signal(Signal::KILL);
        self.child.wait().await.ok()
    }
}

/// A child process supervised by a task. Drop kills it and its descendants at once.
#[derive(Debug)]
pub struct SupervisedChild {
    group: SharedGroup,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

type SharedGroup = Arc<Mutex<Option<Group>>>;

fn end(group: &SharedGroup) {
    drop(group.lock().take());
}

impl Child {
    /// Supervises the child. When it exits by itself, its descendants are killed and `ended` is called with its status.
    pub fn watch(self, ended: impl FnOnce(Option<ExitStatus>) + Send + 'static) -> SupervisedChild {
        let Self {
            stdin,
            mut child,
            group,
            ..
        } = self;
        let group: SharedGroup = Arc::new(Mutex::new(Some(group)));
        let (stop, asked) = oneshot::channel();
        let shared = Arc::clone(&group);
        let task = super::spawn::spawn(async move {
            let asked = async {
                match asked.await {
                    Ok(grace) => grace,
                    // The child was already killed.
                    Err(_) => std::future::pending().await,
                }
            };
            let grace = tokio::select! {
                status = child.wait() => {
                    end(&shared);
                    return ended(status.ok());
                }
                grace = asked => grace,
            };
            drop(stdin);
            let each = grace / 2;
            if timeout(each, child.wait()).await.is_err() {
                if let Some(group) = &*shared.lock() {
                    group.signal(Signal::TERM);
                }
                let _ = timeout(each, child.wait()).await;
            }
            end(&shared);
            let _ = child.wait().await;
        });
        SupervisedChild { group, stop, task }
    }
}

impl SupervisedChild {
    /// Ends it as [`Child::stop`] does.
    pub async fn stop(mut self, grace: Duration) {
        let (nobody, _) = oneshot::channel();
        // An error means that the child has already exited.
        let _ = std::mem::replace(&mut self.stop, nobody).send(grace);
        let _ = (&mut self.task).await;
    }
}

impl Drop for SupervisedChild {
    fn drop(&mut self) {
        end(&self.group);
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn sh(script: &str) -> Program {
        Program::new("sh").argument("-c").argument(script)
    }

    fn is_alive(pid: &str) -> bool {
        // The state stands behind the name; a zombie is dead, and only waits to be asked for its status.
        std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| {
            let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
            !state.starts_with(['Z', 'X'])
        })
    }

    #[tokio::test]
    async fn it_has_the_environment_that_was_named_and_no_other() {
        let mut child = sh("cat; env")
            .variable("NAMED", "yes")
            .start()
            .expect("there is a shell");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(b"hello\n").await.expect("it reads");
        drop(stdin);
        let mut said = String::new();
        child
            .stdout
            .take()
            .expect("piped")
            .read_to_string(&mut said)
            .await
            .expect("text");
        assert!(said.starts_with("hello\n"), "{said}");
        assert!(said.contains("NAMED=yes\n"), "{said}");
        assert!(!said.contains("CARGO"), "{said}");
        assert!(child.wait().await.expect("it ended").success());
    }

    #[tokio::test]
    async fn what_it_started_does_not_outlive_it() {
        let mut child = sh("sleep 1000 & echo $!; wait")
            .start()
            .expect("there is a shell");
        let mut first = [0; 32];
        let read = child
            .stdout
            .take()
            .expect("piped")
            .read(&mut first)
            .await
            .expect("it says the number");
        let grandchild = String::from_utf8_lossy(&first[..read]).into_owned();
        assert!(is_alive(&grandchild));
        drop(child);
        for _ in 0..1000 {
            if !is_alive(&grandchild) {
                return;
            }
            tokio::task::yield_now().await;
            std::thread::yield_now();
        }
        assert!(!is_alive(&grandchild), "{grandchild} is left");
    }

    #[tokio::test]
    async fn it_is_asked_before_it_is_killed() {
        let status = sh("exec cat")
            .start()
            .expect("there is a shell")
            .stop(Duration::from_secs(10))
            .await;
        assert!(
            status.is_some_and(|status| status.success()),
            "the end of its input ends it"
        );
        let mut stubborn = sh("trap '' TERM; echo; while :; do sleep 0.01; done")
            .start()
            .expect("there is a shell");
        // It has said so once it does not listen any more.
        let mut stdout = stubborn.stdout.take().expect("piped");
        let read = stdout.read(&mut [0]).await;
        assert_eq!(read.expect("a line"), 1);
        let status = stubborn.stop(Duration::from_millis(20)).await;
        assert_eq!(
            status.and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status)),
            Some(9)
        );
    }

    #[tokio::test]
    async fn one_that_is_watched_leaves_nothing_when_it_ends_or_is_dropped() {
        for end in ["exit 0", "wait"] {
            let mut child = sh(&format!("sleep 1000 & echo $!; {end}"))
                .start()
                .expect("there is a shell");
            let mut said = [0; 32];
            let mut stdout = child.stdout.take().expect("piped");
            let read = stdout.read(&mut said).await.expect("it says the number");
            let grandchild = String::from_utf8_lossy(&said[..read]).into_owned();
            let (tell, reported) = oneshot::channel();
            let watched = child.watch(move |status| {
                let _ = tell.send(status);
            });
            if end == "wait" {
                assert!(is_alive(&grandchild));
                drop(watched);
                assert!(reported.await.is_err(), "it did not end by itself");
            } else {
                let status = reported.await.expect("it has ended");
                assert!(status.is_some_and(|status| status.success()));
            }
            // What held the other end of its output is gone.
            let mut rest = Vec::new();
            stdout.read_to_end(&mut rest).await.expect("an end");
        }
    }

    #[tokio::test]
    async fn one_that_is_watched_is_asked_before_it_is_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!("cat; echo asked > {}/asked", folder.path().display());
        let child = sh(&script).start().expect("there is a shell");
        let watched = child.watch(|_| panic!("it did not end by itself"));
        // The end of its input is enough, however long it takes.
        watched.stop(Duration::from_secs(60)).await;
        assert!(folder.path().join("asked").exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let _guard = runtime.enter();
        let error = Program::new("no-such-program-7")
            .start()
            .expect_err("not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(
            format!("{:?}", Program::new("x").argument("--token=secret")),
            "Program { program: \"x\", .. }"
        );
    }
}
