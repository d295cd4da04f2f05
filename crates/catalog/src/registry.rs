//! The checked and prepared catalog of one server.

mod adding;
mod entry;
mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

pub(crate) use entry::CatalogResource;
pub use entry::{CatalogPrompt, CatalogTemplate, CatalogTool, OutputProblem};
pub use error::CatalogError;

use super::extensions::Extensions;
use super::skill::{CatalogSkill, Skill};
use super::table::Table;
use super::unlisted::UnlistedResources;
use super::view;
use super::{AnyResource, Parameters, Prompt, RejectedItem, SourceItems, StartingSource, Tool};
use crate::auth::Principal;
use crate::net::with_causes;
use crate::telemetry::secret_properties;

/// Everything a server offers: an immutable snapshot, replaced whole when it changes.
///
/// Tools, resources and prompts keep the order in which they were added.
#[derive(Debug, Default)]
pub struct Catalog {
    #[doc(hidden)]
    pub tools: Table<CatalogTool>,
    #[doc(hidden)]
    pub resources: Table<CatalogResource>,
    #[doc(hidden)]
    pub templates: Table<CatalogTemplate>,
    #[doc(hidden)]
    pub prompts: Table<CatalogPrompt>,
    #[doc(hidden)]
    pub refused: Vec<RejectedItem>,
    #[doc(hidden)]
    pub skills: Table<CatalogSkill>,
    /// Contents of skill folders by URI: JSON of a list of resources.
    #[doc(hidden)]
    pub folders: BTreeMap<String, String>,
    #[doc(hidden)]
    pub extensions: Extensions,
    /// Sources of the items, in order of addition.
    owners: Vec<Owner>,
    /// Readable resources that no list shows.
    #[doc(hidden)]
    pub unlisted: UnlistedResources,
    /// Sources of which it is not known yet what they offer.
    #[doc(hidden)]
    pub starting: Vec<StartingSource>,
}

/// A source of items, and the number of items before its own.
#[derive(Debug)]
struct Owner {
    name: Box<str>,
    tools: usize,
    resources: usize,
    prompts: usize,
}

/// Before the name of a toolset, where sources are named by their own.
const TOOLSET: &str = "toolset ";

