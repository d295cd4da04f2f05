//! Parameters of a function: arguments, state, values of the call, and the context.

use quote::ToTokens;
use syn::{FnArg, Pat, PatType, Receiver, Signature, Type};

use super::{
    Argument, Injected, Kind, Parameter, Placement, arguments, inside_option, is_context, is_lint,
    is_marked, last_name, ungrouped,
};
use crate::options::{ArgOptions, Mistakes};

pub(super) fn read_parameters(
    (kind, place): (Kind, Placement),
    signature: &mut Signature,
    mistakes: &mut Mistakes,
) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    let mut has_context = false;
    let mut has_receiver = false;
    let name = signature.ident.clone();
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                check_receiver(kind, place, receiver, mistakes);
                has_receiver = true;
            }
            FnArg::Typed(parameter) if is_marked(parameter, "state") => {
                if let Some(shared) = read_shared(place, parameter, mistakes) {
                    parameters.push(Parameter::State(Box::new(shared)));
                }
            }
            FnArg::Typed(parameter) if is_marked(parameter, "call") => {
                if let Some(extracted) = read_extracted(parameter, mistakes) {
                    parameters.push(Parameter::Call(Box::new(extracted)));
                }
            }
            FnArg::Typed(parameter) if is_context(&parameter.ty) => {
                if std::mem::replace(&mut has_context, true) {
                    mistakes.at(&*parameter, "a call has one `&CallContext`; remove the other one");
                }
                for attribute in std::mem::take(&mut parameter.attrs) {
                    if attribute.path().is_ident("arg") {
                        mistakes.at(attribute, "the context is not an argument of the caller");
                    } else {
                        parameter.attrs.push(attribute);
                    }
                }
                parameters.push(Parameter::Context);
            }
            FnArg::Typed(parameter) if means_context(&parameter.ty) => mistakes.at(
                &parameter.ty,
                "the context is lent to the call: write `&CallContext`; for an `Arc<CallContext>` put `#[call]` before it",
            ),
            FnArg::Typed(parameter) => {
                if let Some(argument) = read_argument(kind, parameter, mistakes) {
                    parameters.push(Parameter::Argument(Box::new(argument)));
                }
            }
        }
    }
    if place == Placement::Method && !has_receiver {
        let message = "a method takes `&self`: add it, or move this out of the `impl`";
        mistakes.at(name, message);
    }
    parameters
}

fn check_receiver(kind: Kind, place: Placement, receiver: &Receiver, mistakes: &mut Mistakes) {
    let is_lent = receiver
        .reference
        .as_ref()
        .is_some_and(|(_, life)| life.is_none())
        && receiver.mutability.is_none()
        && receiver.colon_token.is_none();
    match place {
        Placement::Free => mistakes.at(
            receiver,
            format!(
                "a method is a {} where its `impl` has `#[tools]`; put that on the `impl`",
                kind.name()
            ),
        ),
        Placement::Method if !is_lent => mistakes.at(
            receiver,
            "an object is shared by concurrent calls: write `&self`, and put what changes behind a lock",
        ),
        Placement::Method => {}
    }
}

/// Takes the attributes off a parameter that no caller fills. Those for the compiler stay; all but one `mark` are
/// mistakes.
fn take_mark(parameter: &mut PatType, mark: &str, others: &str, mistakes: &mut Mistakes) {
    let mut marks = 0;
    for attribute in std::mem::take(&mut parameter.attrs) {
        let path = attribute.path();
        if path.is_ident(mark) {
            marks += 1;
            if attribute.meta.require_path_only().is_err() {
                mistakes.at(&attribute, format!("`#[{mark}]` has no options"));
            } else if 1 < marks {
                mistakes.at(&attribute, "this attribute appears twice");
            }
        } else if is_lint(path) {
            parameter.attrs.push(attribute);
        } else {
            mistakes.at(path, others);
        }
    }
}

impl Injected {
    fn new(pattern: &Pat, ty: &Type) -> Self {
        let ident = match pattern {
            Pat::Ident(pattern) => Some(pattern.ident.clone()),
            _ => None,
        };
        Self {
            ident,
            ty: ty.clone(),
        }
    }
}

