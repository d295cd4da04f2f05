//! `#[resource]` and `#[prompt]`, written out.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use crate::expand::{documentation, local, preset, unit};
use crate::options::{CommonOptions, Preset, PromptOptions, ResourceOptions};
use crate::parse::{Argument, Function, Parameter, inside_option};

/// A resource; if its URI has variables, a template of resources.
pub(crate) fn resource(resource: &Function<ResourceOptions>) -> TokenStream {
    let name = &resource.function.sig.ident;
    let definition = resource_definition(resource);
    let called = called(resource, &quote!(ResourceError));
    let contents = quote_spanned! {resource.returns.span()=>
        let __longshore_success = ::longshore::__private::Success::new(__longshore_success);
        (&&&&__longshore_success).__longshore_contents(&__LONGSHORE_DEFINITION)
    };
    let is_template = resource
        .options
        .uri
        .as_ref()
        .is_some_and(|uri| uri.value().contains('{'));
    let implementation = if is_template {
        let completion = completion(resource, &quote!(VariableFuture), &quote!(ResourceError));
        quote! {
            impl ::longshore::__private::ResourceTemplate for #name {
                fn definition(&self) -> &::longshore::__private::ResourceDefinition {
                    &__LONGSHORE_DEFINITION
                }

                #[allow(unused_variables, clippy::let_unit_value)]
                fn read(
                    &self,
                    __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
                    _: &::core::primitive::str,
                    __longshore_parameters: ::longshore::__private::Parameters,
                ) -> ::longshore::__private::ReadFuture {
                    ::longshore::__private::Box::pin(async move {
                        #called
                        #contents
                    })
                }

                #completion
            }

            impl ::longshore::__private::IntoResource for #name {
                fn into_resource(self) -> ::longshore::__private::AnyResource {
                    ::longshore::__private::AnyResource::Template(
                        ::longshore::__private::Arc::new(self)
                    )
                }
            }
        }
    } else {
        quote! {
            impl ::longshore::__private::Resource for #name {
                fn definition(&self) -> &::longshore::__private::ResourceDefinition {
                    &__LONGSHORE_DEFINITION
                }

                #[allow(clippy::let_unit_value)]
                fn read(
                    &self,
                    __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
                ) -> ::longshore::__private::ReadFuture {
                    ::longshore::__private::Box::pin(async move {
                        #called
                        #contents
                    })
                }
            }
        }
    };
    unit(
        resource,
        &quote! {
            use ::longshore::__private::{
                AnswerDisplay as _, AnswerError as _, AnswerOther as _, AnswerPlain as _,
                ContentsBytes as _, ContentsKnown as _, ContentsOption as _, ContentsOther as _,
            };

            static __LONGSHORE_DEFINITION: ::longshore::__private::LazyLock<
                ::longshore::__private::ResourceDefinition
            > = ::longshore::__private::LazyLock::new(|| #definition);

            #implementation
        },
    )
}

/// A prompt.
pub(crate) fn prompt(prompt: &Function<PromptOptions>) -> TokenStream {
    let name = &prompt.function.sig.ident;
    let definition = prompt_definition(prompt);
    let called = called(prompt, &quote!(PromptError));
    let completion = completion(prompt, &quote!(ArgumentFuture), &quote!(PromptError));
    let messages = quote_spanned! {prompt.returns.span()=>
        ::core::result::Result::Ok(
            ::longshore::__private::IntoMessages::into_messages(__longshore_success)
        )
    };
    unit(
        prompt,
        &quote! {
            use ::longshore::__private::{
                AnswerDisplay as _, AnswerError as _, AnswerOther as _, AnswerPlain as _,
            };

            static __LONGSHORE_DEFINITION: ::longshore::__private::LazyLock<
                ::longshore::__private::PromptDefinition
            > = ::longshore::__private::LazyLock::new(|| #definition);

            impl ::longshore::__private::Prompt for #name {
                fn definition(&self) -> &::longshore::__private::PromptDefinition {
                    &__LONGSHORE_DEFINITION
                }

                #[allow(unused_variables, clippy::let_unit_value)]
                fn get(
                    &self,
                    __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
                    __longshore_parameters: ::longshore::__private::Parameters,
                ) -> ::longshore::__private::PromptFuture {
                    ::longshore::__private::Box::pin(async move {
                        #called
                        #messages
                    })
                }

                #completion
            }
        },
    )
}

// === Calls ===

