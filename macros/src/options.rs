//! The words in `#[tool(...)]` and `#[arg(...)]`, and what is wrong with them.

use std::time::Duration;

use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitStr, Meta, Token};

/// Mistakes, gathered so that all of a function's are told at once.
#[derive(Default)]
pub(crate) struct Mistakes(Option<syn::Error>);

/// What `#[tool(...)]` says.
#[derive(Default)]
pub(crate) struct ToolOptions {
    pub(crate) name: Option<LitStr>,
    pub(crate) title: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) read_only: Option<bool>,
    pub(crate) destructive: Option<bool>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) open_world: Option<bool>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) scopes: Vec<LitStr>,
    pub(crate) icons: Vec<LitStr>,
    pub(crate) meta: Vec<MetaEntry>,
    pub(crate) blocking: Option<proc_macro2::Span>,
    pub(crate) additional_properties: bool,
    pub(crate) collect: bool,
}

/// `"com.example/cost" = 3`
pub(crate) struct MetaEntry {
    pub(crate) key: LitStr,
    pub(crate) value: Expr,
}

/// What `#[arg(...)]` says.
#[derive(Default)]
pub(crate) struct ArgOptions {
    pub(crate) description: Option<LitStr>,
    pub(crate) rename: Option<LitStr>,
    pub(crate) default: Option<Preset>,
    pub(crate) header: Option<LitStr>,
    pub(crate) flatten: Option<proc_macro2::Span>,
}

/// What a parameter is when it is left out.
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
    const NAMES: &[&str] = &[
        "name",
        "title",
        "description",
        "read_only",
        "destructive",
        "idempotent",
        "open_world",
        "timeout",
        "scopes",
        "icon",
        "meta",
        "blocking",
        "additional_properties",
        "collect",
    ];

    pub(crate) fn read(tokens: proc_macro2::TokenStream, mistakes: &mut Mistakes) -> Self {
        let mut options = Self::default();
        for option in list(tokens, mistakes) {
            options.take(&option, mistakes);
        }
        options
    }

    fn take(&mut self, option: &Meta, mistakes: &mut Mistakes) {
        let Some(name) = option.path().get_ident().map(ToString::to_string) else {
            return mistakes.at(option.path(), unknown("", Self::NAMES));
        };
        match name.as_str() {
            "name" => {
                set(&mut self.name, option, text(option), mistakes);
                if let Some(name) = &self.name
                    && let Some(fault) = fault_of_name(&name.value())
                {
                    mistakes.at(name, fault);
                }
            }
            "title" => set(&mut self.title, option, text(option), mistakes),
            "description" => set(&mut self.description, option, text(option), mistakes),
            "read_only" => set(&mut self.read_only, option, flag(option), mistakes),
            "destructive" => set(&mut self.destructive, option, flag(option), mistakes),
            "idempotent" => set(&mut self.idempotent, option, flag(option), mistakes),
            "open_world" => set(&mut self.open_world, option, flag(option), mistakes),
            "timeout" => set(&mut self.timeout, option, duration(option), mistakes),
            "scopes" => self.take_scopes(option, mistakes),
            "icon" => {
                if let Some(icon) = mistakes.ok(text(option)) {
                    let uri = icon.value();
                    if !uri.starts_with("https://") && !uri.starts_with("data:") {
                        mistakes.at(&icon, "an icon is an `https:` or a `data:` URI");
                    }
                    self.icons.push(icon);
                }
            }
            "meta" => self.take_meta(option, mistakes),
            "blocking" => {
                let mut said = self.blocking.map(|_| true);
                set(&mut said, option, word(option), mistakes);
                self.blocking = Some(option.span());
            }
            "additional_properties" => {
                let mut said = self.additional_properties.then_some(true);
                set(&mut said, option, word(option), mistakes);
                self.additional_properties = true;
            }
            "collect" => {
                let mut said = self.collect.then_some(true);
                set(&mut said, option, word(option), mistakes);
                self.collect = true;
            }
            other => mistakes.at(option.path(), unknown(other, Self::NAMES)),
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

    fn take_meta(&mut self, option: &Meta, mistakes: &mut Mistakes) {
        let entries = entries::<MetaEntry>(option, r#"meta("..." = ..., ...)"#);
        for entry in mistakes.ok(entries).into_iter().flatten() {
            if self.meta.iter().any(|m| m.key.value() == entry.key.value()) {
                mistakes.at(&entry.key, "this key of `_meta` is given twice");
            }
            self.meta.push(entry);
        }
    }
}

impl Parse for MetaEntry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Self {
            key,
            value: input.parse()?,
        })
    }
}

