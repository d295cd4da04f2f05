//! A function and its options become a plain description, or all the mistakes in them.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Ident, ItemFn, Pat, PatType, Receiver, ReturnType, Signature, Type};

use crate::options::{
    ArgOptions, Complete, Mistakes, Preset, PromptOptions, ResourceOptions, ToolOptions,
    fault_of_name,
};

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
    /// `#[state] name: &T`
    State(Box<StateParameter>),
    /// `#[call] name: T`
    Call(Box<CallParameter>),
    Argument(Box<Argument>),
}

/// A parameter that the application fills.
pub(crate) struct StateParameter {
    /// `None` for a pattern.
    pub(crate) ident: Option<Ident>,
    /// The referenced type.
    pub(crate) ty: Type,
}

/// A parameter that is taken from the call.
pub(crate) struct CallParameter {
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
    pub(crate) fn shared(&self) -> impl Iterator<Item = &StateParameter> {
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
    pub(crate) fn extracted(&self) -> impl Iterator<Item = &CallParameter> {
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

    fn blocking(&self) -> Option<Span>;

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

    fn blocking(&self) -> Option<Span> {
        self.blocking
    }

    fn check_name(&self, name: &Ident, mistakes: &mut Mistakes) {
        if self.name.is_none()
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

    fn blocking(&self) -> Option<Span> {
        self.common.blocking
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

    fn blocking(&self) -> Option<Span> {
        self.common.blocking
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
    check_blocking(kind, &function.sig, options.blocking(), &mut mistakes);
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
        blocking: options.blocking(),
        options,
        function,
        documentation,
        conditions,
        parameters,
        returns,
        place,
    })
}

/// Checks that functions which suggest values are given state that there is.
fn check_completion(parameters: &[Parameter], place: Placement, mistakes: &mut Mistakes) {
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

/// Checks the parameters that a function which suggests values is given.
fn check_given(
    given: &[Ident],
    parameters: &[Parameter],
    place: Placement,
    mistakes: &mut Mistakes,
) {
    for name in given {
        let is_known = parameters.iter().any(|p| match p {
            Parameter::State(shared) => shared.ident.as_ref() == Some(name),
            Parameter::Call(extracted) => extracted.ident.as_ref() == Some(name),
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

/// The parameters of a resource are the variables of its URI, no more and no less.
fn check_variables(uri: &syn::LitStr, parameters: &[Parameter], mistakes: &mut Mistakes) {
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

/// The variables of a template, each with true if it may be left out. The template is validated when the resource is
/// registered.
fn variables(template: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for expression in template.split('{').skip(1) {
        let expression = expression.split('}').next().unwrap_or_default();
        let names = expression.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']);
        let optional = expression.starts_with(['#', '.', '/', ';', '?', '&']);
        found.extend(names.split(',').map(|name| (name, optional)));
    }
    found
}

fn arguments(parameters: &[Parameter]) -> impl Iterator<Item = &Argument> {
    parameters.iter().filter_map(|p| match p {
        Parameter::Argument(argument) => Some(&**argument),
        Parameter::Context | Parameter::State(_) | Parameter::Call(_) => None,
    })
}

fn check_signature(kind: Kind, signature: &Signature, mistakes: &mut Mistakes) {
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

fn read_parameters(
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

fn is_marked(parameter: &PatType, mark: &str) -> bool {
    parameter
        .attrs
        .iter()
        .any(|attribute| attribute.path().is_ident(mark))
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

/// Reads a parameter with `#[call]`.
fn read_extracted(parameter: &mut PatType, mistakes: &mut Mistakes) -> Option<CallParameter> {
    let others = "this parameter is taken from the call, not from its arguments: it accepts no other attribute";
    take_mark(parameter, "call", others, mistakes);
    let ident = match &*parameter.pat {
        Pat::Ident(pattern) => Some(pattern.ident.clone()),
        _ => None,
    };
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
            return Some(CallParameter {
                ident,
                ty: ty.clone(),
            });
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
) -> Option<StateParameter> {
    let others =
        "state comes from the application, not from the caller: it accepts no other attribute";
    take_mark(parameter, "state", others, mistakes);
    if place == Placement::Method {
        mistakes.at(&*parameter, "a method has its state in `self`");
        return None;
    }
    let ident = match &*parameter.pat {
        Pat::Ident(pattern) => Some(pattern.ident.clone()),
        _ => None,
    };
    match &*parameter.ty {
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
                return Some(StateParameter {
                    ident,
                    ty: elem.clone(),
                });
            }
        },
        other => {
            let written = other.to_token_stream().to_string().replace(' ', "");
            mistakes.at(other, format!("state is lent to the call: write `&{written}`"));
        }
    }
    None
}

/// Attributes for the compiler, which stay where they are.
fn is_lint(path: &syn::Path) -> bool {
    ["allow", "expect", "warn", "deny", "cfg_attr"]
        .iter()
        .any(|lint| path.is_ident(lint))
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
            mistakes.at(
                other,
                format!(
                    "the parameter of a {} needs a name, which callers use",
                    kind.name()
                ),
            );
            None
        }
    }
}

fn check_together(parameters: &[Parameter], mistakes: &mut Mistakes) {
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
    matches!(ty, Type::Reference(reference)
        if reference.mutability.is_none() && last_name(&reference.elem).is_some_and(|n| n == "CallContext"))
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

fn is_option(ty: &Type) -> bool {
    !std::ptr::eq(inside_option(ty), ty)
}

pub(crate) fn inside_option(ty: &Type) -> &Type {
    if let Type::Path(path) = ty
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

fn returned(kind: Kind, signature: &Signature, mistakes: &mut Mistakes) -> Type {
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
