//! Values of options.

use std::time::Duration;

use proc_macro2::Span;
use syn::parse::Parse;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitStr, Meta, Token};

use super::{Complete, Mistakes, Preset};

pub(super) fn set<T>(
    place: &mut Option<T>,
    option: &Meta,
    value: syn::Result<T>,
    mistakes: &mut Mistakes,
) {
    if place.is_some() {
        mistakes.at(option, "this option appears twice");
    }
    if let Some(value) = mistakes.ok(value) {
        *place = Some(value);
    }
}

pub(super) fn text(option: &Meta) -> syn::Result<LitStr> {
    let value = &option.require_name_value()?.value;
    string(value)
        .cloned()
        .ok_or_else(|| syn::Error::new_spanned(value, "expected a string in quotes"))
}

/// The literal, if an expression is a string.
pub(crate) fn string(expression: &Expr) -> Option<&LitStr> {
    match expression {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

pub(super) fn complete(option: &Meta) -> syn::Result<Complete> {
    let value = &option.require_name_value()?.value;
    let path = |expression: &Expr| match expression {
        Expr::Path(path) if path.attrs.is_empty() && path.qself.is_none() => {
            Some(path.path.clone())
        }
        _ => None,
    };
    let names = |arguments: &Punctuated<Expr, Token![,]>| {
        let names = arguments
            .iter()
            .map(|name| path(name)?.get_ident().cloned());
        names.collect::<Option<Vec<_>>>()
    };
    let read = match value {
        Expr::Call(call) => path(&call.func).and_then(|function| {
            Some(Complete::Function {
                path: function,
                given: names(&call.args)?,
            })
        }),
        Expr::MethodCall(call) if path(&call.receiver).is_some_and(|r| r.is_ident("self")) => {
            names(&call.args).map(|given| Complete::Method(call.method.clone(), given))
        }
        Expr::Field(field) => match (path(&field.base), &field.member) {
            (Some(base), syn::Member::Named(name)) if base.is_ident("self") => {
                Some(Complete::Method(name.clone(), Vec::new()))
            }
            _ => None,
        },
        other => path(other).map(|path| Complete::Function {
            path,
            given: Vec::new(),
        }),
    };
    read.ok_or_else(|| {
        syn::Error::new_spanned(
            value,
            "expected the name of a function; `name(db)` if it takes the parameter `#[state] db` or `#[call] db`, `self.name` for a method",
        )
    })
}

/// `read_only`, or `read_only = false`.
pub(super) fn flag(option: &Meta) -> syn::Result<bool> {
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

/// Sets an option without a value.
pub(super) fn switch(place: &mut bool, option: &Meta, mistakes: &mut Mistakes) {
    let mut place_of_option = place.then(|| option.span());
    mark(&mut place_of_option, option, mistakes);
    *place = true;
}

/// Keeps the place of an option without a value.
pub(super) fn mark(place: &mut Option<Span>, option: &Meta, mistakes: &mut Mistakes) {
    let value = match option {
        Meta::Path(_) => Ok(option.span()),
        other => Err(syn::Error::new_spanned(other, "this option has no value")),
    };
    set(place, option, value, mistakes);
    *place = Some(option.span());
}

/// The entries in the parentheses of an option.
pub(super) fn entries<T: Parse>(
    option: &Meta,
    form: &str,
) -> syn::Result<Punctuated<T, Token![,]>> {
    match option {
        Meta::List(list) => list.parse_args_with(Punctuated::parse_terminated),
        other => Err(syn::Error::new_spanned(other, format!("expected `{form}`"))),
    }
}

pub(super) fn preset(option: &Meta) -> syn::Result<Preset> {
    match option {
        Meta::Path(_) => Ok(Preset::OfType),
        _ => Ok(Preset::Value(option.require_name_value()?.value.clone())),
    }
}

pub(super) fn duration(option: &Meta) -> syn::Result<Duration> {
    if let Expr::Lit(ExprLit {
        lit: lit @ (Lit::Int(_) | Lit::Float(_)),
        ..
    }) = &option.require_name_value()?.value
    {
        let message = "expected a number with its unit, in quotes, for example \"5s\"";
        return Err(syn::Error::new_spanned(lit, message));
    }
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
pub(super) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

pub(super) fn unknown(name: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(distance, _)| *distance <= name.len() / 3 + 1);
    match nearest {
        Some((_, nearest)) if !name.is_empty() => {
            format!("unknown option `{name}`; did you mean `{nearest}`?")
        }
        _ => format!("unknown option; the options are `{}`", known.join("`, `")),
    }
}

/// The edit distance of two words.
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
