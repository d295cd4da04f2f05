//! Options of `#[tool(...)]`, `#[resource(...)]`, `#[prompt(...)]` and `#[arg(...)]`, and their mistakes.

mod values;

use std::time::Duration;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, Ident, LitStr, Meta, Path, Token, token};

use crate::parse::Kind;
pub(crate) use values::string;
use values::{
    complete, duration, entries, flag, is_token, mark, preset, set, switch, text, unknown,
};

/// Mistakes of a function, collected so that all are reported at once.
#[derive(Default)]
pub(crate) struct Mistakes(Option<syn::Error>);

/// Options of `#[tool(...)]`.
#[derive(Default)]
pub(crate) struct ToolOptions {
    pub(crate) common: CommonOptions,
    pub(crate) read_only: Option<bool>,
    pub(crate) destructive: Option<bool>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) open_world: Option<bool>,
    pub(crate) scopes: Vec<LitStr>,
    pub(crate) ui: Option<LitStr>,
    pub(crate) additional_properties: bool,
    pub(crate) collect: bool,
    pub(crate) task: Option<Task>,
    pub(crate) deferred_task: bool,
}

/// Support for calls that outlive their request.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    Optional,
    Required,
}

/// Options of `#[resource(...)]`.
#[derive(Default)]
pub(crate) struct ResourceOptions {
    pub(crate) uri: Option<LitStr>,
    pub(crate) mime_type: Option<LitStr>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) public: bool,
    pub(crate) common: CommonOptions,
}

/// Options of `#[prompt(...)]`.
#[derive(Default)]
pub(crate) struct PromptOptions {
    pub(crate) common: CommonOptions,
}

/// Options that tools, resources and prompts share.
#[derive(Default)]
pub(crate) struct CommonOptions {
    pub(crate) name: Option<LitStr>,
    pub(crate) title: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) icons: Vec<LitStr>,
    pub(crate) meta: Vec<MetaEntry>,
    pub(crate) blocking: Option<proc_macro2::Span>,
}

/// `"com.example/cost" = 3`, or `= {"cpu": 3}`
pub(crate) struct MetaEntry {
    pub(crate) key: LitStr,
    /// An expression, or JSON.
    pub(crate) value: TokenStream,
}

/// Options of `#[arg(...)]`.
#[derive(Default)]
pub(crate) struct ArgOptions {
    pub(crate) description: Option<LitStr>,
    pub(crate) rename: Option<LitStr>,
    pub(crate) default: Option<Preset>,
    pub(crate) header: Option<LitStr>,
    pub(crate) flatten: Option<proc_macro2::Span>,
    /// The type is made from the argument, by `FromArgument`.
    pub(crate) resolve: Option<proc_macro2::Span>,
    pub(crate) title: Option<LitStr>,
    pub(crate) complete: Option<Complete>,
}

/// The function that suggests values of a parameter.
pub(crate) enum Complete {
    /// `cities`, or `cities(db)` with parameters that have `#[state]` or `#[call]`.
    Function { path: Path, given: Vec<Ident> },
    /// `self.cities`, or `self.cities(caller)` with parameters that have `#[call]`.
    Method(Ident, Vec<Ident>),
}

/// The value of a parameter that is left out.
pub(crate) enum Preset {
    /// `Default::default()`
    OfType,
    Value(Expr),
}

impl Mistakes {
    pub(crate) fn add(&mut self, mistake: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(mistake),
            none => *none = Some(mistake),
        }
    }

    /// A mistake that is all of `place`.
    pub(crate) fn at(&mut self, place: impl ToTokens, message: impl std::fmt::Display) {
        self.add(syn::Error::new_spanned(place, message));
    }

    /// Keeps what went well.
    fn ok<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|mistake| self.add(mistake)).ok()
    }

    pub(crate) fn into_error(self) -> Option<syn::Error> {
        self.0
    }
}

impl ToolOptions {
    /// Names of the options that only tools have.
    const NAMES: &[&str] = &[
        "read_only",
        "destructive",
        "idempotent",
        "open_world",
        "scopes",
        "ui",
        "additional_properties",
        "collect",
        "task",
        "deferred_task",
    ];

    pub(crate) fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self {
        let mut options = Self::default();
        for option in list(tokens, mistakes) {
            options.take(&option, mistakes);
        }
        options
    }