impl Catalog {
    /// Checks tools and puts them into a catalog.
    ///
    /// # Errors
    ///
    /// The first tool that cannot be offered, and why.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, CatalogError> {
        let mut catalog = Self::default();
        for tool in tools {
            catalog.add_tool(tool)?;
        }
        Ok(catalog)
    }

    /// Adds resources, and templates of resources.
    ///
    /// # Errors
    ///
    /// The first one that cannot be offered, and why.
    pub fn with_resources(
        mut self,
        resources: impl IntoIterator<Item = AnyResource>,
    ) -> Result<Self, CatalogError> {
        for resource in resources {
            self.add_resource(resource)?;
        }
        self.check_views()?;
        Ok(self)
    }

    /// Adds skills, and their files as resources.
    ///
    /// # Errors
    ///
    /// The first one that cannot be offered, and why.
    pub fn with_skills(
        mut self,
        skills: impl IntoIterator<Item = Skill>,
    ) -> Result<Self, CatalogError> {
        for skill in skills {
            for resource in skill.resources() {
                self.add_resource(resource)?;
            }
            let (entry, folders) = skill.into_entry();
            self.folders.extend(folders);
            // Skills with the same name were rejected before: their resources collide.
            let _ = self.skills.add(entry);
        }
        Ok(self)
    }

    /// Adds extensions of the protocol, with their settings.
    ///
    /// # Errors
    ///
    /// The first one that cannot be announced, and why.
    pub fn with_extensions(
        mut self,
        extensions: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Self, CatalogError> {
        for (name, settings) in extensions {
            self.extensions.add(name, settings)?;
        }
        Ok(self)
    }

    /// APP-01: the view that a tool names is there.
    fn check_views(&self) -> Result<(), CatalogError> {
        for entry in self.tools.iter() {
            let definition = entry.tool.definition();
            let Some(uri) = &definition.view else {
                continue;
            };
            if !uri.starts_with(view::SCHEME)
                || self.resources.get(uri).is_none() && self.template_for(uri).is_none()
            {
                return Err(CatalogError::Definition {
                    what: "tool",
                    name: definition.name.clone(),
                    problem: format!(
                        "its view {uri:?} does not exist; add a View with that URI, which must begin with ui://"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Adds prompts.
    ///
    /// # Errors
    ///
    /// The first one that cannot be offered, and why.
    pub fn with_prompts(
        mut self,
        prompts: impl IntoIterator<Item = Arc<dyn Prompt>>,
    ) -> Result<Self, CatalogError> {
        for prompt in prompts {
            self.add_prompt(prompt)?;
        }
        Ok(self)
    }

    /// Adds what a source offers. What cannot be offered joins what the source itself has refused, and keeps nothing
    /// else from being offered.
    #[must_use]
    pub fn with_offered(mut self, source: &str, offered: SourceItems) -> Self {
        self.refused.extend(offered.refused);
        self.starting.extend(offered.starting);
        self.owners.push(Owner {
            name: source.into(),
            tools: self.tools.len(),
            resources: self.resources.len(),
            prompts: self.prompts.len(),
        });
        for tool in offered.tools {
            let place = format!("tool {}", tool.definition().name);
            let added = self.add_tool(tool);
            self.note(source, place, added);
        }
        for resource in offered.resources {
            let place = format!("resource {}", resource.definition().uri());
            let added = self.add_resource(resource);
            self.note(source, place, added);
        }
        for prompt in offered.prompts {
            let place = format!("prompt {}", prompt.definition().name);
            let added = self.add_prompt(prompt);
            self.note(source, place, added);
        }
        for skill in offered.skills {
            let place = format!("skill {}", skill.uri());
            let (entry, folders) = skill.into_entry();
            match self.skills.add(entry) {
                Ok(()) => self.folders.extend(folders),
                Err(_) => self.refused.push(RejectedItem::new(
                    source,
                    place,
                    "a skill of this URI is offered already",
                )),
            }
        }
        if let Some(unlisted) = offered.unlisted {
            self.unlisted.add(unlisted);
        }
        self
    }

    /// Adds a built-in toolset.
    #[must_use]
    pub fn with_toolset(self, name: &str, offered: SourceItems) -> Self {
        self.with_offered(&format!("{TOOLSET}{name}"), offered)
    }

    /// Says whose a thing is that is there already, and the way out.
    fn duplicate(&self, source: &str, error: &CatalogError) -> Option<String> {
        type Begins = fn(&Owner) -> usize;
        let (what, name, at, begins): (_, _, _, Begins) = match error {
            CatalogError::Duplicate { name } => {
                ("tool", name, self.tools.position(name)?, |owner| {
                    owner.tools
                })
            }
            CatalogError::DuplicateResource { uri } => {
                let at = self.resources.position(uri)?;
                ("resource", uri, at, |owner| owner.resources)
            }
            CatalogError::DuplicatePrompt { name } => {
                let at = self.prompts.position(name)?;
                ("prompt", name, at, |owner| owner.prompts)
            }
            _ => return None,
        };
        let owner = self.owners.iter().rfind(|owner| begins(owner) <= at);
        let (owner, is_toolset) = match owner {
            None => ("the application".to_owned(), false),
            Some(owner) => match owner.name.strip_prefix(TOOLSET) {
                Some(_) => (format!("the {}", owner.name), true),
                None if *owner.name == *source => ("the same source".to_owned(), false),
                None => (format!("source {:?}", owner.name), false),
            },
        };
        let advice = match (source.starts_with(TOOLSET), is_toolset) {
            (true, true) => "name only one of the two in toolsets",
            (true, false) => "remove the toolset from toolsets, or rename the other tool",
            _ if what == "resource" => "change one of the URIs",
            _ => "rename one of them, or give its source a prefix",
        };
        Some(format!(
            "{owner} already offers a {what} {name:?}; {advice}"
        ))
    }

    fn note(&mut self, source: &str, place: String, added: Result<(), CatalogError>) {
        if let Err(error) = added {
            let duplicate = self.duplicate(source, &error);
            let problem = duplicate.unwrap_or_else(|| with_causes(&error));
            self.refused.push(RejectedItem::new(source, place, problem));
        }
    }

    /// Returns the part of the catalog that a filter selects, with the views of selected tools. Skills are included
    /// only as files.
    ///
    /// # Errors
    ///
    /// None that the whole did not have.
    pub fn part(
        &self,
        takes_tool: impl Fn(&str) -> bool,
        takes_resource: impl Fn(&str) -> bool + Send + Sync + 'static,
        takes_prompt: impl Fn(&str) -> bool,
    ) -> Result<Self, CatalogError> {
        let tools: Vec<_> = self
            .tools
            .iter()
            .map(|entry| Arc::clone(&entry.tool))
            .filter(|tool| takes_tool(tool.definition().name()))
            .collect();
        let views: Vec<_> = tools
            .iter()
            .filter_map(|tool| {
                let definition = tool.definition();
                let of_meta = || definition.meta.get("ui")?["resourceUri"].as_str();
                let view = definition.view.as_deref().or_else(of_meta)?;
                Some(view.to_owned())
            })
            .collect();
        let fixed = self.resources.iter().filter(|entry| {
            let uri = entry.resource.definition().uri();
            takes_resource(uri) || views.iter().any(|view| view == uri)
        });
        let fixed: Vec<_> = fixed
            .map(|entry| AnyResource::Fixed(Arc::clone(&entry.resource)))
            .collect();
        let templates = self.templates.iter().filter(|entry| {
            takes_resource(entry.uri.as_str())
                || views.iter().any(|view| entry.uri.matches(view).is_some())
        });
        let templates: Vec<_> = templates
            .map(|entry| AnyResource::Template(Arc::clone(&entry.template)))
            .collect();
        let prompts = self
            .prompts
            .iter()
            .map(|entry| Arc::clone(&entry.prompt))
            .filter(|prompt| takes_prompt(prompt.definition().name()));
        let mut part = Self::new(tools)?
            .with_resources(fixed.into_iter().chain(templates))?
            .with_prompts(prompts)?;
        part.starting.clone_from(&self.starting);
        part.unlisted = self
            .unlisted
            .part(move |uri| takes_resource(uri) || views.iter().any(|view| view == uri));
        Ok(part)
    }

    /// Returns true if a resource with this URI is offered, or would be if there were one.
    #[doc(hidden)]
    pub fn selects_uri(&self, principal: &Principal, uri: &str) -> bool {
        self.unlisted.selects(uri)
            || self.resources.get(uri).is_some()
            || self.template_for(uri).is_some()
            || self.unlisted.find(principal, uri).is_some()
    }

    /// Returns true if the catalog is empty.
    pub fn offers_nothing(&self) -> bool {
        self.tools.len() == 0
            && self.resources.len() == 0
            && self.templates.len() == 0
            && self.prompts.len() == 0
    }

    /// Configured items that cannot be served.
    pub fn refused(&self) -> &[RejectedItem] {
        &self.refused
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns true if there are no tools.
    pub fn is_empty(&self) -> bool {
        self.tools.len() == 0
    }

    /// The tools' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools
            .iter()
            .map(|entry| entry.tool.definition().name())
    }

    /// The prompts' names, in order.
    pub fn prompt_names(&self) -> impl Iterator<Item = &str> {
        self.prompts
            .iter()
            .map(|entry| entry.prompt.definition().name())
    }

    /// The URIs of resources, and the texts of templates.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        let resources = self.resources.iter();
        let resources = resources.map(|entry| entry.resource.definition().uri());
        resources.chain(self.templates.iter().map(|entry| entry.uri.as_str()))
    }

    #[inline]
    pub fn tool(&self, name: &str) -> Option<&CatalogTool> {
        self.tools.get(name)
    }

    /// Names of arguments that the schemas of tools call secret.
    pub fn secret_arguments(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for entry in self.tools.iter() {
            secret_properties(&entry.tool.definition().input_schema, &mut names);
        }
        names
    }

    /// Returns true if the catalog has any resource or resource template, or a source that is starting may have some.
    /// The capabilities of a session are declared once.
    pub fn has_resources(&self) -> bool {
        self.resources.len() + self.templates.len() > 0
            || !self.unlisted.is_empty()
            || !self.starting.is_empty()
    }

    /// Returns true if the catalog has any prompt, or a source that is starting may have some.
    #[doc(hidden)]
    pub fn has_prompts(&self) -> bool {
        self.prompts.len() > 0 || !self.starting.is_empty()
    }

    /// Returns true if any argument has completion.
    pub fn has_completions(&self) -> bool {
        let of_prompts = self.prompts.iter().any(|entry| {
            let arguments = &entry.prompt.definition().arguments;
            arguments.iter().any(|a| entry.prompt.completes(&a.name))
        });
        of_prompts
            || self
                .templates
                .iter()
                .any(|entry| entry.uri.variables().any(|v| entry.template.completes(v)))
    }

    /// Returns the first template that matches a URI, with the values of its variables.
    pub fn template_for(&self, uri: &str) -> Option<(&CatalogTemplate, Parameters)> {
        self.templates.iter().find_map(|entry| {
            let variables = entry.uri.matches(uri)?;
            Some((entry, variables.into_iter().collect()))
        })
    }

    /// Returns the visible name most similar to an unknown one, if any is similar.
    pub fn nearest(&self, unknown: &str, sees: impl Fn(usize) -> bool) -> Option<&str> {
        // Long names are not typing mistakes, and comparing them costs time.
        if unknown.len() > 64 || self.tools.len() > 1_000 {
            return None;
        }
        self.names()
            .enumerate()
            .filter(|(place, _)| sees(*place))
            .map(|(_, name)| (strsim::levenshtein(name, unknown), name))
            .min()
            .filter(|(distance, name)| *distance <= name.len().max(3) / 3)
            .map(|(_, name)| name)
    }
}

fn is_prompt_name(name: &str) -> bool {
    (1..=128).contains(&name.chars().count()) && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Arguments, CallContext, CallFuture, Definition, Output, tool_fn};
    use serde_json::json;

    struct Fixed(Definition);

    impl Tool for Fixed {
        fn definition(&self) -> &Definition {
            &self.0
        }

        fn call(&self, _: Arc<CallContext>, _: Arguments) -> CallFuture {
            Box::pin(async { Ok(Output::text("fixed")) })
        }
    }

    fn catalog(definitions: impl IntoIterator<Item = Definition>) -> Result<Catalog, CatalogError> {
        Catalog::new(
            definitions
                .into_iter()
                .map(|d| Arc::new(Fixed(d)) as Arc<dyn Tool>),
        )
    }

    #[test]
    fn tool_09_names_are_valid_and_unique() {
        for name in ["a", "get_user", "a.b-c_D9", &"x".repeat(128)] {
            assert!(catalog([Definition::new(name)]).is_ok(), "{name}");
        }
        for name in ["", "a b", "a,b", "\u{e9}", "a/b", &"x".repeat(129)] {
            let error = catalog([Definition::new(name)]).expect_err("refused");
            assert!(matches!(error, CatalogError::Name { .. }), "{error}");
        }
        let error =
            catalog([Definition::new("twin"), Definition::new("twin")]).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "tool \"twin\" was added twice; rename one of them"
        );
    }

    #[test]
    fn sch_02_a_schema_that_cannot_be_used_is_refused_by_tool_and_place() {
        let bad = json!({"type": "object", "properties": {"a": {"type": "strnig"}}});
        let error = catalog([Definition::new("t").input_schema(bad)]).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "tool \"t\": its input schema cannot be used"
        );
        let source = std::error::Error::source(&error)
            .expect("a source")
            .to_string();
        assert!(source.contains("/properties/a"), "{source}");
    }

    #[test]
    fn tool_08_a_tool_that_checks_its_arguments_has_a_schema_of_an_object_too() {
        struct Trusting(Definition);

        impl Tool for Trusting {
            fn definition(&self) -> &Definition {
                &self.0
            }

            fn validates_arguments(&self) -> bool {
                true
            }

            fn call(&self, _: Arc<CallContext>, _: Arguments) -> CallFuture {
                Box::pin(async { Ok(Output::text("trusting")) })
            }
        }

        let with = |schema| {
            CatalogTool::new(Arc::new(Trusting(
                Definition::new("t").input_schema(schema),
            )))
        };
        assert!(with(json!({"type": "object"})).is_ok());
        for schema in [
            json!({"type": "string"}),
            json!({}),
            json!({"type": ["object"]}),
        ] {
            assert!(with(schema.clone()).is_err(), "{schema}");
        }
    }

    #[test]
    fn mh_20_a_secret_that_a_header_mirrors_is_found() {
        let found = |name: &str, mut property: Value| {
            property["type"] = "string".into();
            let properties = json!({ name: property, "password": {"type": "string"} });
            let schema =
                json!({"type": "object", "properties": {"login": {"properties": properties}}});
            let definition = Definition::new("t").input_schema(schema);
            let entry = CatalogTool::new(Arc::new(Fixed(definition))).expect("valid");
            entry.mirrored_secret().map(str::to_owned)
        };
        let mirrored = json!({"x-mcp-header": "Of"});
        assert_eq!(found("region", mirrored.clone()), None);
        assert_eq!(found("api_key", json!({})), None, "no header mirrors it");
        assert_eq!(found("api_key", mirrored).as_deref(), Some("api_key"));
        for marked in [json!({"format": "password"}), json!({"writeOnly": true})] {
            let mut property = marked;
            property["x-mcp-header"] = "Of".into();
            assert_eq!(found("word", property).as_deref(), Some("word"));
        }
    }

    #[tokio::test]
    async fn a_checked_schema_leaves_integers_of_128_bits_as_they_are() {
        #[derive(serde::Deserialize, schemars::JsonSchema)]
        struct Transfer {
            amount: u128,
            #[schemars(length(max = 3))]
            unit: String,
            #[serde(default)]
            #[expect(dead_code, reason = "it is only in the schema")]
            note: String,
        }

        let transfer = |_: Arc<CallContext>, transfer: Transfer| async move {
            Ok(format!("{} {}", transfer.amount, transfer.unit))
        };
        let tool = Arc::new(tool_fn(Definition::new("transfer"), transfer));
        let entry = CatalogTool::new(tool).expect("valid");
        for amount in [
            "7",
            "18446744073709551616",
            "340282366920938463463374607431768211455",
        ] {
            let text = format!(r#"{{"amount":{amount},"unit":"wei"}}"#);
            let checked = entry.check(Arguments::from_checked(text.into()));
            let context = Arc::new(CallContext::for_test());
            let output = entry.tool.call(context, checked.expect("valid")).await;
            let expected = Output::text(format!("{amount} wei"));
            assert_eq!(output.expect("a result"), expected);
        }
        let long = r#"{"amount":18446744073709551616,"unit":"gwei"}"#;
        let refused = entry.check(Arguments::from_checked(long.into()));
        assert!(refused.is_err());
        let null = r#"{"amount":18446744073709551616,"note":null,"unit":"wei"}"#;
        let checked = entry.check(Arguments::from_checked(null.into()));
        assert_eq!(
            checked.expect("valid").to_json(),
            r#"{"amount":18446744073709551616,"unit":"wei"}"#
        );
    }

    #[test]
    fn names_of_prompts_have_up_to_128_characters() {
        assert!(is_prompt_name(&"é".repeat(128)));
        for name in [String::new(), "a".repeat(129), "a\n".to_owned()] {
            assert!(!is_prompt_name(&name), "{name:?}");
        }
    }

    #[test]
    fn finds_tools_by_name_and_names_alike() {
        let catalog = catalog(["echo", "add", "get_weather"].map(Definition::new)).expect("valid");
        assert_eq!(
            catalog.names().collect::<Vec<_>>(),
            ["echo", "add", "get_weather"]
        );
        assert!(catalog.tool("add").is_some() && catalog.tool("Add").is_none());
        assert_eq!(catalog.nearest("get_wether", |_| true), Some("get_weather"));
        assert_eq!(catalog.nearest("ecko", |_| true), Some("echo"));
        assert_eq!(catalog.nearest("something_else", |_| true), None);
    }
}
