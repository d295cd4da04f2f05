//! What carries a function to the server: its state, and values of the call.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, Type};

use super::{extracted, extracts, has_state, local, state};
use crate::methods::carrier_of;
use crate::parse::{Function, Parameter, Placement};

/// The type that represents a function or a method in the catalog.
pub(crate) struct Carrier {
    /// `<S: Store>`, for objects with parameters.
    pub(crate) generics: TokenStream,
    pub(crate) ty: TokenStream,
    pub(crate) conditions: TokenStream,
    /// Expression for the reference to its definition, within its methods.
    pub(crate) definition: TokenStream,
    /// Statements before a call's future. The future takes what they bind.
    pub(crate) lent: TokenStream,
    /// True if it has to be bound before it is called.
    pub(crate) is_unbound: bool,
}

impl Carrier {
    /// The unit struct of the function's name.
    fn unit<O>(offered: &Function<O>) -> Self {
        Self {
            generics: TokenStream::new(),
            ty: offered.function.sig.ident.to_token_stream(),
            conditions: TokenStream::new(),
            definition: quote!(__LONGSHORE_DEFINITION),
            lent: TokenStream::new(),
            is_unbound: has_state(offered),
        }
    }

    /// A function with its state.
    fn bound<O>(offered: &Function<O>) -> Self {
        let states = (0..offered.shared().count()).map(state);
        Self {
            ty: quote!(__LongshoreBound),
            lent: quote! {
                #(let #states = ::longshore::__private::Arc::clone(&self.#states);)*
            },
            is_unbound: false,
            ..Self::unit(offered)
        }
    }

    /// The future of a call, whose errors have the type `error`.
    pub(crate) fn future(&self, error: &TokenStream, call: &TokenStream) -> TokenStream {
        let lent = &self.lent;
        match self.is_unbound {
            false => quote! {
                #lent
                ::longshore::__private::Box::pin(async move { #call })
            },
            true => quote! {
                ::longshore::__private::Box::pin(::core::future::ready(
                    ::core::result::Result::Err(::longshore::__private::#error::internal(
                        ::longshore::__private::UNBOUND
                    ))
                ))
            },
        }
    }

    /// The implementation of the trait `kind` with these methods, and one that binds the function if it needs state or values of
    /// the call.
    pub(crate) fn implement<O>(
        &self,
        offered: &Function<O>,
        kind: &TokenStream,
        methods: &TokenStream,
    ) -> TokenStream {
        let Self {
            generics,
            ty,
            conditions,
            ..
        } = self;
        let needs_values = !has_state(offered) && extracts(offered);
        let bind = (self.is_unbound || needs_values).then(|| bind(offered, kind));
        quote! {
            impl #generics #kind for #ty #conditions {
                #methods
                #bind
            }
        }
    }
}

/// The definition of a function, which has the type `ty`, and the implementation for its unit struct. If it has state, there is
/// another one for the function with its state.
pub(crate) fn implementation<O>(
    offered: &Function<O>,
    ty: &TokenStream,
    definition: &TokenStream,
    implement: impl Fn(&Carrier) -> TokenStream,
) -> TokenStream {
    let traits = traits();
    let unit = implement(&Carrier::unit(offered));
    let bound = has_state(offered).then(|| {
        let bound_type = bound_type(offered);
        let bound = implement(&Carrier::bound(offered));
        quote!(#bound_type #bound)
    });
    quote! {
        #traits

        static __LONGSHORE_DEFINITION: ::longshore::__private::LazyLock<#ty> =
            ::longshore::__private::LazyLock::new(|| #definition);

        #unit
        #bound
    }
}

/// The traits that are selected by what functions return.
pub(crate) fn traits() -> TokenStream {
    quote! {
        #[allow(unused_imports)]
        use ::longshore::__private::{
            AnswerDisplay as _, AnswerDynamic as _, AnswerError as _, AnswerOther as _, AnswerPlain as _,
            ContentsBytes as _, ContentsKnown as _, ContentsOption as _, ContentsOther as _,
            FinishKnown as _, FinishOther as _, FinishSerialize as _,
        };
    }
}

/// The type of a function with its state.
fn bound_type<O>(offered: &Function<O>) -> TokenStream {
    let states = (0..offered.shared().count()).map(state);
    let types = offered.shared().map(|shared| &shared.ty);
    quote! {
        struct __LongshoreBound {
            #(#states: ::longshore::__private::Arc<#types>,)*
        }
    }
}

/// The method that binds a function to its state, and to what its extractors need; `kind` is the trait.
fn bind<O>(offered: &Function<O>, kind: &TokenStream) -> TokenStream {
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

/// Statements that take from the call what a function wants of it, in an `async` block.
pub(crate) fn extract<O>(offered: &Function<O>) -> TokenStream {
    let all = offered.extracted().enumerate();
    all.map(|(i, wanted)| extract_one(i, &wanted.ty)).collect()
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
