//! Adds items to the catalog.

use std::sync::Arc;

use super::super::view;
use super::super::{AnyResource, Prompt, Resource, ResourceDefinition, ResourceTemplate, Tool};
use super::entry::CatalogResource;
use super::entry::{CatalogPrompt, CatalogTemplate, CatalogTool};
use super::error::CatalogError;
use super::{Catalog, is_prompt_name};
use crate::protocol::{Method, UriTemplate, fault_of_uri};
use crate::telemetry::{Metrics, OperationId, Target};

fn check_resource(definition: &ResourceDefinition) -> Result<(), CatalogError> {
    let fault = |problem: &str| {
        Err(CatalogError::Definition {
            what: "resource",
            name: definition.uri.clone(),
            problem: problem.to_owned(),
        })
    };
    if definition.name.is_empty() {
        return fault("its name is empty");
    }
    if definition.uri.starts_with(view::SCHEME)
        && definition.mime_type.as_deref() != Some(view::MIME_TYPE)
    {
        return fault(
            "a URI of ui:// is that of a view, whose media type is text/html;profile=mcp-app",
        );
    }
    match definition.annotations.priority {
        Some(priority) if !(0.0..=1.0).contains(&priority) => fault("a priority is from 0 to 1"),
        _ => Ok(()),
    }
}

/// Returns true if a name follows the specification's advice (2025-11-25, tools, "Tool Names").
fn is_tool_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

impl Catalog {
    pub(super) fn add_tool(&mut self, tool: Arc<dyn Tool>) -> Result<(), CatalogError> {
        let name = tool.definition().name.clone();
        if !is_tool_name(&name) {
            return Err(CatalogError::Name { name });
        }
        let tool = CatalogTool::new(tool)?;
        if let Some(argument) = tool.mirrored_secret() {
            tracing::warn!(
                name,
                argument,
                "an argument that is named or marked as a secret is repeated in an HTTP header, which proxies log; remove its x-mcp-header"
            );
        }
        let added = self.tools.add(tool);
        added.map_err(|_| CatalogError::Duplicate { name })
    }

    pub(super) fn add_resource(&mut self, resource: AnyResource) -> Result<(), CatalogError> {
        match resource {
            AnyResource::Fixed(resource) => self.add_fixed(resource),
            AnyResource::Template(template) => self.add_template(template),
        }
    }

    fn add_fixed(&mut self, resource: Arc<dyn Resource>) -> Result<(), CatalogError> {
        let definition = resource.definition();
        let uri = definition.uri.clone();
        if let Some(problem) = fault_of_uri(&uri) {
            return Err(CatalogError::Uri { uri, problem });
        }
        check_resource(definition)?;
        let added = self.resources.add(CatalogResource { resource });
        added.map_err(|_| CatalogError::DuplicateResource { uri })
    }

    fn add_template(&mut self, template: Arc<dyn ResourceTemplate>) -> Result<(), CatalogError> {
        let definition = template.definition();
        let text = definition.uri.clone();
        let uri = UriTemplate::parse(&text).map_err(|source| CatalogError::Template {
            template: text.clone(),
            source,
        })?;
        check_resource(definition)?;
        let rival = self
            .templates
            .iter()
            .find(|t| t.uri.matches_the_same_as(&uri));
        if let Some(rival) = rival {
            return Err(CatalogError::AmbiguousTemplates {
                one: rival.uri.as_str().to_owned(),
                other: text,
            });
        }
        // Templates are compared by text, since equal text matches the same URIs.
        let _ = self.templates.add(CatalogTemplate { template, uri });
        Ok(())
    }

    pub(super) fn add_prompt(&mut self, prompt: Arc<dyn Prompt>) -> Result<(), CatalogError> {
        let definition = prompt.definition();
        let name = definition.name.clone();
        let fault = |problem: String| {
            Err(CatalogError::Definition {
                what: "prompt",
                name: name.clone(),
                problem,
            })
        };
        if !is_prompt_name(&name) {
            return fault(
                "a name has 1 to 128 characters, none of them a control character".to_owned(),
            );
        }
        for (position, argument) in definition.arguments.iter().enumerate() {
            let earlier = &definition.arguments[..position];
            if earlier.iter().any(|a| a.name == argument.name) {
                return fault(format!("the argument {:?} appears twice", argument.name));
            }
            if !is_prompt_name(&argument.name) {
                return fault(format!("{:?} is not a valid argument name", argument.name));
            }
        }
        let added = self.prompts.add(CatalogPrompt {
            prompt,
            operation: OperationId::OTHER,
        });
        added.map_err(|_| CatalogError::DuplicatePrompt { name })
    }

    /// Registers the usage counters of each tool and prompt.
    pub fn count_in(&mut self, metrics: &Metrics) {
        for entry in self.tools.iter_mut() {
            let name = entry.tool.definition().name();
            let target = Some((Target::Tool, name));
            entry.operation = metrics.operation(Method::ToolsCall.as_str(), target);
        }
        for entry in self.prompts.iter_mut() {
            let name = entry.prompt.definition().name.as_str();
            let target = Some((Target::Prompt, name));
            entry.operation = metrics.operation(Method::PromptsGet.as_str(), target);
        }
    }
}
