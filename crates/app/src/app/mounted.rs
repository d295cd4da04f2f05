//! Sources of an application, which are asked for their items.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;

use super::error::AppError;
use super::items::AppItems;
use super::provide::bound;
use crate::catalog::{Provided, RejectedItem, Source, SourceItems};

/// Time in which a source has to return its items.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(10);

/// A source that is asked for its items.
#[derive(Clone)]
pub(super) struct Mounted {
    /// Prefix of the names of its items.
    prefix: String,
    pub(super) source: Arc<dyn Source>,
    /// Values of the application that it was imported with. They come before those of the importing one.
    provided: Provided,
}

/// Items of a source, with the source's name.
pub(super) type MountedItems = (String, SourceItems);

impl AppItems {
    /// Adds a source.
    pub(super) fn mount(&mut self, prefix: String, source: impl Source) {
        source.watch(self.changed.clone());
        self.mounted.push(Mounted {
            prefix,
            source: Arc::new(source),
            provided: Provided::default(),
        });
    }

    /// Adds a source of another application, with the values that it provides.
    pub(super) fn remount(&mut self, prefix: &str, mounted: Mounted, provided: &Provided) {
        mounted.source.watch(self.changed.clone());
        self.mounted.push(Mounted {
            prefix: format!("{prefix}{}", mounted.prefix),
            provided: mounted.provided.or(provided),
            source: mounted.source,
        });
    }

    /// Asks the mounted sources for their items. A source that does not respond or panics keeps the items that are `known`.
    ///
    /// # Errors
    ///
    /// A source panicked that has offered nothing yet.
    pub(super) async fn load_mounted(
        &self,
        known: &[MountedItems],
    ) -> Result<Vec<MountedItems>, AppError> {
        let each = self.mounted.iter().enumerate();
        let each = each.map(|(position, mounted)| self.load_source(mounted, known.get(position)));
        let loaded = join_all(each).await.into_iter();
        Ok(loaded.collect::<std::io::Result<_>>()?)
    }

    async fn load_source(
        &self,
        mounted: &Mounted,
        known: Option<&MountedItems>,
    ) -> std::io::Result<MountedItems> {
        let source = &mounted.source;
        let name = source.name().to_owned();
        let offer = AssertUnwindSafe(async { source.offer().await }).catch_unwind();
        let offered = tokio::time::timeout(SOURCE_TIMEOUT, offer).await;
        let problem = match &offered {
            Ok(Ok(_)) => String::new(),
            Ok(Err(_)) => "it panicked when it was asked for its items".to_owned(),
            Err(_) => format!(
                "it did not list its items within {} s",
                SOURCE_TIMEOUT.as_secs()
            ),
        };
        match (offered, known) {
            (Ok(Ok(offered)), _) => {
                let provided = mounted.provided.clone().or(&self.provided);
                let offered = bound(&provided, &name, offered);
                Ok((name, offered.prefixed(&mounted.prefix)))
            }
            (_, Some((_, known))) => {
                tracing::error!(source = name, "{problem}; its previous items stay listed");
                Ok((name, known.clone()))
            }
            (Ok(Err(_)), None) => Err(std::io::Error::other(format!("source {name}: {problem}"))),
            (Err(_), None) => {
                let mut nothing = SourceItems::default();
                let rejected = RejectedItem::new(&name, "offer", problem);
                nothing.refused.push(rejected);
                Ok((name, nothing))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::app::App;
    use crate::config::Config;

    /// What a source does when it is asked.
    #[derive(Clone, Copy)]
    enum Reaction {
        Offers,
        Hangs,
        Panics,
    }

    #[derive(Clone)]
    struct Moody(Arc<Mutex<Reaction>>);

    impl Source for Moody {
        fn name(&self) -> &str {
            "moody"
        }

        fn offer(&self) -> BoxFuture<'_, SourceItems> {
            let reaction = *self.0.lock().expect("not poisoned");
            Box::pin(async move {
                match reaction {
                    Reaction::Offers => {}
                    Reaction::Hangs => std::future::pending().await,
                    Reaction::Panics => panic!("the database is gone"),
                }
                let mut offered = SourceItems::default();
                let problem = RejectedItem::new("moody", "one", "a mark");
                offered.refused.push(problem);
                offered
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_fails_keeps_its_previous_items() {
        let moody = Moody(Arc::new(Mutex::new(Reaction::Offers)));
        let items = App::new().source("", moody.clone()).offers;
        let are = |reaction| *moody.0.lock().expect("not poisoned") = reaction;
        let marks = |loaded: &[MountedItems]| -> Vec<String> {
            let refused = loaded.iter().flat_map(|(_, items)| &items.refused);
            refused.map(|item| item.place.clone()).collect()
        };
        let known = items.load_mounted(&[]).await.expect("loaded");
        assert_eq!(marks(&known), ["one"]);
        for reaction in [Reaction::Hangs, Reaction::Panics] {
            are(reaction);
            let again = items.load_mounted(&known).await.expect("loaded");
            assert_eq!(marks(&again), ["one"]);
        }
        assert!(items.load_mounted(&[]).await.is_err(), "it panics at start");
        are(Reaction::Hangs);
        let late = items.load_mounted(&[]).await.expect("loaded");
        assert_eq!(marks(&late), ["offer"]);
    }

    /// A source whose items change.
    #[derive(Clone)]
    struct Changing(Arc<Mutex<&'static str>>);

    impl Source for Changing {
        fn name(&self) -> &str {
            "changing"
        }

        fn offer(&self) -> BoxFuture<'_, SourceItems> {
            let place = *self.0.lock().expect("not poisoned");
            let mut offered = SourceItems::default();
            let problem = RejectedItem::new("changing", place, "a mark");
            offered.refused.push(problem);
            Box::pin(async { offered })
        }
    }

    #[tokio::test]
    async fn a_rejected_reload_keeps_the_items_of_an_endpoint() {
        let source = Changing(Arc::new(Mutex::new("old")));
        let mut config = Config::default();
        config.http.port = 0;
        let app = App::new().endpoint("other", App::new().source("", source.clone()));
        let bound = app.config(config.clone()).bind().await.expect("bound");
        let marks = || {
            let (_, server) = bound.endpoints.first().expect("an endpoint");
            let refused = server.refusals().into_iter();
            refused.map(|item| item.place).collect::<Vec<_>>()
        };
        *source.0.lock().expect("not poisoned") = "new";
        let config = Arc::new(config);
        let prepare = async || bound.catalogs.prepare(Arc::clone(&config), false).await;
        // Another part of the server rejects the settings.
        drop(prepare().await.expect("prepared"));
        bound.catalogs.rebuild();
        assert_eq!(marks(), ["old"]);
        prepare().await.expect("prepared")();
        assert_eq!(marks(), ["new"]);
    }
}
