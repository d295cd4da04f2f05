//! The `#[tool]` attribute.
//!
//! Documentation and examples live where `longshore` re-exports it, so that they compile.

use proc_macro::TokenStream;
use quote::quote;

mod expand;
mod options;
mod parse;

/// Makes a tool of a function. See `longshore::tool`.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    match parse::tool(options.into(), item.into()) {
        Ok(tool) => expand::tool(&tool).into(),
        // The function goes on as a plain one, so that mistakes in its body are reported in the same run.
        Err((mistakes, function)) => {
            let mistakes = mistakes.into_compile_error();
            quote!(#mistakes #[allow(unused)] #function).into()
        }
    }
}
