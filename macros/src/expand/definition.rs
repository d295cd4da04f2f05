//! Options and texts that tools, resources and prompts have in common.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::Attribute;
use syn::ext::IdentExt;

use crate::options::string;
use crate::parse::{Function, Options};

/// The name that callers know it by, without the prefix of its object.
pub(crate) fn name<O: Options>(offered: &Function<O>) -> String {
    match &offered.options.common().name {
        Some(name) => name.value(),
        None => offered.function.sig.ident.unraw().to_string(),
    }
}

/// The calls that set the options that all kinds have.
pub(crate) fn common<O: Options>(offered: &Function<O>) -> TokenStream {
    let options = offered.options.common();
    let description = match &options.description {
        Some(text) => Some(text.to_token_stream()),
        None => documentation(&offered.documentation),
    };
    let description = description.map(|text| quote!(.description(#text)));
    let title = options.title.as_ref().map(|title| quote!(.title(#title)));
    let timeout = options.timeout.map(|timeout| {
        let timeout = duration(timeout);
        quote!(.timeout(#timeout))
    });
    let icons = &options.icons;
    let meta = options.meta.iter().map(|entry| {
        let (key, value) = (&entry.key, &entry.value);
        quote!(.meta(#key, ::longshore::__private::serde_json::json!(#value)))
    });
    quote! {
        #description
        #title
        #timeout
        #(.icon(::longshore::__private::Icon::new(#icons)))*
        #(#meta)*
    }
}

pub(crate) fn duration(duration: std::time::Duration) -> TokenStream {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    quote!(::longshore::__private::Duration::from_millis(#ms))
}

/// The text of a doc comment, without the space that follows `///`.
pub(crate) fn documentation(attributes: &[Attribute]) -> Option<TokenStream> {
    let mut lines = Vec::new();
    for attribute in attributes {
        // `#[doc(hidden)]` and its like are no text.
        let Ok(doc) = attribute.meta.require_name_value() else {
            continue;
        };
        if !lines.is_empty() {
            lines.push(quote!("\n"));
        }
        lines.push(match string(&doc.value) {
            Some(line) => {
                let line = line.value();
                line.strip_prefix(' ').unwrap_or(&line).to_token_stream()
            }
            None => doc.value.to_token_stream(),
        });
    }
    (!lines.is_empty())
        .then(|| quote!(<::core::primitive::str>::trim(::core::concat!(#(#lines),*))))
}