/// Reads the parameters, calls the function, and takes apart what it returned.
fn called<O>(offered: &Function<O>, error: &TokenStream) -> TokenStream {
    let name = &offered.function.sig.ident;
    let returns = &offered.returns;
    let read = offered.arguments().enumerate().map(|(i, argument)| {
        let local = local(i);
        let ty = &argument.ty;
        let value = parameter(argument);
        quote!(let #local: #ty = #value;)
    });
    let locals: Vec<_> = (0..offered.arguments().count()).map(local).collect();
    let mut rest = locals.iter();
    let passed = offered.parameters.iter().map(|parameter| match parameter {
        Parameter::Context => quote!(&*__longshore_context),
        Parameter::Argument(_) => rest.next().to_token_stream(),
    });
    let called = quote!(#name(#(#passed),*));
    let returned = if offered.blocking.is_some() {
        quote! {
            ::longshore::__private::run_blocking_or::<_, ::longshore::__private::#error>(
                move || #called
            ).await?
        }
    } else {
        quote!(#called.await)
    };
    // Where a type is missing a trait, that is where it says so.
    let split = quote_spanned! {returns.span()=>
        let __longshore_answer = ::longshore::__private::Answer::<
            #returns,
            ::longshore::__private::#error
        >::new();
        let __longshore_success = (&&&&__longshore_answer).__longshore_answer(__longshore_returned)?;
    };
    quote! {
        #(#read)*
        let __longshore_returned: #returns = #returned;
        #split
    }
}

/// The value of a parameter.
fn parameter(argument: &Argument) -> TokenStream {
    let name = argument.name();
    let inside = inside_option(&argument.ty);
    let optional = quote_spanned! {inside.span()=>
        __longshore_parameters.parse_optional::<#inside>(#name)?
    };
    if argument.options.default.is_none() && argument.is_optional() {
        return optional;
    }
    let ty = &argument.ty;
    match &argument.options.default {
        None => quote_spanned!(ty.span()=> __longshore_parameters.parse::<#ty>(#name)?),
        Some(preset_value) => {
            let read = quote_spanned! {ty.span()=>
                __longshore_parameters.parse_optional::<#ty>(#name)?
            };
            let preset = match preset_value {
                Preset::OfType => quote!(::core::default::Default::default()),
                Preset::Value(value) => preset(value),
            };
            quote! {
                match #read {
                    ::core::option::Option::Some(__longshore_value) => __longshore_value,
                    ::core::option::Option::None => #preset,
                }
            }
        }
    }
}

/// Which parameters have suggestions, and where they come from.
fn completion<O>(offered: &Function<O>, future: &TokenStream, error: &TokenStream) -> TokenStream {
    let completed: Vec<_> = offered
        .arguments()
        .filter_map(|a| Some((a.name(), a.options.complete.as_ref()?)))
        .collect();
    if completed.is_empty() {
        return TokenStream::new();
    }
    let names: Vec<_> = completed.iter().map(|(name, _)| name).collect();
    let arms = completed.iter().map(|(name, path)| {
        let call = quote_spanned! {path.span()=>
            ::longshore::__private::suggest::<_, _, ::longshore::__private::#error>(
                #path,
                __longshore_context,
                __longshore_request,
            )
        };
        quote!(#name => #call,)
    });
    quote! {
        fn completes(&self, __longshore_name: &::core::primitive::str) -> ::core::primitive::bool {
            ::core::matches!(__longshore_name, #(#names)|*)
        }

        fn complete(
            &self,
            __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
            __longshore_request: ::longshore::__private::CompletionRequest,
        ) -> ::longshore::__private::#future {
            match &*__longshore_request.argument {
                #(#arms)*
                _ => ::longshore::__private::no_suggestions(),
            }
        }
    }
}

// === Definitions ===

fn resource_definition(resource: &Function<ResourceOptions>) -> TokenStream {
    let options = &resource.options;
    let uri = &options.uri;
    let name = name(resource, &options.common);
    let common = common(resource, &options.common);
    let mime_type = options.mime_type.as_ref().map(|t| quote!(.mime_type(#t)));
    let ttl = options.ttl.map(|ttl| {
        let ttl = duration(ttl);
        quote!(.ttl(#ttl))
    });
    let scope = options
        .public
        .then(|| quote!(.cache_scope(::longshore::__private::CacheScope::Public)));
    quote! {
        ::longshore::__private::ResourceDefinition::new(#uri, #name)
            #common
            #mime_type
            #ttl
            #scope
    }
}

fn prompt_definition(prompt: &Function<PromptOptions>) -> TokenStream {
    let options = &prompt.options;
    let name = name(prompt, &options.common);
    let common = common(prompt, &options.common);
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

fn name<O>(offered: &Function<O>, options: &CommonOptions) -> String {
    match &options.name {
        Some(name) => name.value(),
        None => offered.function.sig.ident.unraw().to_string(),
    }
}

fn common<O>(offered: &Function<O>, options: &CommonOptions) -> TokenStream {
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

fn duration(duration: std::time::Duration) -> TokenStream {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    quote!(::longshore::__private::Duration::from_millis(#ms))
}