/// Reads a parameter with `#[call]`.
fn read_extracted(parameter: &mut PatType, mistakes: &mut Mistakes) -> Option<Injected> {
    let others = "this parameter is taken from the call, not from its arguments: it accepts no other attribute";
    take_mark(parameter, "call", others, mistakes);
    let message = match &*parameter.ty {
        ty if is_context(ty) => "`&CallContext` needs no `#[call]`".to_owned(),
        Type::Reference(reference) => {
            let written = reference
                .elem
                .to_token_stream()
                .to_string()
                .replace(' ', "");
            format!(
                "an extractor is owned: write `{written}`; for a value of the application write `#[state]`"
            )
        }
        Type::ImplTrait(_) | Type::Infer(_) => {
            "the type must be written out: it selects the extractor".to_owned()
        }
        ty => {
            return Some(Injected::new(&parameter.pat, ty));
        }
    };
    mistakes.at(&parameter.ty, message);
    None
}

/// Reads a parameter with `#[state]`.
fn read_shared(
    place: Placement,
    parameter: &mut PatType,
    mistakes: &mut Mistakes,
) -> Option<Injected> {
    let others =
        "state comes from the application, not from the caller: it accepts no other attribute";
    take_mark(parameter, "state", others, mistakes);
    if place == Placement::Method {
        mistakes.at(&*parameter, "a method has its state in `self`");
        return None;
    }
    match ungrouped(&parameter.ty) {
        Type::Reference(reference) if reference.mutability.is_some() => mistakes.at(
            &parameter.ty,
            "state is shared by concurrent calls: write `&T`, and put what changes behind a lock",
        ),
        Type::Reference(reference) if reference.lifetime.is_some() => mistakes.at(
            &reference.lifetime,
            "state is lent for the call: leave the lifetime out",
        ),
        Type::Reference(reference) => match &*reference.elem {
            Type::TraitObject(_) | Type::Slice(_) => mistakes.at(
                &reference.elem,
                "state has a size: provide a `Box<...>` or an `Arc<...>`, and write `&Box<...>` or `&Arc<...>`",
            ),
            Type::Path(path) if path.path.is_ident("str") => mistakes.at(
                path,
                "state has a size: provide a type of your own around a `String`",
            ),
            elem => {
                return Some(Injected::new(&parameter.pat, elem));
            }
        },
        other => {
            let written = other.to_token_stream().to_string().replace(' ', "");
            mistakes.at(other, format!("state is lent to the call: write `&{written}`"));
        }
    }
    None
}

fn read_argument(kind: Kind, parameter: &mut PatType, mistakes: &mut Mistakes) -> Option<Argument> {
    let mut options = ArgOptions::default();
    let mut attributes = Vec::new();
    for attribute in std::mem::take(&mut parameter.attrs) {
        let path = attribute.path();
        if path.is_ident("arg") {
            options.read(kind, &attribute, mistakes);
        } else if kind.attributes().iter().any(|known| path.is_ident(known)) {
            attributes.push(attribute);
        } else if is_lint(path) {
            parameter.attrs.push(attribute);
        } else {
            mistakes.at(path, match kind {
                Kind::Tool => {
                    "a parameter accepts doc comments, `#[arg(...)]`, `#[serde(...)]` and `#[schemars(...)]`; one that is not an argument accepts `#[state]` or `#[call]`"
                }
                Kind::Resource | Kind::Prompt => {
                    "a parameter accepts doc comments and `#[arg(...)]`; one that is not an argument accepts `#[state]` or `#[call]`"
                }
            });
        }
    }
    check_type(kind, &parameter.ty, mistakes);
    if let Some(header) = &options.header
        && options.resolve.is_none()
    {
        check_mirrored(&parameter.ty, header, mistakes);
    }
    match &*parameter.pat {
        Pat::Ident(pattern) if pattern.by_ref.is_none() && pattern.subpat.is_none() => {
            Some(Argument {
                ident: pattern.ident.clone(),
                ty: (*parameter.ty).clone(),
                options,
                attributes,
            })
        }
        other => {
            let name = kind.name();
            let message = match (kind, last_name(&parameter.ty)) {
                (Kind::Tool, Some(wrapper)) if wrapper == "Parameters" => {
                    "the parameters of a tool are its arguments: write the members of the struct as parameters, or `#[arg(flatten)] arguments: T` without `Parameters`".to_owned()
                }
                _ => format!("the parameter of a {name} needs a name, which callers use"),
            };
            mistakes.at(other, message);
            None
        }
    }
}

