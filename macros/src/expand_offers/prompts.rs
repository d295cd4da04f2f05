//! Expansion of `#[prompt]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;

use super::{PromptFn, answered, completion};
use crate::expand::{Carrier, common, documentation, implementation, name, unit};
use crate::methods::Object;

/// A prompt.
pub(crate) fn prompt(prompt: &PromptFn) -> TokenStream {
    let definition = prompt_definition(prompt);
    let implementation = implementation(prompt, &definition_type(), &definition, |carrier| {
        prompt_impl(prompt, carrier)
    });
    unit(prompt, &implementation)
}

/// Statements that make the prompt of a method, in a function in which `self` is the object.
pub(crate) fn prompt_of_method(prompt: &PromptFn, object: &Object) -> TokenStream {
    let definition = prompt_definition(prompt);
    object.offered(&definition_type(), &definition, |carrier| {
        prompt_impl(prompt, carrier)
    })
}

fn definition_type() -> TokenStream {
    quote!(::longshore::__private::PromptDefinition)
}

fn prompt_impl(prompt: &PromptFn, carrier: &Carrier) -> TokenStream {
    let called = answered(prompt, &quote!(PromptError));
    let completion = completion(
        prompt,
        carrier,
        &quote!(ArgumentFuture),
        &quote!(PromptError),
    );
    let messages = quote_spanned! {prompt.returns.span()=>
        ::core::result::Result::Ok(
            ::longshore::__private::IntoMessages::into_messages(__longshore_success)
        )
    };
    let future = carrier.future(&quote!(PromptError), &quote!(#called #messages));
    let definition = &carrier.definition;
    let methods = quote! {
        fn definition(&self) -> &::longshore::__private::PromptDefinition {
            &#definition
        }

        #[allow(unused_variables, clippy::let_unit_value)]
        fn get(
            &self,
            __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
            __longshore_parameters: ::longshore::__private::Parameters,
        ) -> ::longshore::__private::PromptFuture {
            #future
        }

        #completion
    };
    carrier.implement(prompt, &quote!(::longshore::__private::Prompt), &methods)
}

fn prompt_definition(prompt: &PromptFn) -> TokenStream {
    let name = name(prompt);
    let common = common(prompt);
    let arguments = prompt.arguments().map(|argument| {
        let name = argument.name();
        let kind = if argument.is_optional() {
            quote!(optional)
        } else {
            quote!(required)
        };
        let description = match &argument.options.description {
            Some(text) => Some(text.to_token_stream()),
            None => documentation(&argument.attributes),
        };
        let description = description.map(|text| quote!(.description(#text)));
        let title = argument.options.title.as_ref();
        let title = title.map(|title| quote!(.title(#title)));
        quote! {
            .argument(::longshore::__private::PromptArgument::#kind(#name) #title #description)
        }
    });
    quote! {
        ::longshore::__private::PromptDefinition::new(#name)
            #common
            #(#arguments)*
    }
}
