//! Responses to `tools/call`.

use std::sync::Arc;

use super::config::ValidationErrors;
use super::errors::{causes, forbidden, internal_error, protocol_error, stopped};
use super::execute::Respond;
use super::parts::Server;
use super::replay::{missing_capability, url_elicitation_required};
use super::reply::{MaybeReady, RejectReason, Reply};
use super::running_call::CallOutcome;
use super::snapshot::Snapshot;
use super::tool_result::{add_object, error_result, large_success, success};
use crate::catalog::{CatalogTool, Output, OutputProblem, ToolError, ToolErrorKind};
use crate::limit::LARGE_BYTES;
use crate::net::ShareKey;
use crate::protocol::{ErrorCode, ErrorObject, Revision};

/// Owned data of a call, for a response that is written after the request is gone.
pub(super) struct ResultOwner {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) revision: Revision,
    pub(super) parses_text: bool,
    pub(super) server: Arc<Server>,
    pub(super) share: Option<ShareKey>,
}

impl ResultOwner {
    pub(super) fn writer(&self, write: impl FnOnce(ResultWriter<'_>) -> MaybeReady) -> MaybeReady {
        match self.snapshot.catalog.tool(&self.name) {
            Some(entry) => write(ResultWriter {
                snapshot: &self.snapshot,
                entry,
                id: &self.id,
                revision: self.revision,
                parses_text: self.parses_text,
                server: &self.server,
                share: self.share,
            }),
            None => MaybeReady::Ready(internal_error(&self.id)),
        }
    }
}

impl Respond<Result<Output, ToolError>> for ResultOwner {
    type Owned = Self;

    fn respond(self, outcome: CallOutcome<Result<Output, ToolError>>) -> MaybeReady {
        self.writer(|writer| writer.conclude(outcome))
    }

    fn into_owned(self) -> Self {
        self
    }
}

/// Writes the result of a call for the caller's revision (TOOL-10).
pub(super) struct ResultWriter<'a> {
    pub(super) snapshot: &'a Arc<Snapshot>,
    pub(super) entry: &'a CatalogTool,
    pub(super) id: &'a str,
    pub(super) revision: Revision,
    pub(super) parses_text: bool,
    pub(super) server: &'a Arc<Server>,
    /// Share that the response memory is charged to; `None` if the result is not sent.
    pub(super) share: Option<ShareKey>,
}

impl Respond<Result<Output, ToolError>> for ResultWriter<'_> {
    type Owned = ResultOwner;

    #[inline]
    fn respond(self, outcome: CallOutcome<Result<Output, ToolError>>) -> MaybeReady {
        self.conclude(outcome)
    }

    fn into_owned(self) -> ResultOwner {
        ResultOwner {
            name: self.name().to_owned(),
            id: self.id.to_owned(),
            revision: self.revision,
            parses_text: self.parses_text,
            server: Arc::clone(self.server),
            snapshot: Arc::clone(self.snapshot),
            share: self.share,
        }
    }
}

/// Replaces the message of an error that was not written for the model.
const MASKED: &str = "the tool failed; the reason is in the server's log";

