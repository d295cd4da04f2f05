//! Checks of a function's signature and type.

use syn::{ReturnType, Signature, Type};

use super::{Kind, Parameter, Placement, arguments, check_given, variables};
use crate::options::{Complete, Mistakes};

/// Checks that functions which suggest values are given state that there is.
pub(super) fn check_completion(
    parameters: &[Parameter],
    place: Placement,
    mistakes: &mut Mistakes,
) {
    let complete = arguments(parameters).filter_map(|argument| argument.options.complete.as_ref());
    for complete in complete {
        match complete {
            Complete::Method(method, _) if place == Placement::Free => {
                mistakes.at(method, "a function has no `self`; name a function");
            }
            Complete::Method(_, given) | Complete::Function { given, .. } => {
                check_given(given, parameters, place, mistakes);
            }
        }
    }
}

/// The parameters of a resource are the variables of its URI, no more and no less.
pub(super) fn check_variables(
    uri: &syn::LitStr,
    parameters: &[Parameter],
    mistakes: &mut Mistakes,
) {
    let text = uri.value();
    let variables = variables(&text);
    for (variable, _) in &variables {
        if !arguments(parameters).any(|a| a.name() == *variable) {
            let message = format!("the function has no parameter for the variable `{variable}`");
            mistakes.at(uri, message);
        }
    }
    for argument in arguments(parameters) {
        let name = argument.name();
        match variables.iter().find(|(variable, _)| *variable == name) {
            None if variables.is_empty() => mistakes.at(
                &argument.ident,
                "the URI has no variable for this parameter: add `{...}` to the URI, or put `#[call]` or `#[state]` before the parameter",
            ),
            None => mistakes.at(
                &argument.ident,
                format!("the URI has no variable `{{{name}}}`"),
            ),
            Some((_, true)) if !argument.is_optional() => mistakes.at(
                &argument.ty,
                "this variable may be left out of the URI: use an `Option`, or `#[arg(default)]`",
            ),
            Some(_) => {}
        }
    }
}

pub(super) fn check_signature(kind: Kind, signature: &Signature, mistakes: &mut Mistakes) {
    let name = kind.name();
    if let Some(token) = signature.constness {
        mistakes.at(token, format!("a {name} cannot be a `const fn`"));
    }
    if let Some(token) = signature.unsafety {
        let message = format!("a {name} cannot be an `unsafe fn`: anyone may call it");
        mistakes.at(token, message);
    }
    if let Some(abi) = &signature.abi {
        mistakes.at(abi, format!("a {name} cannot be an `extern fn`"));
    }
    if !signature.generics.params.is_empty() {
        let message = match kind {
            Kind::Tool => "a tool cannot be generic: its schema is made from its types",
            Kind::Resource => "a resource cannot be generic",
            Kind::Prompt => "a prompt cannot be generic",
        };
        mistakes.at(&signature.generics, message);
    }
    if let Some(clause) = &signature.generics.where_clause {
        mistakes.at(clause, format!("a {name} cannot have a `where` clause"));
    }
    if let Some(variadic) = &signature.variadic {
        mistakes.at(
            variadic,
            format!("a {name} cannot have a variable number of parameters"),
        );
    }
}

pub(super) fn returned(kind: Kind, signature: &Signature, mistakes: &mut Mistakes) -> Type {
    let name = kind.name();
    let ty = match &signature.output {
        ReturnType::Default => return syn::parse_quote!(()),
        ReturnType::Type(_, ty) => &**ty,
    };
    match ty {
        Type::ImplTrait(_) => {
            let message = format!("a {name} cannot return an `impl Trait`: name the type");
            mistakes.at(ty, message);
        }
        Type::Reference(reference)
            if reference
                .lifetime
                .as_ref()
                .is_none_or(|l| l.ident != "static") =>
        {
            mistakes.at(
                ty,
                format!("a {name} owns what it returns: use `String`, or `&'static str`"),
            );
        }
        _ => {}
    }
    ty.clone()
}