    fn take(&mut self, option: &Meta, mistakes: &mut Mistakes) {
        let name = option.path().get_ident().map(ToString::to_string);
        match name.as_deref().unwrap_or_default() {
            "read_only" => set(&mut self.read_only, option, flag(option), mistakes),
            "destructive" => set(&mut self.destructive, option, flag(option), mistakes),
            "idempotent" => set(&mut self.idempotent, option, flag(option), mistakes),
            "open_world" => set(&mut self.open_world, option, flag(option), mistakes),
            "scopes" => self.take_scopes(option, mistakes),
            "ui" => {
                set(&mut self.ui, option, text(option), mistakes);
                if let Some(uri) = &self.ui
                    && !uri.value().starts_with("ui://")
                {
                    mistakes.at(uri, "a view's URI begins with `ui://`");
                }
            }
            "additional_properties" => switch(&mut self.additional_properties, option, mistakes),
            "task" => {
                let task = match option {
                    Meta::Path(_) => Ok(Task::Optional),
                    _ => text(option).and_then(|word| match &*word.value() {
                        "optional" => Ok(Task::Optional),
                        "required" => Ok(Task::Required),
                        _ => Err(syn::Error::new_spanned(
                            word,
                            "a task is \"optional\", for clients that know of tasks, or \"required\"",
                        )),
                    }),
                };
                set(&mut self.task, option, task, mistakes);
            }
            "deferred_task" => switch(&mut self.deferred_task, option, mistakes),
            "collect" => switch(&mut self.collect, option, mistakes),
            other => {
                self.common.take(option, Self::NAMES, mistakes);
                if other == "name"
                    && let Some(name) = &self.common.name
                    && let Some(fault) = fault_of_name(&name.value())
                {
                    mistakes.at(name, fault);
                }
            }
        }
    }

    fn take_scopes(&mut self, option: &Meta, mistakes: &mut Mistakes) {
        let scopes = entries::<LitStr>(option, r#"scopes("...", ...)"#);
        for scope in mistakes.ok(scopes).into_iter().flatten() {
            // RFC 6749, section 3.3.
            let is_scope = !scope.value().is_empty()
                && scope
                    .value()
                    .bytes()
                    .all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
            if !is_scope {
                mistakes.at(
                    &scope,
                    "a scope has one or more visible ASCII characters, no `\"` and no `\\`",
                );
            }
            self.scopes.push(scope);
        }
    }
}

fn take_icon(icons: &mut Vec<LitStr>, option: &Meta, mistakes: &mut Mistakes) {
    if let Some(icon) = mistakes.ok(text(option)) {
        let uri = icon.value();
        if !uri.starts_with("https://") && !uri.starts_with("data:") {
            mistakes.at(&icon, "an icon is an `https:` or a `data:` URI");
        }
        icons.push(icon);
    }
}

fn take_meta(all: &mut Vec<MetaEntry>, option: &Meta, mistakes: &mut Mistakes) {
    let entries = entries::<MetaEntry>(option, r#"meta("..." = ..., ...)"#);
    for entry in mistakes.ok(entries).into_iter().flatten() {
        if all.iter().any(|m| m.key.value() == entry.key.value()) {
            mistakes.at(&entry.key, "this key of `_meta` is given twice");
        }
        all.push(entry);
    }
}

impl ResourceOptions {
    /// Names of the options that only resources have.
    const NAMES: &[&str] = &["uri", "mime_type", "ttl", "cache_scope"];

    pub(crate) fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self {
        let mut options = Self::default();
        let place = tokens.clone();
        for option in list(tokens, mistakes) {
            options.take(&option, mistakes);
        }
        if options.uri.is_none() {
            let message = "a resource needs a URI: `#[resource(uri = \"config://app\")]`";
            if place.is_empty() {
                mistakes.add(syn::Error::new(proc_macro2::Span::call_site(), message));
            } else {
                mistakes.at(place, message);
            }
        }
        options
    }

    fn take(&mut self, option: &Meta, mistakes: &mut Mistakes) {
        let name = option.path().get_ident().map(ToString::to_string);
        match name.as_deref().unwrap_or_default() {
            "uri" => {
                set(&mut self.uri, option, text(option), mistakes);
                if let Some(uri) = &self.uri
                    && !uri.value().contains(':')
                {
                    mistakes.at(uri, "a URI begins with a scheme, such as `config:`");
                }
            }
            "mime_type" => set(&mut self.mime_type, option, text(option), mistakes),
            "ttl" => set(&mut self.ttl, option, duration(option), mistakes),
            "cache_scope" => match mistakes.ok(text(option)) {
                Some(scope) if scope.value() == "public" => self.public = true,
                Some(scope) if scope.value() == "private" => self.public = false,
                Some(scope) => mistakes.at(
                    scope,
                    "a cache scope is \"public\", for all callers alike, or \"private\"",
                ),
                None => {}
            },
            _ => self.common.take(option, Self::NAMES, mistakes),
        }
    }
}

impl PromptOptions {
    pub(crate) fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self {
        let mut options = Self::default();
        for option in list(tokens, mistakes) {
            options.common.take(&option, &[], mistakes);
        }
        options
    }
}

impl CommonOptions {
    const NAMES: &[&str] = &[
        "name",
        "title",
        "description",
        "timeout",
        "icon",
        "meta",
        "blocking",
    ];

    /// `further` are the names of the other options of the attribute.
    fn take(&mut self, option: &Meta, further: &[&str], mistakes: &mut Mistakes) {
        let name = option.path().get_ident().map(ToString::to_string);
        match name.as_deref().unwrap_or_default() {
            "name" => set(&mut self.name, option, text(option), mistakes),
            "title" => set(&mut self.title, option, text(option), mistakes),
            "description" => set(&mut self.description, option, text(option), mistakes),
            "timeout" => set(&mut self.timeout, option, duration(option), mistakes),
            "icon" => take_icon(&mut self.icons, option, mistakes),
            "meta" => take_meta(&mut self.meta, option, mistakes),
            "blocking" => mark(&mut self.blocking, option, mistakes),
            other => {
                let known = [Self::NAMES, further].concat();
                mistakes.at(option.path(), unknown(other, &known));
            }
        }
    }
}

impl Parse for MetaEntry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let message = "a key of `_meta` is a string in quotes: `\"com.example/cost\" = 3`";
        let key = input.parse();
        let key = key.map_err(|mistake| syn::Error::new(mistake.span(), message))?;
        input.parse::<Token![=]>()?;
        let is_group = input.peek(token::Brace) || input.peek(token::Bracket);
        let is_json = is_group && input.fork().parse::<Expr>().is_err();
        let value = match is_json {
            true => input.parse::<TokenTree>()?.into_token_stream(),
            false => input.parse::<Expr>()?.into_token_stream(),
        };
        Ok(Self { key, value })
    }
}

