//! The `#[tool]`, `#[resource]` and `#[prompt]` attributes.
//!
//! Documentation and examples live where `longshore` re-exports them, so that they compile.

use proc_macro::TokenStream;
use quote::quote;

use parse::{Function, Options};

mod expand;
mod expand_offers;
mod methods;
mod options;
mod parse;

/// Makes a tool of a function. See `longshore::tool`.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    written(options, item, expand::tool)
}

/// Makes tools, resources and prompts of an object's methods. See `longshore::tools`.
#[proc_macro_attribute]
pub fn tools(options: TokenStream, item: TokenStream) -> TokenStream {
    methods::tools(&options.into(), &item.into()).into()
}

/// Makes a resource of a function. See `longshore::resource`.
#[proc_macro_attribute]
pub fn resource(options: TokenStream, item: TokenStream) -> TokenStream {
    written(options, item, expand_offers::resource)
}

/// Makes a prompt of a function. See `longshore::prompt`.
#[proc_macro_attribute]
pub fn prompt(options: TokenStream, item: TokenStream) -> TokenStream {
    written(options, item, expand_offers::prompt)
}

fn written<O: Options>(
    options: TokenStream,
    item: TokenStream,
    expand: impl FnOnce(&Function<O>) -> proc_macro2::TokenStream,
) -> TokenStream {
    match parse::read(options.into(), item.into()) {
        Ok(function) => expand(&function).into(),
        // The function stays as a plain one, so that mistakes in its body are reported in the same run.
        Err((mistakes, function)) => {
            let mistakes = mistakes.into_compile_error();
            quote!(#mistakes #[allow(unused)] #function).into()
        }
    }
}
