//! Artifacts: results too large for a model, stored for a limited time and replaced by links.

mod replacement;
mod s3;
mod sign;
mod store;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use s3::S3Config;

use super::client_stats::ClientStatsHandle;
use crate::auth::Principal;
use crate::catalog::{
    AnyResource, Arguments, CallContext, CallFuture, Definition, Output, OutputContent, Parameters,
    ReadFuture, ResourceDefinition, ResourceError, ResourceTemplate, SourceItems, Tool,
    UpstreamIdentity,
};
use crate::environment::Probe;
use crate::environment::seconds_since_1970;
use crate::protocol::{Content, ResourceContents};
use crate::seal::{KeyRing, Purpose, random_bytes};
use replacement::{blocks_of, is_json};
use s3::S3;
pub use store::{Artifact, ArtifactFuture, ArtifactStore};
use store::{FolderStore, MemoryStore};

/// Storage for large results of the tools of sources and upstream servers. The result carries a link instead of the
/// content. Built-in toolsets limit their results themselves.
///
/// ```yaml
/// artifacts: { above_bytes: 100000, folder: /var/lib/longshore/artifacts }
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactConfig {
    /// Size in bytes above which text, images and audio are stored and replaced by a link. Default: unlimited, or
    /// 100000 in an application with its own store.
    pub above_bytes: Option<usize>,
    /// Folder for artifacts, shared by all replicas that mount it. Default: none; artifacts are kept in memory.
    #[schemars(extend("x-path" = "file"))]
    pub folder: Option<PathBuf>,
    /// Bucket for artifacts, instead of a folder, shared by all replicas that use it.
    pub s3: S3Config,
    /// Lifetime of a link, in seconds.
    pub ttl_seconds: u64,
    /// Maximum total size of stored artifacts, in bytes.
    ///
    /// In memory, the oldest artifacts are evicted, and at most an eighth of `limits.memory_bytes` is used. In a
    /// folder, a result that does not fit is sent whole. In a bucket, the value limits a single artifact; a lifecycle
    /// rule of the bucket must remove expired ones.
    pub total_bytes: u64,
}

impl Default for ArtifactConfig {
    fn default() -> Self {
        Self {
            above_bytes: None,
            folder: None,
            s3: S3Config::default(),
            ttl_seconds: 3600,
            total_bytes: 256 * 1024 * 1024,
        }
    }
}

/// The artifact store, and the keys that seal the links to it.
pub struct Artifacts {
    above: usize,
    life: Duration,
    keys: Arc<KeyRing>,
    store: Arc<dyn ArtifactStore>,
    /// Statistics of requests to a remote store.
    gauge: Option<ClientStatsHandle>,
    counts: ArtifactCounts,
}

/// Counters of artifact outcomes.
#[derive(Debug, Default)]
pub(crate) struct ArtifactCounts {
    kept: AtomicU64,
    refused: AtomicU64,
    read: AtomicU64,
    missing: AtomicU64,
    failed: AtomicU64,
}

/// Invalid setting of artifact storage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("artifacts.{setting}: {problem}")]
pub struct ArtifactError {
    pub setting: String,
    pub problem: String,
}

/// Outcomes for a large result. `kept` and `refused` (sent whole) count writes; `read`, `missing` and `failed` count
/// reads.
pub const ARTIFACT_OUTCOMES: [&str; 5] = ["kept", "refused", "read", "missing", "failed"];
/// Default threshold for an application's own store, in bytes.
const ABOVE_BYTES: usize = 100_000;
/// Upper bound for the lifetime of a link, in seconds. Later times cannot be represented everywhere.
const TTL_MAX_SECONDS: u64 = u32::MAX as u64;
const URI: &str = "artifact://longshore/";
const TEMPLATE: &str = "artifact://longshore/{token}";

const PURPOSE: Purpose<'static> = Purpose {
    kind: "artifact 1",
    endpoint: "",
};