impl ArgOptions {
    const NAMES: &[&str] = &["description", "rename", "default", "header", "flatten"];

    /// Reads one `#[arg(...)]`.
    pub(crate) fn read(&mut self, attribute: &syn::Attribute, mistakes: &mut Mistakes) {
        if let Some(arguments) = mistakes.ok(attribute.meta.require_list()) {
            for option in list(arguments.tokens.clone(), mistakes) {
                self.take(&option, mistakes);
            }
        }
    }

    fn take(&mut self, option: &Meta, mistakes: &mut Mistakes) {
        let Some(name) = option.path().get_ident().map(ToString::to_string) else {
            return mistakes.at(option.path(), unknown("", Self::NAMES));
        };
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
            "flatten" => {
                let mut said = self.flatten.map(|_| true);
                set(&mut said, option, word(option), mistakes);
                self.flatten = Some(option.span());
            }
            other => mistakes.at(option.path(), unknown(other, Self::NAMES)),
        }
    }
}

/// What is wrong with the name of a tool.
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

fn list(tokens: proc_macro2::TokenStream, mistakes: &mut Mistakes) -> Punctuated<Meta, Token![,]> {
    mistakes
        .ok(Punctuated::parse_terminated.parse2(tokens))
        .unwrap_or_default()
}

fn set<T>(place: &mut Option<T>, option: &Meta, value: syn::Result<T>, mistakes: &mut Mistakes) {
    if place.is_some() {
        mistakes.at(option, "this is said twice");
    }
    if let Some(value) = mistakes.ok(value) {
        *place = Some(value);
    }
}

fn text(option: &Meta) -> syn::Result<LitStr> {
    let value = &option.require_name_value()?.value;
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Ok(text.clone()),
        other => Err(syn::Error::new_spanned(
            other,
            "expected a string in quotes",
        )),
    }
}

/// `read_only`, or `read_only = false`.
fn flag(option: &Meta) -> syn::Result<bool> {
    match option {
        Meta::Path(_) => Ok(true),
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit {
                lit: Lit::Bool(value),
                ..
            }) => Ok(value.value),
            other => Err(syn::Error::new_spanned(other, "expected `true` or `false`")),
        },
        Meta::List(list) => Err(syn::Error::new_spanned(
            list,
            "expected `= true` or `= false`",
        )),
    }
}

fn word(option: &Meta) -> syn::Result<bool> {
    match option {
        Meta::Path(_) => Ok(true),
        other => Err(syn::Error::new_spanned(other, "this option has no value")),
    }
}

/// What is in the parentheses of an option.
fn entries<T: Parse>(option: &Meta, form: &str) -> syn::Result<Punctuated<T, Token![,]>> {
    match option {
        Meta::List(list) => list.parse_args_with(Punctuated::parse_terminated),
        other => Err(syn::Error::new_spanned(other, format!("expected `{form}`"))),
    }
}

fn preset(option: &Meta) -> syn::Result<Preset> {
    match option {
        Meta::Path(_) => Ok(Preset::OfType),
        _ => Ok(Preset::Value(option.require_name_value()?.value.clone())),
    }
}

fn duration(option: &Meta) -> syn::Result<Duration> {
    let text = text(option)?;
    let value = text.value();
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = value.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    match number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(milliseconds))
    {
        Some(duration) if duration > 0 => Ok(Duration::from_millis(duration)),
        _ => Err(syn::Error::new(
            text.span(),
            "expected a number above zero and a unit of `ms`, `s`, `m` or `h`, for example \"5s\"",
        )),
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn unknown(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= name.len() / 3 + 1);
    match nearest {
        Some((_, nearest)) if !name.is_empty() => {
            format!("there is no option `{name}`; did you mean `{nearest}`?")
        }
        _ => format!(
            "there is no such option; there are `{}`",
            known.join("`, `")
        ),
    }
}

/// How many letters to add, drop or change to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
