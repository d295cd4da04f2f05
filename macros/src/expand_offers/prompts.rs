//! Expansion of `#[prompt]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;

use super::{PromptFn, answered, completion};
use crate::expand::{
    Carrier, bind, bind_extractors, bound_type, common, documentation, has_state, name, unbound,
    unit,
};
use crate::methods::{Object, new_carrier};

/// A prompt.
pub(crate) fn prompt(prompt: &PromptFn) -> TokenStream {
    let definition = prompt_definition(prompt);
    let traits = prompt_traits();
    let reference = quote!(__LONGSHORE_DEFINITION);
    let implementation = if has_state(prompt) {
        let name = &prompt.function.sig.ident;
        let bound_type = bound_type(prompt);
        let bound = prompt_impl(prompt, &Carrier::bound(prompt, reference));
        let bind = bind(prompt, &quote!(::longshore::__private::Prompt));
        let unbound = unbound(&quote!(PromptError));
        quote! {
            #bound_type
            #bound

            impl ::longshore::__private::Prompt for #name {
                fn definition(&self) -> &::longshore::__private::PromptDefinition {
                    &__LONGSHORE_DEFINITION
                }

                fn get(
                    &self,
                    _: ::longshore::__private::Arc<::longshore::__private::CallContext>,
                    _: ::longshore::__private::Parameters,
                ) -> ::longshore::__private::PromptFuture {
                    #unbound
                }

                #bind
            }
        }
    } else {
        prompt_impl(prompt, &Carrier::unit(prompt, reference))
    };
    unit(
        prompt,
        &quote! {
            #traits

            static __LONGSHORE_DEFINITION: ::longshore::__private::LazyLock<
                ::longshore::__private::PromptDefinition
            > = ::longshore::__private::LazyLock::new(|| #definition);

            #implementation
        },
    )
}

/// Statements that make the prompt of a method, in a function in which `self` is the object.
pub(crate) fn prompt_of_method(prompt: &PromptFn, object: &Object) -> TokenStream {
    let definition = prompt_definition(prompt);
    let traits = prompt_traits();
    let ty = quote!(::longshore::__private::PromptDefinition);
    let (carrier, carrier_type) = object.carrier(&ty);
    let implementation = prompt_impl(prompt, &carrier);
    let new_carrier = new_carrier(&definition);
    quote! {
        #traits
        #carrier_type
        #implementation
        #new_carrier
    }
}

fn prompt_traits() -> TokenStream {
    quote! {
        use ::longshore::__private::{
            AnswerDisplay as _, AnswerDynamic as _, AnswerError as _, AnswerOther as _, AnswerPlain as _,
        };
    }
}

fn prompt_impl(prompt: &PromptFn, carrier: &Carrier) -> TokenStream {
    let called = answered(prompt, &quote!(PromptError));
    let bind = bind_extractors(prompt, &quote!(::longshore::__private::Prompt));
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
    let Carrier {
        generics,
        ty,
        conditions,
        definition,
        lent,
    } = carrier;
    quote! {
        impl #generics ::longshore::__private::Prompt for #ty #conditions {
            fn definition(&self) -> &::longshore::__private::PromptDefinition {
                &#definition
            }

            #[allow(unused_variables, clippy::let_unit_value)]
            fn get(
                &self,
                __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
                __longshore_parameters: ::longshore::__private::Parameters,
            ) -> ::longshore::__private::PromptFuture {
                #lent
                ::longshore::__private::Box::pin(async move {
                    #called
                    #messages
                })
            }

            #completion
            #bind
        }
    }
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