impl Artifacts {
    /// Returns `None` if artifacts are disabled. `own` is the application's store, if any. `memory_bytes` is the
    /// memory limit of the process; 0 means no limit.
    ///
    /// # Errors
    ///
    /// The folder does not exist and cannot be created, or a setting of the bucket is invalid.
    pub fn new(
        config: &ArtifactConfig,
        own: Option<Arc<dyn ArtifactStore>>,
        keys: Arc<KeyRing>,
        probe: &Probe,
        memory_bytes: u64,
    ) -> Result<Option<Self>, ArtifactError> {
        let above = config.above_bytes;
        let Some(above) = above.or(own.is_some().then_some(ABOVE_BYTES)) else {
            return Ok(None);
        };
        let wrong = |setting: &str, problem: String| ArtifactError {
            setting: setting.to_owned(),
            problem,
        };
        // Any bucket setting selects the bucket.
        let s3 = (config.s3 != S3Config::default()).then_some(&config.s3);
        let mut gauge = None;
        let store: Arc<dyn ArtifactStore> = match (own, &config.folder, s3) {
            (Some(own), None, None) => own,
            (Some(_), _, _) => {
                let setting = if s3.is_some() { "s3" } else { "folder" };
                let problem =
                    "artifacts has no effect, because the application has its own store; remove the setting".to_owned();
                return Err(wrong(setting, problem));
            }
            (None, Some(_), Some(_)) => {
                let problem = "folder and bucket are both set; remove one of them".to_owned();
                return Err(wrong("s3", problem));
            }
            (None, None, None) => Arc::new(MemoryStore::new(in_memory(config, memory_bytes))),
            (None, Some(folder), None) => {
                let opened = FolderStore::open(folder, config.total_bytes);
                Arc::new(opened.map_err(|error| wrong("folder", error.to_string()))?)
            }
            (None, None, Some(s3)) => {
                let max = usize::try_from(config.total_bytes).unwrap_or(usize::MAX);
                let s3 = S3::new(s3, max, probe);
                let s3 =
                    s3.map_err(|(setting, problem)| wrong(&format!("s3.{setting}"), problem))?;
                let counted = ClientStatsHandle::of_client("artifacts", "artifacts", s3.client());
                gauge = Some(counted);
                Arc::new(s3)
            }
        };
        Ok(Some(Self {
            above,
            life: Duration::from_secs(config.ttl_seconds.clamp(1, TTL_MAX_SECONDS)),
            keys,
            store,
            gauge,
            counts: ArtifactCounts::default(),
        }))
    }

    /// Returns the number of results for each outcome, in the order of [`ARTIFACT_OUTCOMES`].
    pub fn counted(&self) -> [u64; 5] {
        let counts = &self.counts;
        [
            &counts.kept,
            &counts.refused,
            &counts.read,
            &counts.missing,
            &counts.failed,
        ]
        .map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the statistics of requests to a remote store.
    pub fn gauge(&self) -> Option<ClientStatsHandle> {
        self.gauge.clone()
    }

    /// Wraps the tools that a source offers, so that their large results are stored.
    pub fn around(self: &Arc<Self>, mut offered: SourceItems) -> SourceItems {
        let tools = offered.tools.into_iter();
        offered.tools = tools
            .map(|tool| -> Arc<dyn Tool> {
                // A structured result has to conform to its output schema, so it is never replaced by a link.
                if tool.definition().output_schema.is_some() {
                    return tool;
                }
                Arc::new(Spilling {
                    inner: tool,
                    artifacts: Arc::clone(self),
                })
            })
            .collect();
        offered
    }

    /// Returns the template of the URIs of links.
    pub fn template(&self) -> &'static str {
        TEMPLATE
    }

    /// Returns the resource that artifact links resolve to.
    pub fn resource(self: &Arc<Self>) -> AnyResource {
        let definition = ResourceDefinition::new(TEMPLATE, "artifact")
            .title("Large results")
            .description("Large result of a tool. The link works for a limited time, and only for the caller who received it.");
        AnyResource::Template(Arc::new(Linked {
            definition,
            artifacts: Arc::clone(self),
        }))
    }

    /// Stores the parts of a result that are too large and replaces them by links.
    async fn spill(
        &self,
        principal: &Principal,
        tool: &str,
        mut output: Output,
        now: SystemTime,
    ) -> Output {
        let is_large = |text: &String| self.above < text.len();
        let structured = output.structured.take_if(|json| is_large(json));
        let is_structured = output.content == OutputContent::Structured;
        let blocks = match std::mem::take(&mut output.content) {
            OutputContent::Text(text) if is_large(&text) || structured.is_some() => {
                vec![Content::text(text)]
            }
            // The text is that of the structured value.
            OutputContent::Structured if structured.is_some() => Vec::new(),
            OutputContent::Blocks(blocks) => blocks,
            small => {
                output.content = small;
                return output;
            }
        };
        let mut result = Vec::new();
        let mut repeats_structured = false;
        for block in blocks {
            match self.replacement(principal, tool, &block, now).await {
                Some(blocks) => {
                    repeats_structured |= is_json(&block, structured.as_deref());
                    result.extend(blocks);
                }
                None => result.push(block),
            }
        }
        if let Some(json) = structured.filter(|_| !repeats_structured) {
            let bytes = json.as_bytes();
            match self
                .keep(principal, tool, bytes, "application/json", now)
                .await
            {
                Some(link) => result.extend(blocks_of(link, Some(&json), bytes.len())),
                None => output.structured = Some(json),
            }
        }
        output.content = match is_structured && output.structured.is_some() {
            true => OutputContent::Structured,
            false => OutputContent::Blocks(result),
        };
        output
    }

