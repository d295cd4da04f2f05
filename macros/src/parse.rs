//! A function and its options become a plain description, or all the mistakes in them.

mod checks;
mod parameters;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Ident, ItemFn, PatType, Signature, Type};

use crate::options::{
    ArgOptions, CommonOptions, Complete, Mistakes, Preset, PromptOptions, ResourceOptions,
    ToolOptions, fault_of_name,
};
use checks::{check_completion, check_signature, check_variables, returned};
use parameters::{check_together, read_parameters};

/// A function that is to become something that a server offers, with its options.
pub(crate) struct Function<O> {
    pub(crate) options: O,
    /// The place of `blocking`, if it is set.
    pub(crate) blocking: Option<Span>,
    /// The function, without what only the attribute understands.
    pub(crate) function: ItemFn,
    /// Its doc comment, for the model and for rustdoc.
    pub(crate) documentation: Vec<Attribute>,
    /// `#[cfg]`, which everything that is written must repeat.
    pub(crate) conditions: Vec<Attribute>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Type,
    pub(crate) place: Placement,
}

/// The place where a function stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    Free,
    /// In an `impl` with `#[tools]`.
    Method,
}

/// The kind of item that a function becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tool,
    Resource,
    Prompt,
}

impl Kind {
    /// The name of the attribute.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
        }
    }

    /// The attributes that parameters have beside `#[arg(...)]`.
    fn attributes(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &["doc", "serde", "schemars"],
            Self::Resource | Self::Prompt => &["doc"],
        }
    }
}

/// A parameter.
pub(crate) enum Parameter {
    /// `&CallContext`
    Context,
    /// `#[state] name: &T`, with the referenced type.
    State(Box<Injected>),
    /// `#[call] name: T`
    Call(Box<Injected>),
    Argument(Box<Argument>),
}

/// A parameter that the application fills, or that is taken from the call.
pub(crate) struct Injected {
    /// `None` for a pattern.
    pub(crate) ident: Option<Ident>,
    pub(crate) ty: Type,
}

/// A parameter that the caller fills.
pub(crate) struct Argument {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) options: ArgOptions,
    /// Doc comments, and the attributes that the derives of serde and schemars understand.
    pub(crate) attributes: Vec<Attribute>,
}

impl<O> Function<O> {
    /// The parameter that is the whole arguments object.
    pub(crate) fn flattened(&self) -> Option<&Argument> {
        self.arguments().find(|a| a.options.flatten.is_some())
    }

    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Argument> {
        arguments(&self.parameters)
    }

    /// The parameters with `#[state]`, in order.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Injected> {
        self.parameters.iter().filter_map(|p| match p {
            Parameter::State(shared) => Some(&**shared),
            Parameter::Argument(_) | Parameter::Call(_) | Parameter::Context => None,
        })
    }

    /// The arguments with `#[arg(resolve)]`, each with its place among all arguments.
    pub(crate) fn resolved(&self) -> impl Iterator<Item = (usize, &Argument)> {
        let all = self.arguments().enumerate();
        all.filter(|(_, argument)| argument.options.resolve.is_some())
    }

    /// The parameters with `#[call]`, in order.
    pub(crate) fn extracted(&self) -> impl Iterator<Item = &Injected> {
        self.parameters.iter().filter_map(|p| match p {
            Parameter::Call(extracted) => Some(&**extracted),
            Parameter::Argument(_) | Parameter::State(_) | Parameter::Context => None,
        })
    }
}

impl Argument {
    /// Returns true if the caller may leave it out.
    pub(crate) fn is_optional(&self) -> bool {
        self.options.default.is_some() || is_option(&self.ty)
    }

    /// The words of its options and attributes, among them all names.
    pub(crate) fn names_used(&self) -> Vec<String> {
        let mut text = String::new();
        for attribute in &self.attributes {
            if !attribute.path().is_ident("doc") {
                text += &attribute.to_token_stream().to_string();
            }
        }
        if let Some(Preset::Value(value)) = &self.options.default {
            text += &value.to_token_stream().to_string();
        }
        if let Some(Complete::Function { path, .. }) = &self.options.complete {
            text += &path.to_token_stream().to_string();
        }
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.map(str::to_owned).collect()
    }

    /// The type that callers send.
    pub(crate) fn sent(&self) -> TokenStream {
        self.sent_as(&self.ty)
    }

    /// The type that callers send for `ty`, which is the parameter's type or the one in its `Option`.
    pub(crate) fn sent_as(&self, ty: &Type) -> TokenStream {
        match self.options.resolve {
            None => ty.to_token_stream(),
            // The span puts the error of a missing trait at the type.
            Some(_) => quote_spanned! {ty.span()=>
                <#ty as ::longshore::__private::FromArgument>::Argument
            },
        }
    }

