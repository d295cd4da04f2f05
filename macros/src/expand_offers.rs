//! `#[resource]` and `#[prompt]`, written out.

mod prompts;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned;

use crate::expand::{
    Carrier, blocking, called, common, duration, extract, extract_one, extracted, implementation,
    local, name, preset, resolve, state, unit,
};
use crate::methods::Object;
use crate::options::{Complete, Preset, PromptOptions, ResourceOptions};
use crate::parse::{Argument, Function, Placement, inside_option};
pub(crate) use prompts::{prompt, prompt_of_method};

pub(crate) type ResourceFn = Function<ResourceOptions>;
pub(crate) type PromptFn = Function<PromptOptions>;

/// A resource; if its URI has variables, a template of resources.
pub(crate) fn resource(resource: &ResourceFn) -> TokenStream {
    let definition = resource_definition(resource);
    let implementation = implementation(resource, &definition_type(), &definition, |carrier| {
        resource_impl(resource, carrier)
    });
    let name = &resource.function.sig.ident;
    // Every `Resource` is one already.
    let into = is_template(resource).then(|| {
        quote! {
            impl ::longshore::__private::IntoResource for #name {
                fn into_resource(self) -> ::longshore::__private::AnyResource {
                    ::longshore::__private::AnyResource::Template(
                        ::longshore::__private::Arc::new(self)
                    )
                }
            }
        }
    });
    unit(resource, &quote!(#implementation #into))
}

/// Statements that make the resource of a method, in a function in which `self` is the object.
pub(crate) fn resource_of_method(resource: &ResourceFn, object: &Object) -> TokenStream {
    let definition = resource_definition(resource);
    let (_, variant) = kind(resource);
    let offered = object.offered(&definition_type(), &definition, |carrier| {
        resource_impl(resource, carrier)
    });
    quote!(::longshore::__private::AnyResource::#variant({ #offered }))
}

fn definition_type() -> TokenStream {
    quote!(::longshore::__private::ResourceDefinition)
}

fn is_template(resource: &ResourceFn) -> bool {
    let uri = resource.options.uri.as_ref();
    uri.is_some_and(|uri| uri.value().contains('{'))
}

/// The trait of a resource, and its variant of `AnyResource`.
fn kind(resource: &ResourceFn) -> (TokenStream, TokenStream) {
    match is_template(resource) {
        true => (
            quote!(::longshore::__private::ResourceTemplate),
            quote!(Template),
        ),
        false => (quote!(::longshore::__private::Resource), quote!(Fixed)),
    }
}

fn resource_impl(resource: &ResourceFn, carrier: &Carrier) -> TokenStream {
    let (trait_name, _) = kind(resource);
    let called = answered(resource, &quote!(ResourceError));
    let definition = &carrier.definition;
    // The definition of a method is kept with the call, which outlives `self`.
    let kept = (resource.place == Placement::Method).then(|| {
        quote! {
            let __longshore_definition = ::longshore::__private::Arc::clone(&self.__longshore_definition);
        }
    });
    let of_call = match resource.place {
        Placement::Free => definition.clone(),
        Placement::Method => quote!(__longshore_definition),
    };
    let contents = quote_spanned! {resource.returns.span()=>
        let __longshore_success = ::longshore::__private::Success::new(__longshore_success);
        (&&&&__longshore_success).__longshore_contents(&#of_call)
    };
    let future = carrier.future(&quote!(ResourceError), &quote!(#called #contents));
    let (further, completion) = match is_template(resource) {
        true => (
            quote! {
                _: &::core::primitive::str,
                __longshore_parameters: ::longshore::__private::Parameters,
            },
            completion(
                resource,
                carrier,
                &quote!(VariableFuture),
                &quote!(ResourceError),
            ),
        ),
        false => (TokenStream::new(), TokenStream::new()),
    };
    let methods = quote! {
        fn definition(&self) -> &::longshore::__private::ResourceDefinition {
            &#definition
        }

        #[allow(unused_variables, clippy::let_unit_value)]
        fn read(
            &self,
            __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
            #further
        ) -> ::longshore::__private::ReadFuture {
            #kept
            #future
        }

        #completion
    };
    carrier.implement(resource, &trait_name, &methods)
}

// === Calls ===

/// Reads the parameters, calls the function, and takes apart what it returned.
fn answered<O>(offered: &Function<O>, error: &TokenStream) -> TokenStream {
    let returns = &offered.returns;
    let read = offered.arguments().enumerate().map(|(i, argument)| {
        let local = local(i);
        let ty = argument.sent();
        let value = parameter(argument);
        quote!(let #local: #ty = #value;)
    });
    let locals: Vec<_> = (0..offered.arguments().count()).map(local).collect();
    let called = called(offered, &locals);
    let returned = if offered.blocking.is_some() {
        blocking(&called, error)
    } else {
        quote!(#called.await)
    };
    // The span puts the error of a missing trait at the type.
    let split = quote_spanned! {returns.span()=>
        let __longshore_answer = ::longshore::__private::Answer::<
            #returns,
            ::longshore::__private::#error
        >::new();
        let __longshore_success = (&&&&&__longshore_answer).__longshore_answer(__longshore_returned)?;
    };
    let extract = extract(offered);
    let resolve = resolve(offered);
    quote! {
        #extract
        #(#read)*
        #resolve
        let __longshore_returned: #returns = #returned;
        #split
    }
}

/// The value of a parameter.
fn parameter(argument: &Argument) -> TokenStream {
    let name = argument.name();
    let inside = argument.sent_as(inside_option(&argument.ty));
    // Names are those of the attribute, also where a macro passed the type on.
    let at = |ty: &TokenStream| Span::call_site().located_at(ty.span());
    let optional = quote_spanned! {at(&inside)=>
        __longshore_parameters.parse_optional::<#inside>(#name)?
    };
    if argument.options.default.is_none() && argument.is_optional() {
        return optional;
    }
    let ty = argument.sent();
    match &argument.options.default {
        None => quote_spanned!(at(&ty)=> __longshore_parameters.parse::<#ty>(#name)?),
        Some(preset_value) => {
            let read = quote_spanned! {at(&ty)=>
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

/// The arguments of a function that suggests values, and the statements that they need before them. The names are those
/// of parameters with `#[state]`, `#[call]` or `#[arg(resolve)]`, which was checked when the function was read.
fn given<O>(offered: &Function<O>, names: &[Ident]) -> (TokenStream, Vec<TokenStream>) {
    let mut statements = TokenStream::new();
    let mut arguments = Vec::new();
    for name in names {
        let is_named = |ident: &Option<Ident>| ident.as_ref() == Some(name);
        if let Some(place) = offered.shared().position(|shared| is_named(&shared.ident)) {
            let state = state(place);
            arguments.push(quote!(&*#state));
        }
        let mut all = offered.extracted().enumerate();
        if let Some((i, wanted)) = all.find(|(_, wanted)| is_named(&wanted.ident)) {
            statements.extend(extract_one(i, &wanted.ty));
            let local = extracted(i);
            arguments.push(quote!(#local));
        }
        let mut all = offered.resolved();
        if let Some((i, argument)) = all.find(|(_, argument)| argument.ident == *name) {
            statements.extend(resolve_known(i, argument));
            let local = local(i);
            arguments.push(quote!(#local));
        }
    }
    (statements, arguments)
}

/// Statements that make the value of a resolved argument from the arguments that are known at a completion. Without a
/// valid one, or if the caller may not have it, there are no suggestions.
fn resolve_known(i: usize, argument: &Argument) -> TokenStream {
    let (local, name, ty) = (local(i), argument.name(), &argument.ty);
    let inside = inside_option(ty);
    let sent = argument.sent_as(inside);
    let known = quote_spanned! {ty.span()=>
        __longshore_request.arguments.parse_optional::<#sent>(#name)
    };
    let none = quote! {
        else {
            return ::core::result::Result::Ok(::core::default::Default::default());
        };
    };
    let read = match std::ptr::eq(inside, ty) {
        false => quote!(let #local = #known.ok().flatten();),
        true => quote! {
            let ::core::result::Result::Ok(::core::option::Option::Some(#local)) = #known #none
        },
    };
    quote_spanned! {ty.span()=>
        #read
        let #local = <#ty as ::longshore::__private::FromArgument>::from_argument(
            #local,
            &__longshore_context,
        ).await;
        let ::core::option::Option::Some(#local) =
            ::longshore::__private::unless_rejected(#local)?
        #none
    }
}

/// The methods for completion; nothing if no parameter has suggestions.
fn completion<O>(
    offered: &Function<O>,
    carrier: &Carrier,
    future: &TokenStream,
    error: &TokenStream,
) -> TokenStream {
    let completed: Vec<_> = offered
        .arguments()
        .filter_map(|a| Some((a.name(), a.options.complete.as_ref()?)))
        .collect();
    if completed.is_empty() || carrier.is_unbound {
        return TokenStream::new();
    }
    let names: Vec<_> = completed.iter().map(|(name, _)| name).collect();
    let lent = &carrier.lent;
    let by = |extract: TokenStream, found: TokenStream, span: Span| {
        quote_spanned! {span=> {
            #lent
            ::longshore::__private::Box::pin(async move {
                #extract
                ::longshore::__private::suggest_by::<::longshore::__private::#error>(#found).await
            })
        }}
    };
    let arms = completed.iter().map(|(name, complete)| {
        let call = match complete {
            Complete::Method(method, names) => {
                let (extract, given) = given(offered, names);
                by(
                    extract,
                    quote!(__longshore_this.#method(#(#given,)* __longshore_request)),
                    method.span(),
                )
            }
            Complete::Function { path, given } if given.is_empty() => quote_spanned! {path.span()=>
                ::longshore::__private::suggest::<_, _, ::longshore::__private::#error>(
                    #path,
                    __longshore_context,
                    __longshore_request,
                )
            },
            Complete::Function { path, given: names } => {
                let (extract, given) = given(offered, names);
                by(
                    extract,
                    quote!(#path(#(#given,)* __longshore_request)),
                    path.span(),
                )
            }
        };
        quote!(#name => #call,)
    });
    quote! {
        fn completes(&self, __longshore_name: &::core::primitive::str) -> ::core::primitive::bool {
            ::core::matches!(__longshore_name, #(#names)|*)
        }

        #[allow(unused_variables)]
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

fn resource_definition(resource: &ResourceFn) -> TokenStream {
    let options = &resource.options;
    let uri = &options.uri;
    let name = name(resource);
    let common = common(resource);
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