    async fn keep(
        &self,
        principal: &Principal,
        tool: &str,
        bytes: &[u8],
        media: &str,
        now: SystemTime,
    ) -> Option<Content> {
        let expires = now + self.life;
        let key: [u8; 16] = random_bytes();
        let artifact = Artifact {
            bytes: Bytes::copy_from_slice(bytes),
            media_type: media.to_owned(),
            expires,
        };
        let name = HEXLOWER.encode(&key);
        if let Err(error) = self.store.put(&name, artifact, now).await {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(name = tool, %error, "a large result could not be stored; it was sent inline");
            return None;
        }
        self.counts.kept.fetch_add(1, Ordering::Relaxed);
        let mut plain = seconds_since_1970(expires).to_le_bytes().to_vec();
        plain.extend_from_slice(&key);
        plain.extend_from_slice(principal.id().as_bytes());
        let token = self.keys.seal(PURPOSE, &plain);
        Some(Content::resource_link(
            format!("{URI}{token}"),
            format!("result of {tool}"),
        ))
    }

    /// Returns the storage key that a link refers to. Returns `None` if the link is invalid, or belongs to another
    /// principal.
    fn key_of(&self, principal: &Principal, token: &str, now: SystemTime) -> Option<[u8; 16]> {
        let plain = self.keys.open(PURPOSE, token.as_bytes())?;
        let (expires, rest) = plain.split_first_chunk::<8>()?;
        let (key, owner) = rest.split_first_chunk::<16>()?;
        let is_good = seconds_since_1970(now) < u64::from_le_bytes(*expires);
        (is_good && owner == principal.id().as_bytes()).then_some(*key)
    }

