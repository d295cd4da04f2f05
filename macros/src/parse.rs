//! A function and its options become a plain description, or all the mistakes in them.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Attribute, FnArg, Ident, ItemFn, Pat, PatType, ReturnType, Signature, Type};

use crate::options::{ArgOptions, Mistakes, ToolOptions, fault_of_name};

/// A function that is to become a tool.
pub(crate) struct ToolFn {
    pub(crate) options: ToolOptions,
    /// The function, without what only the attribute understands.
    pub(crate) function: ItemFn,
    /// Its doc comment, for the model and for rustdoc.
    pub(crate) documentation: Vec<Attribute>,
    /// `#[cfg]`, which everything that is written must repeat.
    pub(crate) conditions: Vec<Attribute>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Type,
}

/// One parameter, in the order of the function's list.
pub(crate) enum Parameter {
    /// `&CallContext`
    Context,
    Argument(Box<Argument>),
}

/// A parameter that the caller fills.
pub(crate) struct Argument {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) options: ArgOptions,
    /// Doc comments, and the attributes that the derives of serde and schemars understand.
    pub(crate) attributes: Vec<Attribute>,
}

impl ToolFn {
    /// The parameter that is the whole arguments object.
    pub(crate) fn flattened(&self) -> Option<&Argument> {
        self.arguments().find(|a| a.options.flatten.is_some())
    }

    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.parameters.iter().filter_map(|p| match p {
            Parameter::Argument(argument) => Some(&**argument),
            Parameter::Context => None,
        })
    }
}

impl Argument {
    /// What the caller calls it.
    pub(crate) fn name(&self) -> String {
        match &self.options.rename {
            Some(name) => name.value(),
            None => self.ident.unraw().to_string(),
        }
    }
}

/// Reads the attribute and what it stands on.
///
/// Mistakes come with the function as the compiler would like to see it.
pub(crate) fn tool(
    options: TokenStream,
    item: TokenStream,
) -> Result<ToolFn, (syn::Error, TokenStream)> {
    let mut function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(mistake) => {
            let is_function = item.clone().into_iter().any(|t| t.to_string() == "fn");
            let mistake = if is_function {
                mistake
            } else {
                syn::Error::new_spanned(&item, "`#[tool]` goes on a function: `async fn name(...)`")
            };
            return Err((mistake, item));
        }
    };

    let mut mistakes = Mistakes::default();
    let options = ToolOptions::read(options, &mut mistakes);
    check_signature(&function.sig, &options, &mut mistakes);
    let parameters = read_parameters(&mut function.sig, &mut mistakes);
    check_together(&parameters, &options, &mut mistakes);
    let returns = returned(&function.sig, &mut mistakes);

    if let Some(mistakes) = mistakes.into_error() {
        return Err((mistakes, function.into_token_stream()));
    }
    let is = |attribute: &Attribute, names: &[&str]| {
        names.iter().any(|name| attribute.path().is_ident(name))
    };
    let (documentation, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut function.attrs)
        .into_iter()
        .partition(|attribute| is(attribute, &["doc"]));
    let conditions = rest.iter().filter(|a| is(a, &["cfg"])).cloned().collect();
    function.attrs = rest;
    Ok(ToolFn {
        options,
        function,
        documentation,
        conditions,
        parameters,
        returns,
    })
}

fn check_signature(signature: &Signature, options: &ToolOptions, mistakes: &mut Mistakes) {
    match (signature.asyncness, options.blocking) {
        (None, None) => mistakes.at(
            signature.fn_token,
            "a tool is an `async fn`; if it blocks, say `#[tool(blocking)]`, and it runs on a thread \
             of its own",
        ),
        (Some(_), Some(blocking)) => mistakes.add(syn::Error::new(
            blocking,
            "`blocking` goes on a plain `fn`: drop `async`, or drop `blocking`",
        )),
        _ => {}
    }
    if options.name.is_none()
        && let Some(fault) = fault_of_name(&signature.ident.unraw().to_string())
    {
        mistakes.at(&signature.ident, fault);
    }
    if let Some(token) = signature.constness {
        mistakes.at(token, "a tool cannot be a `const fn`");
    }
    if let Some(token) = signature.unsafety {
        mistakes.at(token, "a tool cannot be an `unsafe fn`: anyone may call it");
    }
    if let Some(abi) = &signature.abi {
        mistakes.at(abi, "a tool cannot be an `extern fn`");
    }
    if !signature.generics.params.is_empty() {
        mistakes.at(
            &signature.generics,
            "a tool cannot be generic: its schema is made from its types",
        );
    }
    if let Some(clause) = &signature.generics.where_clause {
        mistakes.at(clause, "a tool cannot have a `where` clause");
    }
    if let Some(variadic) = &signature.variadic {
        mistakes.at(
            variadic,
            "a tool cannot have a variable number of parameters",
        );
    }
}

