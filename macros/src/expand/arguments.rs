//! The type of a tool's arguments.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, Ident, Pat};

use super::{ToolFn, name_of_default};
use crate::options::{Preset, string};
use crate::parse::Argument;

/// Collects the variables that a pattern binds. A name with a capital letter is that of a type.
pub(super) fn variables<'a>(pattern: &'a Pat, names: &mut Vec<&'a Ident>) {
    match pattern {
        Pat::Ident(variable) => {
            if !variable
                .ident
                .unraw()
                .to_string()
                .starts_with(char::is_uppercase)
            {
                names.push(&variable.ident);
            }
            if let Some((_, inner)) = &variable.subpat {
                variables(inner, names);
            }
        }
        Pat::Paren(inner) => variables(&inner.pat, names),
        Pat::Reference(inner) => variables(&inner.pat, names),
        Pat::Type(inner) => variables(&inner.pat, names),
        Pat::Slice(inner) => inner.elems.iter().for_each(|p| variables(p, names)),
        Pat::Tuple(inner) => inner.elems.iter().for_each(|p| variables(p, names)),
        Pat::TupleStruct(inner) => inner.elems.iter().for_each(|p| variables(p, names)),
        Pat::Struct(inner) => inner.fields.iter().for_each(|f| variables(&f.pat, names)),
        _ => {}
    }
}

/// The struct that `arguments` are read as, unless one parameter brings its own.
pub(super) fn arguments(tool: &ToolFn) -> TokenStream {
    if tool.flattened().is_some() {
        return TokenStream::new();
    }
    let fields = tool.arguments().enumerate().map(|(i, a)| field(i, a));
    let defaults = tool
        .arguments()
        .enumerate()
        .filter_map(|(i, a)| default(i, a));
    let hide_tools = hide_from_derives(tool);
    let deny_unknown_fields =
        (!tool.options.additional_properties).then(|| quote!(deny_unknown_fields,));
    quote! {
        #[derive(
            ::longshore::__private::serde::Deserialize,
            ::longshore::__private::schemars::JsonSchema
        )]
        #[serde(#deny_unknown_fields crate = "::longshore::__private::serde")]
        #[schemars(crate = "::longshore::__private::schemars")]
        struct __LongshoreArguments {
            #(#fields,)*
        }
        #(#defaults)*
        #hide_tools
    }
}

/// Names of the variables in what `schemars` derives for a struct.
const DERIVED_VARIABLES: &[&str] = &["d", "generator", "map", "object", "schema", "value"];

/// An unused function for each variable of the derived code, which hides a tool with that name as `hide_tools` of functions
/// does.
fn hide_from_derives(tool: &ToolFn) -> TokenStream {
    let used: Vec<_> = tool.arguments().flat_map(Argument::names_used).collect();
    let own = &tool.function.sig.ident;
    let names = DERIVED_VARIABLES
        .iter()
        .filter(|name| own != *name && !used.iter().any(|used| used == *name))
        .map(|name| Ident::new(name, Span::call_site()));
    quote!(#(#[allow(dead_code)] fn #names() {})*)
}

pub(super) fn field(i: usize, argument: &Argument) -> TokenStream {
    let Argument {
        ident,
        options,
        attributes,
        ..
    } = argument;
    let ty = argument.sent();
    let description = options
        .description
        .as_ref()
        .map(|text| quote!(#[schemars(description = #text)]));
    let rename = options
        .rename
        .as_ref()
        .map(|name| quote!(#[serde(rename = #name)]));
    let default = options.default.as_ref().map(|_| {
        let function = name_of_default(i).to_string();
        quote!(#[serde(default = #function)])
    });
    let header = options
        .header
        .as_ref()
        .map(|header| quote!(#[schemars(extend("x-mcp-header" = #header))]));
    quote!(#(#attributes)* #description #rename #default #header #ident: #ty)
}

/// The value of a preset. A string literal converts into a `String`.
pub(crate) fn preset(value: &Expr) -> TokenStream {
    match string(value) {
        Some(text) => quote_spanned!(text.span()=> ::core::convert::Into::into(#text)),
        None => value.to_token_stream(),
    }
}

fn default(i: usize, argument: &Argument) -> Option<TokenStream> {
    let name = name_of_default(i);
    let ty = argument.sent();
    let value = match argument.options.default.as_ref()? {
        // The span puts the error of a missing `Default` at the type.
        Preset::OfType => quote_spanned!(argument.ty.span()=> ::core::default::Default::default()),
        Preset::Value(value) => preset(value),
    };
    Some(quote! {
        fn #name() -> #ty {
            #value
        }
    })
}