impl ArgOptions {
    fn names(kind: Kind) -> &'static [&'static str] {
        match kind {
            Kind::Tool => &[
                "description",
                "rename",
                "default",
                "header",
                "flatten",
                "resolve",
            ],
            Kind::Resource => &["rename", "default", "complete", "resolve"],
            Kind::Prompt => &[
                "description",
                "title",
                "rename",
                "default",
                "complete",
                "resolve",
            ],
        }
    }

    /// Reads one `#[arg(...)]`.
    pub(crate) fn read(&mut self, kind: Kind, attribute: &syn::Attribute, mistakes: &mut Mistakes) {
        if let Some(arguments) = mistakes.ok(attribute.meta.require_list()) {
            for option in list(arguments.tokens.clone(), mistakes) {
                self.take(kind, &option, mistakes);
            }
        }
    }

    fn take(&mut self, kind: Kind, option: &Meta, mistakes: &mut Mistakes) {
        let known = Self::names(kind);
        let name = option.path().get_ident().map(ToString::to_string);
        let name = name.unwrap_or_default();
        if !known.contains(&name.as_str()) {
            return mistakes.at(option.path(), unknown(&name, known));
        }
        match name.as_str() {
            "description" => set(&mut self.description, option, text(option), mistakes),
            "rename" => set(&mut self.rename, option, text(option), mistakes),
            "default" => set(&mut self.default, option, preset(option), mistakes),
            "header" => {
                set(&mut self.header, option, text(option), mistakes);
                if let Some(header) = &self.header
                    && !is_token(&header.value())
                {
                    mistakes.at(
                        header,
                        "a header name has letters, digits and any of !#$%&'*+-.^_`|~",
                    );
                }
            }
            "flatten" => mark(&mut self.flatten, option, mistakes),
            "resolve" => mark(&mut self.resolve, option, mistakes),
            "title" => set(&mut self.title, option, text(option), mistakes),
            "complete" => set(&mut self.complete, option, complete(option), mistakes),
            _ => unreachable!("only known names get here"),
        }
    }
}

/// Returns the problem with the name of a tool.
pub(crate) fn fault_of_name(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > 128 {
        Some("the name of a tool has 1 to 128 characters")
    } else if name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
    {
        None
    } else {
        Some(
            "the name of a tool has letters and digits of ASCII, `_`, `-` and `.` only; \
             say `name = \"...\"`",
        )
    }
}

fn list(tokens: TokenStream, mistakes: &mut Mistakes) -> Punctuated<Meta, Token![,]> {
    mistakes
        .ok(Punctuated::parse_terminated.parse2(tokens))
        .unwrap_or_default()
}