fn read_parameters(signature: &mut Signature, mistakes: &mut Mistakes) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    let mut has_context = false;
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => mistakes.at(
                &*receiver,
                "`#[tool]` goes on a free function; for a tool with state, see `longshore::tool_fn`",
            ),
            FnArg::Typed(parameter) if is_context(&parameter.ty) => {
                if std::mem::replace(&mut has_context, true) {
                    mistakes.at(&*parameter, "there is one `&CallContext` for each call");
                }
                for attribute in std::mem::take(&mut parameter.attrs) {
                    if attribute.path().is_ident("arg") {
                        mistakes.at(attribute, "the context is no argument of the caller's");
                    } else {
                        parameter.attrs.push(attribute);
                    }
                }
                parameters.push(Parameter::Context);
            }
            FnArg::Typed(parameter) => {
                if let Some(argument) = read_argument(parameter, mistakes) {
                    parameters.push(Parameter::Argument(Box::new(argument)));
                }
            }
        }
    }
    parameters
}

fn read_argument(parameter: &mut PatType, mistakes: &mut Mistakes) -> Option<Argument> {
    let mut options = ArgOptions::default();
    let mut attributes = Vec::new();
    for attribute in std::mem::take(&mut parameter.attrs) {
        let path = attribute.path();
        if path.is_ident("arg") {
            options.read(&attribute, mistakes);
        } else if ["doc", "serde", "schemars"]
            .iter()
            .any(|known| path.is_ident(known))
        {
            attributes.push(attribute);
        } else if ["allow", "expect", "warn", "deny", "cfg_attr"]
            .iter()
            .any(|lint| path.is_ident(lint))
        {
            parameter.attrs.push(attribute);
        } else {
            mistakes.at(
                path,
                "a parameter takes doc comments, `#[arg(...)]`, `#[serde(...)]` and `#[schemars(...)]`",
            );
        }
    }
    check_type(&parameter.ty, mistakes);
    if let Some(header) = &options.header {
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
                "the parameter of a tool needs a name, which is what the caller knows it by",
            );
            None
        }
    }
}

fn check_together(parameters: &[Parameter], options: &ToolOptions, mistakes: &mut Mistakes) {
    let arguments: Vec<_> = parameters
        .iter()
        .filter_map(|p| match p {
            Parameter::Argument(argument) => Some(argument),
            Parameter::Context => None,
        })
        .collect();
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
        if let Some(flatten) = argument.options.flatten {
            check_flattened(argument, arguments.len(), flatten, options, mistakes);
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
            "`flatten` makes one struct the whole arguments object: there can be no other parameter",
        );
    }
    let ArgOptions {
        description,
        rename,
        default,
        header,
        flatten: _,
    } = &argument.options;
    if description.is_some() || rename.is_some() || default.is_some() || header.is_some() {
        refuse(
            "with `flatten` there is no parameter of this name; describe the struct's own members",
        );
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

fn check_type(ty: &Type, mistakes: &mut Mistakes) {
    match ty {
        Type::Reference(reference) => {
            let instead = match &*reference.elem {
                Type::Path(_) => match last_name(&reference.elem) {
                    Some(name) if name == "str" => "`String`".to_owned(),
                    Some(name) if name == "CallContext" => "`&CallContext`".to_owned(),
                    Some(name) => format!("`{name}`"),
                    None => "an owned type".to_owned(),
                },
                Type::Slice(_) => "`Vec<...>`".to_owned(),
                _ => "an owned type".to_owned(),
            };
            mistakes.at(ty, format!("a tool owns its arguments: use {instead} here"));
        }
        Type::ImplTrait(_) => mistakes.at(
            ty,
            "a tool cannot take an `impl Trait`: its schema is made from its types",
        ),
        Type::Infer(_) => mistakes.at(ty, "the type of an argument has to be spelt out"),
        _ => {}
    }
}

/// Refuses what is certainly not an integer, a string or a boolean. Behind an alias it is found out when the
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

fn inside_option(ty: &Type) -> &Type {
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

fn returned(signature: &Signature, mistakes: &mut Mistakes) -> Type {
    let ty = match &signature.output {
        ReturnType::Default => return syn::parse_quote!(()),
        ReturnType::Type(_, ty) => &**ty,
    };
    match ty {
        Type::ImplTrait(_) => {
            mistakes.at(ty, "a tool cannot return an `impl Trait`: name the type");
        }
        Type::Reference(reference)
            if reference
                .lifetime
                .as_ref()
                .is_none_or(|l| l.ident != "static") =>
        {
            mistakes.at(
                ty,
                "a tool owns what it returns: use `String`, or `&'static str`",
            );
        }
        _ => {}
    }
    ty.clone()
}
