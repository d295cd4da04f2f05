//! State that a function takes, and values of the call.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, Type};

use super::{extracted, extracts, has_state, local, state};
use crate::methods::carrier_of;
use crate::parse::{Function, Parameter, Placement};

/// The type of a function with its state; nothing without state.
pub(crate) fn bound_type<O>(offered: &Function<O>) -> TokenStream {
    let states = (0..offered.shared().count()).map(state);
    let types = offered.shared().map(|shared| &shared.ty);
    quote! {
        struct __LongshoreBound {
            #(#states: ::longshore::__private::Arc<#types>,)*
        }
    }
}

/// The method that binds a function to its state, and to what its extractors need; `kind` is the trait.
pub(crate) fn bind<O>(offered: &Function<O>, kind: &TokenStream) -> TokenStream {
    let states = (0..offered.shared().count()).map(state);
    let values = offered.shared().map(|shared| {
        let ty = &shared.ty;
        quote_spanned!(ty.span()=> __longshore_provided.get::<#ty>()?)
    });
    let bound = match (has_state(offered), offered.place) {
        (true, _) => quote!(__LongshoreBound { #(#states: #values,)* }),
        (false, Placement::Free) => quote!(*self),
        (false, Placement::Method) => carrier_of(
            &quote!(self.__longshore_this),
            &quote!(::longshore::__private::Arc::clone(
                &self.__longshore_definition
            )),
        ),
    };
    let plain = match has_state(offered) {
        true => quote! {
            ::core::option::Option::Some(::longshore::__private::Arc::new(__longshore_bound))
        },
        false => quote!(::core::option::Option::None),
    };
    let extracted = offered.extracted().map(|wanted| {
        let ty = &wanted.ty;
        quote_spanned! {ty.span()=>
            <#ty as ::longshore::__private::FromCall>::requires(&mut __longshore_required);
        }
    });
    let resolved = offered.resolved().map(|(_, argument)| {
        let ty = &argument.ty;
        quote_spanned! {ty.span()=>
            <#ty as ::longshore::__private::FromArgument>::requires(&mut __longshore_required);
        }
    });
    let requires = extracted.chain(resolved);
    let object = (offered.place == Placement::Method).then(|| {
        quote! {
            __longshore_required.offer(
                ::longshore::__private::Arc::clone(&self.__longshore_this)
            );
        }
    });
    let with_required = extracts(offered).then(|| {
        quote! {
            let mut __longshore_required =
                ::longshore::__private::RequiredState::new(__longshore_provided);
            #object
            #(#requires)*
            if let ::core::option::Option::Some(__longshore_state) =
                __longshore_required.finish()?
            {
                return ::core::result::Result::Ok(::core::option::Option::Some(
                    ::longshore::__private::Arc::new(::longshore::__private::WithState::new(
                        __longshore_bound,
                        __longshore_state,
                    ))
                ));
            }
        }
    });
    quote! {
        fn bind(
            &self,
            __longshore_provided: &::longshore::__private::Provided,
        ) -> ::core::result::Result<
            ::core::option::Option<::longshore::__private::Arc<dyn #kind>>,
            ::longshore::__private::Unprovided,
        > {
            let __longshore_bound = #bound;
            #with_required
            ::core::result::Result::Ok(#plain)
        }
    }
}

/// The future of a call that comes before [`bind`].
pub(crate) fn unbound(error: &TokenStream) -> TokenStream {
    quote! {
        ::longshore::__private::Box::pin(::core::future::ready(::core::result::Result::Err(
            ::longshore::__private::#error::internal(::longshore::__private::UNBOUND)
        )))
    }
}

/// The statement for one parameter.
pub(crate) fn extract_one(i: usize, ty: &Type) -> TokenStream {
    let local = extracted(i);
    // The span puts the error of a missing trait at the type.
    quote_spanned! {ty.span()=>
        let #local = <#ty as ::longshore::__private::FromCall>::from_call(
            &__longshore_context
        ).await?;
    }
}

/// Statements that make values from the arguments with `resolve`, in an `async` block after [`extract`].
pub(crate) fn resolve<O>(offered: &Function<O>) -> TokenStream {
    let all = offered.resolved().map(|(i, argument)| {
        let (local, ty) = (local(i), &argument.ty);
        quote_spanned! {ty.span()=>
            let #local = <#ty as ::longshore::__private::FromArgument>::from_argument(
                #local,
                &__longshore_context,
            ).await?;
        }
    });
    all.collect()
}

/// The call of a function or a method, with these locals for its arguments.
pub(crate) fn called<O>(offered: &Function<O>, locals: &[Ident]) -> TokenStream {
    let name = &offered.function.sig.ident;
    let (mut rest, mut states) = (locals.iter(), (0..).map(state));
    let mut calls = (0..).map(extracted);
    let passed = offered.parameters.iter().map(|parameter| match parameter {
        Parameter::Context => quote!(&*__longshore_context),
        Parameter::State(_) => {
            let state = states.next();
            quote!(&*#state)
        }
        Parameter::Call(_) => calls.next().to_token_stream(),
        Parameter::Argument(_) => rest.next().to_token_stream(),
    });
    match offered.place {
        Placement::Free => quote!(#name(#(#passed),*)),
        Placement::Method => quote!(__longshore_this.#name(#(#passed),*)),
    }
}