impl ResultWriter<'_> {
    #[inline]
    pub(super) fn conclude(&self, outcome: CallOutcome<Result<Output, ToolError>>) -> MaybeReady {
        MaybeReady::Ready(match outcome {
            CallOutcome::Done(Ok(output)) => match self.entry.check_output(&output) {
                Ok(()) => self.success(output),
                Err(problem) => self.bad_output(&problem),
            },
            CallOutcome::Done(Err(error)) => self.failure(&error),
            CallOutcome::TimedOut(limit) => {
                let message = format!("the tool did not respond within {} s", limit.as_secs_f64());
                tracing::warn!(
                    tool = self.name(),
                    limit_s = limit.as_secs_f64(),
                    "a call ran out of time"
                );
                self.error_result(&message)
                    .with_reason(RejectReason::TimedOut)
            }
            CallOutcome::Panicked => {
                tracing::error!(tool = self.name(), "a tool panicked; its call failed");
                internal_error(self.id)
            }
            CallOutcome::Cancelled => Reply::Cancelled,
            CallOutcome::Stopped => stopped(self.id),
            CallOutcome::Suspended(suspended) => {
                return self
                    .server
                    .suspended(self.id, self.name(), self.snapshot, *suspended);
            }
        })
    }

    pub(super) fn name(&self) -> &str {
        self.entry.tool.definition().name()
    }

    /// Response to a call whose result does not match the output schema.
    #[cold]
    fn bad_output(&self, problem: &OutputProblem) -> Reply {
        match problem {
            OutputProblem::NotFinite(path) => {
                let place = match path.is_empty() {
                    true => String::new(),
                    false => format!(" at `{path}`"),
                };
                let message = format!(
                    "the result has a number{place} that is NaN or infinite, which JSON cannot represent"
                );
                tracing::warn!(
                    tool = self.name(),
                    "{message}; return an Option<f64> where there may be none"
                );
                self.error_result(&message)
            }
            OutputProblem::Misfit(problem) => {
                tracing::error!(tool = self.name(), %problem, "a result does not fit the tool's output schema");
                internal_error(self.id)
            }
        }
    }

    fn success(&self, mut output: Output) -> Reply {
        if self.parses_text {
            add_object(&mut output);
        }
        let weight = output.weight();
        if LARGE_BYTES <= weight
            && let Some(share) = self.share
        {
            return self.large_success(output, weight, share);
        }
        let reply = success(self.snapshot, self.revision, self.id, &output);
        match self.share {
            Some(share) => reply.counted(&self.server.limits, share, self.id),
            None => reply,
        }
    }

    /// Reserves the memory of a large result before it is serialized, so that it is counted once.
    #[cold]
    fn large_success(&self, output: Output, weight: usize, share: ShareKey) -> Reply {
        self.entry.has_large_results();
        match self.server.limits.reserve_response(share, weight) {
            Err(refused) => {
                tracing::warn!(
                    tool = self.name(),
                    bytes = weight,
                    setting = refused.limit.setting(),
                    "a result was dropped: too many large responses wait to be read"
                );
                Reply::limited(Some(self.id), refused)
            }
            Ok(reservation) => {
                large_success(self.snapshot, self.revision, self.id, output, reservation)
            }
        }
    }

    /// Response to a failed call: a result for the model, or a protocol error, depending on the kind and the
    /// revision.
    #[cold]
    pub(super) fn failure(&self, error: &ToolError) -> Reply {
        let tool = self.name();
        match error.kind() {
            ToolErrorKind::Internal => {
                tracing::error!(%tool, error = error.message(), source = causes(error.source()), "a tool is at fault");
                internal_error(self.id)
            }
            ToolErrorKind::InvalidArguments => {
                let message = format!("Invalid arguments for tool {tool}: {}", error.message());
                if !self.shows_invalid_arguments() {
                    let error = ErrorObject::new(ErrorCode::InvalidParams, message);
                    return Reply::refused(RejectReason::Arguments, Some(self.id), &error);
                }
                self.error_result(&message)
                    .with_reason(RejectReason::Arguments)
            }
            ToolErrorKind::MissingCapability(ability) if !self.revision.has_sessions() => {
                missing_capability(self.id, ability)
            }
            ToolErrorKind::UrlElicitationRequired => {
                url_elicitation_required(self.id, error.source())
            }
            ToolErrorKind::Forbidden => {
                tracing::debug!(%tool, error = error.message(), "a call was forbidden by its tool");
                forbidden(self.id, error.message(), error.source())
            }
            ToolErrorKind::Protocol => {
                tracing::debug!(%tool, source = causes(error.source()), "a call failed at another server");
                match error.protocol_error() {
                    Some(object)
                        if object.code == ErrorCode::InvalidParams
                            && self.shows_invalid_arguments() =>
                    {
                        self.error_result(&object.message)
                    }
                    object => protocol_error(self.id, object),
                }
            }
            ToolErrorKind::Failed if self.server.config.mask_errors && error.is_foreign() => {
                tracing::error!(%tool, error = error.message(), source = causes(error.source()), "a call failed; its caller gets no details");
                self.error_result(MASKED)
            }
            // `Failed`, `MissingCapability`, and kinds that are added later.
            _ => {
                if error.source().is_some() {
                    tracing::debug!(%tool, source = causes(error.source()), "a call failed");
                }
                self.error_result(error.message())
            }
        }
    }

    /// Returns true if the model is to correct invalid arguments, so that their error is a result.
    fn shows_invalid_arguments(&self) -> bool {
        match self.server.config.validation_errors {
            ValidationErrors::Auto => self.revision.shows_invalid_arguments_to_the_model(),
            ValidationErrors::Protocol => false,
            ValidationErrors::Tool => true,
        }
    }

    fn error_result(&self, message: &str) -> Reply {
        error_result(self.snapshot, self.revision, self.id, message)
    }
}
