//! MCP Apps: HTML documents that hosts show for a tool (`io.modelcontextprotocol/ui`).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{CallContext, Definition, ReadFuture, Resource, ResourceDefinition};
use crate::protocol::ResourceContents;

/// Identifier of the extension.
pub const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// URI scheme of views.
pub(crate) const SCHEME: &str = "ui://";
/// The media type of views (APP-01).
pub const MIME_TYPE: &str = "text/html;profile=mcp-app";

/// A view of an MCP App: an HTML document that a host shows in a frame of its own beside what a tool returned.
///
/// A tool names its view with [`Definition::ui`], or `#[tool(ui = "ui://...")]`. Hosts without the extension, and the
/// model, get what the tool returns, so that has to mean something by itself.
///
/// ```
/// use longshore::{App, View, tool};
///
/// /// Tells the temperature of a town, and shows it on a dial.
/// #[tool(ui = "ui://weather/dial")]
/// async fn temperature(town: String) -> String {
///     format!("It is 21 °C in {town}.")
/// }
///
/// let dial = View::new("ui://weather/dial", "dial", "<!DOCTYPE html><title>Dial</title><p>21 °C</p>")
///     .prefers_border(true);
/// let app = App::new().tool(temperature).resource(dial);
/// ```
#[derive(Debug)]
pub struct View {
    definition: ResourceDefinition,
    html: String,
    ui: Map<String, Value>,
}

/// A permission that a view may request from its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewPermission {
    /// The camera.
    Camera,
    /// The microphone.
    Microphone,
    /// Location of the device.
    Geolocation,
    /// Write access to the clipboard.
    ClipboardWrite,
}

impl View {
    /// A document at a URI that begins with `ui://`. A document that does not begin with `<!DOCTYPE html>` gets that in
    /// front of it.
    pub fn new(uri: impl Into<String>, name: impl Into<String>, html: impl Into<String>) -> Self {
        const DOCTYPE: &str = "<!DOCTYPE html>";
        let mut html = html.into();
        let begins = html.trim_start().get(..DOCTYPE.len());
        if !begins.is_some_and(|begins| begins.eq_ignore_ascii_case(DOCTYPE)) {
            html.insert_str(0, "<!DOCTYPE html>\n");
        }
        Self {
            definition: ResourceDefinition::new(uri, name).mime_type(MIME_TYPE),
            html,
            ui: Map::new(),
        }
    }

    /// A name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.definition = self.definition.title(title);
        self
    }

    /// Sets the description.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.definition = self.definition.description(description);
        self
    }

    /// An origin that it may connect to, such as `https://api.example.com`. Without any it connects to none.
    #[must_use]
    pub fn connects_to(self, origin: impl Into<String>) -> Self {
        self.allowing("connectDomains", origin.into())
    }

    /// An origin from which it may load pictures, styles and scripts.
    #[must_use]
    pub fn loads_from(self, origin: impl Into<String>) -> Self {
        self.allowing("resourceDomains", origin.into())
    }

    /// An origin whose pages it may show in frames.
    #[must_use]
    pub fn frames(self, origin: impl Into<String>) -> Self {
        self.allowing("frameDomains", origin.into())
    }

    /// Requests a permission from the host.
    #[must_use]
    pub fn permission(mut self, permission: ViewPermission) -> Self {
        let name = match permission {
            ViewPermission::Camera => "camera",
            ViewPermission::Microphone => "microphone",
            ViewPermission::Geolocation => "geolocation",
            ViewPermission::ClipboardWrite => "clipboardWrite",
        };
        if let Value::Object(permissions) = self.ui.entry("permissions").or_insert(json!({})) {
            permissions.insert(name.to_owned(), json!({}));
        }
        self
    }

    /// Sets the preference for a border around the view.
    #[must_use]
    pub fn prefers_border(mut self, prefers: bool) -> Self {
        self.ui.insert("prefersBorder".to_owned(), prefers.into());
        self
    }

    fn allowing(mut self, list: &str, origin: String) -> Self {
        if let Value::Object(csp) = self.ui.entry("csp").or_insert(json!({}))
            && let Value::Array(origins) = csp.entry(list).or_insert(json!([]))
        {
            origins.push(origin.into());
        }
        self
    }
}

impl Resource for View {
    fn definition(&self) -> &ResourceDefinition {
        &self.definition
    }

    fn read(&self, _: Arc<CallContext>) -> ReadFuture {
        let mut contents = ResourceContents::text(&self.html);
        if !self.ui.is_empty() {
            contents.meta = Some(Map::from_iter([("ui".to_owned(), json!(self.ui))]));
        }
        Box::pin(std::future::ready(Ok(vec![contents])))
    }
}

impl Definition {
    /// Names the [`View`] that hosts show for this tool, for people and for the model. It has to be among the server's
    /// resources.
    ///
    /// Hosts find it in `_meta` under both names that it has had: `ui` with `resourceUri`, and `ui/resourceUri`.
    #[must_use]
    pub fn ui(mut self, uri: impl Into<String>) -> Self {
        let uri = uri.into();
        if let Value::Object(ui) = self.meta.entry("ui").or_insert(json!({})) {
            ui.insert("resourceUri".to_owned(), uri.clone().into());
        }
        self = self.meta("ui/resourceUri", uri.clone().into());
        self.view = Some(uri);
        self
    }

    /// Says that the tool is there for its view to call, and nothing for the model. Hosts leave it out of what the
    /// model sees; the server serves it like any other.
    #[must_use]
    pub fn for_its_view_alone(mut self) -> Self {
        if let Value::Object(ui) = self.meta.entry("ui").or_insert(json!({})) {
            ui.insert("visibility".to_owned(), json!(["app"]));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_01_a_view_is_an_html5_document() {
        let html = |text: &str| View::new("ui://a", "a", text).html;
        assert_eq!(html("<p>x</p>"), "<!DOCTYPE html>\n<p>x</p>");
        assert_eq!(html("<!doctype html><p>"), "<!doctype html><p>");
        assert_eq!(
            html("<\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}").find("<!DOCTYPE"),
            Some(0)
        );
    }

    #[test]
    fn a_tool_says_in_both_spellings_where_its_view_is() {
        let tool = || Definition::new("t");
        for definition in [
            tool().ui("ui://a/b").for_its_view_alone(),
            tool().for_its_view_alone().ui("ui://a/b"),
        ] {
            assert_eq!(
                Value::Object(definition.meta),
                json!({
                    "ui": {"resourceUri": "ui://a/b", "visibility": ["app"]},
                    "ui/resourceUri": "ui://a/b",
                })
            );
        }
    }
}