pub(super) fn check_together(parameters: &[Parameter], mistakes: &mut Mistakes) {
    let arguments: Vec<_> = arguments(parameters).collect();
    for (i, argument) in arguments.iter().enumerate() {
        let earlier = &arguments[..i];
        if earlier.iter().any(|a| a.name() == argument.name()) {
            let message = format!("two parameters are called `{}`", argument.name());
            match &argument.options.rename {
                Some(rename) => mistakes.at(rename, message),
                None => mistakes.at(&argument.ident, message),
            }
        }
        if let Some(header) = &argument.options.header {
            let is_taken = earlier
                .iter()
                .filter_map(|a| a.options.header.as_ref())
                .any(|h| h.value().eq_ignore_ascii_case(&header.value()));
            if is_taken {
                mistakes.at(header, "two parameters have this header");
            }
        }
    }
}

/// Returns true for the context in an invalid form: owned, shared or mutable.
fn means_context(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => means_context(&reference.elem),
        Type::Paren(inner) => means_context(&inner.elem),
        Type::Group(inner) => means_context(&inner.elem),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let holds = ["Arc", "Rc", "Box"].iter().any(|holder| last.ident == holder);
            last.ident == "CallContext"
                || holds
                    && matches!(&last.arguments, syn::PathArguments::AngleBracketed(inside)
                        if matches!(inside.args.first(), Some(syn::GenericArgument::Type(inner)) if means_context(inner)))
        }),
        _ => false,
    }
}

fn check_type(kind: Kind, ty: &Type, mistakes: &mut Mistakes) {
    let name = kind.name();
    let ty = inside_option(ty);
    match ty {
        Type::Reference(reference) => {
            let instead = match &*reference.elem {
                Type::Path(_) => match last_name(&reference.elem) {
                    Some(last) if last == "str" => "`String`".to_owned(),
                    Some(last) => format!("`{last}`"),
                    None => "an owned type".to_owned(),
                },
                Type::Slice(_) => "`Vec<...>`".to_owned(),
                _ => "an owned type".to_owned(),
            };
            mistakes.at(
                ty,
                format!(
                    "a {name} owns its arguments: use {instead} here; for a value of the application, put `#[state]` before it, for one of the call `#[call]` and leave the `&` out"
                ),
            );
        }
        Type::ImplTrait(_) => mistakes.at(
            ty,
            match kind {
                Kind::Tool => {
                    "a tool cannot have an `impl Trait` parameter: its schema is derived from its types"
                }
                Kind::Resource => "a resource cannot have an `impl Trait` parameter: write the type",
                Kind::Prompt => "a prompt cannot have an `impl Trait` parameter: write the type",
            },
        ),
        Type::Infer(_) => mistakes.at(ty, "the type of an argument must be written out"),
        _ => {}
    }
}

/// Rejects types that are certainly not an integer, a string or a boolean. Types behind an alias are checked when the
/// tool is registered.
fn check_mirrored(ty: &Type, header: &syn::LitStr, mistakes: &mut Mistakes) {
    const OTHERS: &[&str] = &[
        "f32", "f64", "Vec", "VecDeque", "HashMap", "BTreeMap", "HashSet", "BTreeSet", "Value",
        "Map",
    ];
    let is_other = match inside_option(ty) {
        Type::Tuple(_) | Type::Array(_) | Type::Slice(_) => true,
        other => last_name(other).is_some_and(|n| OTHERS.iter().any(|o| n == o)),
    };
    if is_other {
        mistakes.at(
            header,
            "only an integer, a string or a boolean can be mirrored in a header",
        );
    }
}