    /// The name that callers use.
    pub(crate) fn name(&self) -> String {
        match &self.options.rename {
            Some(name) => name.value(),
            None => self.ident.unraw().to_string(),
        }
    }
}

/// The options of one attribute.
pub(crate) trait Options: Sized {
    const KIND: Kind;

    fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self;

    fn common(&self) -> &CommonOptions;

    /// Checks the function's name, where the options do not give another.
    fn check_name(&self, _name: &Ident, _mistakes: &mut Mistakes) {}

    /// Checks whether the options go together with the place.
    fn check_place(&self, _place: Placement, _name: &Ident, _mistakes: &mut Mistakes) {}

    /// Checks whether options and parameters go together.
    fn check(&self, _parameters: &[Parameter], _mistakes: &mut Mistakes) {}
}

impl Options for ToolOptions {
    const KIND: Kind = Kind::Tool;

    fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self {
        Self::read(tokens, mistakes)
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn check_name(&self, name: &Ident, mistakes: &mut Mistakes) {
        if self.common.name.is_none()
            && let Some(fault) = fault_of_name(&name.unraw().to_string())
        {
            mistakes.at(name, fault);
        }
    }

    fn check_place(&self, place: Placement, name: &Ident, mistakes: &mut Mistakes) {
        if self.collect && place == Placement::Method {
            mistakes.at(
                name,
                "`collect` goes on functions: a method is offered with its object, by `App::toolset`",
            );
        }
    }

    fn check(&self, parameters: &[Parameter], mistakes: &mut Mistakes) {
        let count = arguments(parameters).count();
        for argument in arguments(parameters) {
            if let Some(flatten) = argument.options.flatten {
                check_flattened(argument, count, flatten, self, mistakes);
            }
        }
    }
}

impl Options for ResourceOptions {
    const KIND: Kind = Kind::Resource;

    fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self {
        Self::read(tokens, mistakes)
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }

    fn check(&self, parameters: &[Parameter], mistakes: &mut Mistakes) {
        if let Some(uri) = &self.uri {
            check_variables(uri, parameters, mistakes);
        }
    }
}

impl Options for PromptOptions {
    const KIND: Kind = Kind::Prompt;

    fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self {
        Self::read(tokens, mistakes)
    }

    fn common(&self) -> &CommonOptions {
        &self.common
    }
}

/// A function; or all mistakes, with the function as the compiler would like to see it.
pub(crate) type Read<O> = Result<Function<O>, (syn::Error, TokenStream)>;

/// Reads an attribute and what it stands on.
pub(crate) fn read<O: Options>(options: TokenStream, item: TokenStream) -> Read<O> {
    let kind = O::KIND;
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(mistake) => {
            let is_function = item.clone().into_iter().any(|t| t.to_string() == "fn");
            let mistake = if is_function {
                mistake
            } else {
                let kind = kind.name();
                let message = format!("`#[{kind}]` goes on a function: `async fn name(...)`");
                syn::Error::new_spanned(&item, message)
            };
            return Err((mistake, item));
        }
    };
    read_function(options, function, Placement::Free)
        .map_err(|refused| (refused.0, refused.1.into_token_stream()))
}

/// Reads an attribute and the function that it stands on. The error has all mistakes, and the function as the compiler would
/// like to see it.
pub(crate) fn read_function<O: Options>(
    options: TokenStream,
    mut function: ItemFn,
    place: Placement,
) -> Result<Function<O>, Box<(syn::Error, ItemFn)>> {
    let kind = O::KIND;
    let mut mistakes = Mistakes::default();
    let options = O::read(options, &mut mistakes);
    let blocking = options.common().blocking;
    check_blocking(kind, &function.sig, blocking, &mut mistakes);
    options.check_name(&function.sig.ident, &mut mistakes);
    options.check_place(place, &function.sig.ident, &mut mistakes);
    check_signature(kind, &function.sig, &mut mistakes);
    let parameters = read_parameters((kind, place), &mut function.sig, &mut mistakes);
    check_together(&parameters, &mut mistakes);
    check_completion(&parameters, place, &mut mistakes);
    options.check(&parameters, &mut mistakes);
    let returns = returned(kind, &function.sig, &mut mistakes);

    if let Some(mistakes) = mistakes.into_error() {
        return Err(Box::new((mistakes, function)));
    }
    let is = |attribute: &Attribute, names: &[&str]| {
        names.iter().any(|name| attribute.path().is_ident(name))
    };
    let (documentation, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut function.attrs)
        .into_iter()
        .partition(|attribute| is(attribute, &["doc"]));
    let conditions = rest.iter().filter(|a| is(a, &["cfg"])).cloned().collect();
    function.attrs = rest;
    Ok(Function {
        blocking,
        options,
        function,
        documentation,
        conditions,
        parameters,
        returns,
        place,
    })
}