    /// Loads the artifact that a link refers to.
    async fn find(
        &self,
        principal: &Principal,
        token: &str,
        now: SystemTime,
    ) -> Result<Artifact, ResourceError> {
        let found = match self.key_of(principal, token, now) {
            Some(key) => self.store.get(&HEXLOWER.encode(&key)).await,
            None => Ok(None),
        };
        let (count, kept) = match found {
            Ok(Some(kept)) => (&self.counts.read, Ok(kept)),
            Ok(None) => (&self.counts.missing, Err(ResourceError::not_found())),
            Err(error) => {
                tracing::warn!(%error, "a stored large result cannot be read");
                let problem = "the store of large results does not respond; try again later";
                let error = ResourceError::new(problem).caused_by(error);
                (&self.counts.failed, Err(error))
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        kept
    }
}

/// Returns the capacity of the in-memory store, in bytes: at most an eighth of the memory limit of the process.
fn in_memory(config: &ArtifactConfig, memory_bytes: u64) -> u64 {
    match memory_bytes {
        0 => config.total_bytes,
        memory_bytes => config.total_bytes.min(memory_bytes / 8),
    }
}

/// Tool wrapper that stores large results.
struct Spilling {
    inner: Arc<dyn Tool>,
    artifacts: Arc<Artifacts>,
}

impl Tool for Spilling {
    fn definition(&self) -> &Definition {
        self.inner.definition()
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        let (artifacts, name) = (
            Arc::clone(&self.artifacts),
            self.inner.definition().name().to_owned(),
        );
        let called = self.inner.call(Arc::clone(&context), arguments);
        Box::pin(async move {
            let output = called.await?;
            let spilt = artifacts.spill(context.principal(), &name, output, SystemTime::now());
            Ok(spilt.await)
        })
    }

    fn validates_arguments(&self) -> bool {
        self.inner.validates_arguments()
    }

    fn checks_output(&self) -> bool {
        self.inner.checks_output()
    }

    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        self.inner.upstream()
    }
}

struct Linked {
    definition: ResourceDefinition,
    artifacts: Arc<Artifacts>,
}

impl ResourceTemplate for Linked {
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, context: Arc<CallContext>, uri: &str, _: Parameters) -> ReadFuture {
        let artifacts = Arc::clone(&self.artifacts);
        let uri = uri.to_owned();
        Box::pin(async move {
            let token = uri.strip_prefix(URI).unwrap_or_default();
            let kept = artifacts
                .find(context.principal(), token, SystemTime::now())
                .await?;
            let contents = match std::str::from_utf8(&kept.bytes) {
                Ok(text)
                    if !["image/", "audio/"]
                        .iter()
                        .any(|kind| kept.media_type.starts_with(kind)) =>
                {
                    ResourceContents::text(text)
                }
                _ => ResourceContents::blob(&kept.bytes),
            };
            Ok(vec![contents.with_uri(uri).with_mime_type(kept.media_type)])
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::protocol::{Annotations, MediaContent, Role};

    fn artifacts(folder: Option<PathBuf>, total_bytes: u64) -> Artifacts {
        let config = ArtifactConfig {
            above_bytes: Some(10),
            folder,
            ttl_seconds: 60,
            total_bytes,
            ..ArtifactConfig::default()
        };
        let probe = Probe::default();
        let made = Artifacts::new(&config, None, Arc::new(KeyRing::random()), &probe, 0)
            .expect("a folder");
        made.expect("something is kept")
    }

    async fn spilt(artifacts: &Artifacts, output: Output, now: SystemTime) -> Vec<Content> {
        match artifacts
            .spill(&Principal::new("ada"), "t", output, now)
            .await
            .content
        {
            OutputContent::Blocks(blocks) => blocks,
            other => panic!("nothing was kept: {other:?}"),
        }
    }

    fn token(blocks: &[Content]) -> &str {
        let link = blocks.iter().find_map(|block| match block {
            Content::ResourceLink(link) => Some(link.uri.as_str()),
            _ => None,
        });
        link.and_then(|uri| uri.strip_prefix(URI)).expect("a link")
    }

    #[tokio::test]
    async fn what_is_large_is_kept_for_whoever_called_and_for_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        for place in [None, Some(folder.path().join("deeper"))] {
            let artifacts = artifacts(place, 1000);
            let now = SystemTime::now();
            let large = "x".repeat(11);
            let blocks = spilt(&artifacts, Output::text(&large), now).await;
            let token = token(&blocks);
            let found = async |name: &str, after: u64| {
                let at = now + Duration::from_secs(after);
                let kept = artifacts.find(&Principal::new(name), token, at).await;
                kept.ok().map(|kept| kept.bytes.to_vec())
            };
            assert_eq!(found("ada", 59).await, Some(large.into_bytes()));
            assert_eq!(found("bob", 0).await, None, "it is hers");
            assert_eq!(found("ada", 60).await, None, "it has ended");
            let mut forged = token.to_owned();
            forged.replace_range(30..31, if &token[30..31] == "A" { "B" } else { "A" });
            assert!(
                artifacts
                    .find(&Principal::new("ada"), &forged, now)
                    .await
                    .is_err()
            );
            // kept, refused, read, missing, failed
            assert_eq!(artifacts.counted(), [1, 0, 1, 3, 0]);
        }
    }

    #[tokio::test]
    async fn what_is_small_is_sent_as_it_is_and_pictures_are_kept_as_they_are() {
        let artifacts = artifacts(None, 1000);
        let now = SystemTime::now();
        let small = Output::text("x".repeat(10));
        let same = artifacts
            .spill(&Principal::new("ada"), "t", small.clone(), now)
            .await;
        assert_eq!(same, small);
        let picture = [7_u8; 20];
        let blocks = [Content::text("look"), Content::image(picture, "image/png")];
        let blocks = spilt(&artifacts, Output::blocks(blocks), now).await;
        assert_eq!(blocks[0], Content::text("look"));
        let kept = artifacts
            .find(&Principal::new("ada"), token(&blocks), now)
            .await
            .expect("kept");
        assert_eq!(
            (&*kept.bytes, &*kept.media_type),
            (&picture[..], "image/png")
        );
        let structured = Output::structured(&vec![1; 20]).expect("JSON");
        let output = artifacts
            .spill(&Principal::new("ada"), "t", structured, now)
            .await;
        assert_eq!(output.structured, None);
    }

    #[tokio::test]
    async fn a_large_structured_result_beside_its_content_is_kept_once() {
        let artifacts = artifacts(None, 10_000);
        let (now, ada) = (SystemTime::now(), Principal::new("ada"));
        let json = r#"{"items":[1,2,3,4,5]}"#;
        let with = |content: OutputContent| Output {
            content,
            structured: Some(json.to_owned()),
            ..Output::default()
        };
        for (text, links) in [
            (r#"{"items": [1, 2, 3, 4, 5]}"#, 1),
            ("5 items", 1),
            ("another text that is large", 2),
        ] {
            for content in [
                OutputContent::Text(text.to_owned()),
                OutputContent::Blocks(vec![Content::text(text)]),
            ] {
                let output = artifacts.spill(&ada, "t", with(content), now).await;
                assert_eq!(output.structured, None, "{text}");
                let OutputContent::Blocks(blocks) = output.content else {
                    panic!("nothing was kept of {text}");
                };
                let found = blocks.iter();
                let found = found.filter(|block| matches!(block, Content::ResourceLink(_)));
                assert_eq!(found.count(), links, "{text}");
            }
        }
        let full = super::tests::artifacts(None, 1);
        let whole = with(OutputContent::Structured);
        assert_eq!(full.spill(&ada, "t", whole.clone(), now).await, whole);
    }

    #[tokio::test]
    async fn a_link_is_for_whom_the_content_was() {
        let artifacts = artifacts(None, 1000);
        let annotations = Some(Annotations {
            audience: vec![Role::User],
            ..Annotations::default()
        });
        let image = Content::Image(MediaContent {
            data: STANDARD.encode([7; 20]),
            mime_type: "image/png".to_owned(),
            annotations: annotations.clone(),
            meta: None,
        });
        let blocks = spilt(&artifacts, Output::blocks([image]), SystemTime::now()).await;
        let [Content::Text(words), Content::ResourceLink(link)] = &blocks[..] else {
            panic!("{blocks:?}");
        };
        assert!(words.text.ends_with(&link.uri), "{words:?}");
        assert_eq!(
            (&words.annotations, &link.annotations),
            (&annotations, &annotations)
        );
    }

    #[tokio::test]
    async fn a_link_may_be_valid_for_as_long_as_a_number_can_say() {
        let config = ArtifactConfig {
            above_bytes: Some(10),
            ttl_seconds: u64::MAX,
            ..ArtifactConfig::default()
        };
        let keys = Arc::new(KeyRing::random());
        let made = Artifacts::new(&config, None, keys, &Probe::default(), 0).expect("valid");
        let artifacts = made.expect("something is kept");
        let now = SystemTime::now();
        let blocks = spilt(&artifacts, Output::text("x".repeat(11)), now).await;
        let ada = Principal::new("ada");
        assert!(artifacts.find(&ada, token(&blocks), now).await.is_ok());
    }

    #[test]
    fn in_memory_they_take_a_part_of_what_the_process_may_have() {
        let config = ArtifactConfig::default();
        assert_eq!(in_memory(&config, 0), config.total_bytes);
        assert_eq!(in_memory(&config, 512 << 20), 64 << 20);
        assert_eq!(in_memory(&config, 1 << 40), config.total_bytes);
    }

    /// The smallest of results take room too.
    #[tokio::test]
    async fn entries_without_bytes_are_bounded_in_memory() {
        let store = MemoryStore::new(100 * 512);
        let now = SystemTime::now();
        for number in 0..1000 {
            let artifact = Artifact {
                bytes: Bytes::new(),
                media_type: String::new(),
                expires: now + Duration::from_secs(60),
            };
            store
                .put(&number.to_string(), artifact, now)
                .await
                .expect("kept");
        }
        assert!(store.get("999").await.expect("read").is_some());
        assert!(store.get("899").await.expect("read").is_none());
    }

    #[tokio::test]
    async fn what_has_no_room_makes_room_in_memory_and_is_sent_whole_otherwise() {
        let now = SystemTime::now();
        let text = |n: usize| Output::text("y".repeat(n));
        let memory = artifacts(None, 50);
        let first = spilt(&memory, text(30), now).await;
        let second = spilt(&memory, text(30), now).await;
        let ada = Principal::new("ada");
        assert!(memory.find(&ada, token(&first), now).await.is_err());
        assert!(memory.find(&ada, token(&second), now).await.is_ok());
        let whole = memory.spill(&ada, "t", text(51), now).await;
        assert!(matches!(whole.content, OutputContent::Blocks(blocks) if blocks.len() == 1));
        let folder = tempfile::tempdir().expect("a folder");
        let files = artifacts(Some(folder.path().to_owned()), 100);
        spilt(&files, text(50), now).await;
        let whole = files.spill(&ada, "t", text(50), now).await;
        assert!(matches!(whole.content, OutputContent::Blocks(blocks) if blocks.len() == 1));
        // What has ended is cleared away.
        let later = now + Duration::from_secs(61);
        spilt(&files, text(50), later).await;
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 1);
    }
}