/// Checks the parameters that a function which suggests values is given.
fn check_given(
    given: &[Ident],
    parameters: &[Parameter],
    place: Placement,
    mistakes: &mut Mistakes,
) {
    for name in given {
        let is_known = parameters.iter().any(|p| match p {
            Parameter::State(injected) | Parameter::Call(injected) => {
                injected.ident.as_ref() == Some(name)
            }
            Parameter::Argument(argument) => {
                argument.options.resolve.is_some() && argument.ident == *name
            }
            Parameter::Context => false,
        });
        if !is_known {
            let state = match place {
                Placement::Free => "`#[state]`, ",
                Placement::Method => "",
            };
            let message = format!(
                "there is no parameter `{name}` with {state}`#[call]` or `#[arg(resolve)]`"
            );
            mistakes.at(name, message);
        }
    }
}

fn check_blocking(
    kind: Kind,
    signature: &Signature,
    blocking: Option<Span>,
    mistakes: &mut Mistakes,
) {
    let kind = kind.name();
    match (signature.asyncness, blocking) {
        (None, None) => mistakes.at(
            signature.fn_token,
            format!(
                "a {kind} is an `async fn`; if it blocks, write `#[{kind}(blocking)]`, and it runs on a thread of its own"
            ),
        ),
        (Some(_), Some(blocking)) => mistakes.add(syn::Error::new(
            blocking,
            "`blocking` goes on a plain `fn`: drop `async`, or drop `blocking`",
        )),
        _ => {}
    }
}

/// The variables of a template, each with true if it may be left out. The template is validated when the resource is
/// registered.
fn variables(template: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for expression in template.split('{').skip(1) {
        let expression = expression.split('}').next().unwrap_or_default();
        let names = expression.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']);
        let optional = expression.starts_with(['#', '.', '/', ';', '?', '&']);
        let names = names.split(',');
        found.extend(names.map(|name| (name.strip_suffix('*').unwrap_or(name), optional)));
    }
    found
}

fn arguments(parameters: &[Parameter]) -> impl Iterator<Item = &Argument> {
    parameters.iter().filter_map(|p| match p {
        Parameter::Argument(argument) => Some(&**argument),
        Parameter::Context | Parameter::State(_) | Parameter::Call(_) => None,
    })
}

fn is_marked(parameter: &PatType, mark: &str) -> bool {
    parameter
        .attrs
        .iter()
        .any(|attribute| attribute.path().is_ident(mark))
}

/// Attributes for the compiler, which stay where they are.
fn is_lint(path: &syn::Path) -> bool {
    ["allow", "expect", "warn", "deny", "cfg_attr"]
        .iter()
        .any(|lint| path.is_ident(lint))
}

fn check_flattened(
    argument: &Argument,
    arguments: usize,
    flatten: proc_macro2::Span,
    tool: &ToolOptions,
    mistakes: &mut Mistakes,
) {
    let mut refuse = |message| mistakes.add(syn::Error::new(flatten, message));
    if arguments > 1 {
        refuse(
            "`flatten` makes one struct the whole arguments object: remove the other parameters",
        );
    }
    let ArgOptions {
        description,
        rename,
        default,
        header,
        resolve,
        ..
    } = &argument.options;
    if resolve.is_some() {
        refuse(
            "`flatten` and `resolve` exclude each other: a resolved parameter is one member of the arguments",
        );
    }
    if description.is_some() || rename.is_some() || default.is_some() || header.is_some() {
        refuse("with `flatten` this parameter does not exist; describe the members of the struct");
    }
    if tool.additional_properties {
        refuse(
            "with `flatten`, additional properties are the struct's own affair: see `deny_unknown_fields`",
        );
    }
}

fn is_context(ty: &Type) -> bool {
    matches!(ungrouped(ty), Type::Reference(reference)
        if reference.mutability.is_none() && last_name(&reference.elem).is_some_and(|n| n == "CallContext"))
}

fn is_option(ty: &Type) -> bool {
    !std::ptr::eq(inside_option(ty), ty)
}

/// A type without the invisible group that a parameter `$ty:ty` of a macro puts around it.
fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped(&group.elem),
        other => other,
    }
}

pub(crate) fn inside_option(ty: &Type) -> &Type {
    if let Type::Path(path) = ungrouped(ty)
        && let Some(last) = path.path.segments.last()
        && last.ident == "Option"
        && let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(syn::GenericArgument::Type(inner)) = arguments.args.first()
    {
        inner
    } else {
        ty
    }
}

fn last_name(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        Type::Paren(inner) => last_name(&inner.elem),
        Type::Group(inner) => last_name(&inner.elem),
        _ => None,
    }
}
