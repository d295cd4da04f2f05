//! A description becomes the lines that one would write by hand.

mod arguments;
mod binding;
mod definition;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, Ident, Type};

use crate::methods::Object;
use crate::options::{Task, ToolOptions};
use crate::parse::{Argument, Function, Parameter};
pub(crate) use arguments::preset;
use arguments::{arguments, variables};
pub(crate) use binding::{Carrier, called, extract, extract_one, implementation, resolve, traits};
pub(crate) use definition::{common, documentation, duration, name};

pub(crate) type ToolFn = Function<ToolOptions>;

/// The tool, and its announcement if it asks for one.
pub(crate) fn tool(tool: &ToolFn) -> TokenStream {
    let name = &tool.function.sig.ident;
    let conditions = &tool.conditions;
    let allow_deprecated = allow_deprecated(tool);
    let arguments = arguments(tool);
    let described = described(tool, &self::name(tool), &arguments_type(tool));
    let implementation = implementation(tool, &tool_spec(), &described, |carrier| {
        tool_impl(tool, carrier)
    });
    let unit = unit(tool, &quote!(#arguments #implementation));
    // Outside of that scope, where the name is the tool's.
    let collected = tool.options.collect.then(|| {
        quote! {
            #(#conditions)*
            #allow_deprecated
            const _: () = {
                ::longshore::__private::inventory::submit! {
                    ::longshore::__private::CollectedTool(|| ::longshore::__private::Arc::new(#name))
                }
            };
        }
    });

    quote!(#unit #collected)
}

/// A unit struct of the function's name that has `implementation`, and that is called like the function.
///
/// The function itself moves into an anonymous scope, where it keeps its name: that is what a backtrace shows.
pub(crate) fn unit<O>(offered: &Function<O>, implementation: &TokenStream) -> TokenStream {
    let Function {
        function,
        documentation,
        conditions,
        ..
    } = offered;
    let name = &function.sig.ident;
    let visibility = &function.vis;
    let mut function = function.clone();
    function.vis = syn::Visibility::Inherited;
    let callable = callable(offered);
    let hide_tools = hide_tools(offered);
    let deprecated = deprecated(offered);
    let allow_deprecated = allow_deprecated(offered);
    quote! {
        #(#conditions)*
        #(#documentation)*
        #deprecated
        #[allow(non_camel_case_types)]
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #visibility struct #name;

        #(#conditions)*
        #[doc(hidden)]
        const _: () = {
            #[allow(
                clippy::needless_pass_by_value,
                clippy::too_many_arguments,
                clippy::unused_async
            )]
            #function
            #hide_tools
            // Apart from the function, whose body sees all names of its module.
            #allow_deprecated
            const _: () = {
                #implementation
                #callable
            };
        };
    }
}

/// The attribute `#[deprecated]` of a function, which its unit struct has too.
fn deprecated<O>(offered: &Function<O>) -> Option<&Attribute> {
    let mut attributes = offered.function.attrs.iter();
    attributes.find(|attribute| attribute.path().is_ident("deprecated"))
}

/// An attribute for the code that calls a function although it is deprecated.
pub(crate) fn allow_deprecated<O>(offered: &Function<O>) -> Option<TokenStream> {
    deprecated(offered).map(|_| quote!(#[allow(deprecated)]))
}

/// An unused function for each parameter's name.
///
/// It hides another tool of the module with that name. A tool is a unit struct, so its name in a pattern means the struct;
/// the name of a function in a pattern is a new variable.
///
/// A name in the options of a parameter is not hidden: the options are in the same scope.
fn hide_tools<O>(offered: &Function<O>) -> TokenStream {
    let mut names = Vec::new();
    for input in &offered.function.sig.inputs {
        if let FnArg::Typed(parameter) = input {
            variables(&parameter.pat, &mut names);
        }
    }
    let used: Vec<_> = offered.arguments().flat_map(Argument::names_used).collect();
    let name = &offered.function.sig.ident;
    names.sort_unstable();
    names.dedup();
    names.retain(|ident| *ident != name && !used.contains(&ident.to_string()));
    quote!(#(#[allow(dead_code)] fn #names() {})*)
}

// === The arguments ===

fn name_of_default(i: usize) -> Ident {
    format_ident!("__longshore_default_{i}", span = Span::mixed_site())
}

// === What a function is given ===

/// Returns true if a function takes values from its call, or makes some from its arguments.
fn extracts<O>(offered: &Function<O>) -> bool {
    offered.extracted().next().is_some() || offered.resolved().next().is_some()
}

/// Returns true if a function has to be bound to state.
pub(crate) fn has_state<O>(offered: &Function<O>) -> bool {
    offered.shared().next().is_some()
}

/// The name of what a function shares, as a field and as a local variable.
pub(crate) fn state(i: usize) -> Ident {
    format_ident!("__longshore_state_{i}")
}

/// The name of what a function takes from the call, as a local variable.
pub(crate) fn extracted(i: usize) -> Ident {
    format_ident!("__longshore_call_{i}")
}

// === The tool ===

/// Statements that make the tool of a method, in a function in which `self` is the object; the last one is its `Arc`.
pub(crate) fn tool_of_method(tool: &ToolFn, object: &Object) -> TokenStream {
    let arguments = arguments(tool);
    let described = described(tool, &object.name_of(&name(tool)), &arguments_type(tool));
    let offered = object.offered(&tool_spec(), &described, |carrier| tool_impl(tool, carrier));
    quote!(#arguments #offered)
}

fn tool_spec() -> TokenStream {
    quote!(::longshore::__private::ToolSpec)
}

/// Statements that select the traits for the returned type, and for the type of a success.
fn answer(returns: &Type) -> TokenStream {
    quote_spanned! {returns.span()=>
        let __longshore_answer = ::longshore::__private::Answer::<
            #returns,
            ::longshore::__private::ToolError
        >::new();
        let __longshore_success = (&&&&&__longshore_answer).__longshore_success();
    }
}

fn arguments_type(tool: &ToolFn) -> TokenStream {
    match tool.flattened() {
        Some(flattened) => flattened.ty.to_token_stream(),
        None => quote!(__LongshoreArguments),
    }
}

fn tool_impl(tool: &ToolFn, carrier: &Carrier) -> TokenStream {
    let returns = &tool.returns;
    let call = call(tool, &arguments_type(tool));
    let answer = answer(returns);
    // The span puts the error of a missing trait at the type.
    let finish = quote_spanned! {returns.span()=>
        #answer
        (&&&__longshore_success).__longshore_output(
            (&&&&&__longshore_answer).__longshore_answer(__longshore_returned)
        )
    };
    let future = carrier.future(&quote!(ToolError), &quote!(#call #finish));
    let definition = &carrier.definition;
    let methods = quote! {
        fn definition(&self) -> &::longshore::__private::Definition {
            &#definition.definition
        }

        fn validates_arguments(&self) -> bool {
            #definition.validates_arguments
        }

        fn checks_output(&self) -> bool {
            #definition.checks_output
        }

        #[allow(unused_variables, clippy::let_unit_value)]
        fn call(
            &self,
            __longshore_context: ::longshore::__private::Arc<::longshore::__private::CallContext>,
            __longshore_arguments: ::longshore::__private::Arguments,
        ) -> ::longshore::__private::CallFuture {
            #future
        }
    };
    carrier.implement(tool, &quote!(::longshore::__private::Tool), &methods)
}

/// Reads the arguments and calls the function.
fn call(tool: &ToolFn, arguments: &TokenStream) -> TokenStream {
    let returns = &tool.returns;
    let locals: Vec<_> = (0..tool.arguments().count()).map(local).collect();
    let pattern = if tool.flattened().is_some() {
        let whole = local(0);
        quote!(#whole)
    } else {
        let fields = tool.arguments().map(|a| &a.ident);
        quote!(#arguments { #(#fields: #locals),* })
    };
    let called = called(tool, &locals);
    let returned = if tool.blocking.is_some() {
        blocking(&called, &quote!(ToolError))
    } else {
        quote!(#called.await)
    };
    let extract = extract(tool);
    let resolve = resolve(tool);
    quote! {
        #extract
        let #pattern = __longshore_arguments.parse::<#arguments>()?;
        #resolve
        let __longshore_returned: #returns = #returned;
    }
}

/// Runs the function on a blocking thread. `error` is the type of errors.
pub(crate) fn blocking(called: &TokenStream, error: &TokenStream) -> TokenStream {
    quote! {
        ::longshore::__private::run_blocking::<_, ::longshore::__private::#error>(move || #called)
            .await?
    }
}

pub(crate) fn local(i: usize) -> Ident {
    format_ident!("__longshore_{i}", span = Span::mixed_site())
}

/// The definition, as a chain of calls.
fn described(tool: &ToolFn, name: &str, arguments: &TokenStream) -> TokenStream {
    let options = &tool.options;
    let returns = &tool.returns;
    let hints = [
        ("read_only", options.read_only),
        ("destructive", options.destructive),
        ("idempotent", options.idempotent),
        ("open_world", options.open_world),
    ];
    let hints = hints.into_iter().filter_map(|(hint, value)| {
        let hint = Ident::new(hint, Span::call_site());
        value.map(|value| quote!(.#hint(#value)))
    });
    let task = options.task.map(|task| {
        let support = match task {
            Task::Optional => quote!(Optional),
            Task::Required => quote!(Required),
        };
        quote!(.task(::longshore::__private::TaskSupport::#support))
    });
    let later = options.deferred_task.then(|| quote!(.deferred_task()));
    let scopes = &options.scopes;
    let ui = options.ui.iter();
    let common = common(tool);
    let answer = answer(returns);
    quote! {
        ::longshore::__private::ToolSpec::new::<#arguments>(
            ::longshore::__private::Definition::new(#name)
                #(#hints)*
                #task
                #later
                #(.scope(#scopes))*
                #(.ui(#ui))*
                #common,
            {
                #answer
                (&&&__longshore_success).__longshore_schema()
            },
        )
    }
}

// === The function ===

/// Makes the unit struct callable like the function.
fn callable<O>(tool: &Function<O>) -> TokenStream {
    let name = &tool.function.sig.ident;
    let returns = &tool.returns;
    let lends = tool
        .parameters
        .iter()
        .any(|p| matches!(p, Parameter::Context | Parameter::State(_)));
    let life = lends.then(|| quote!('__longshore));
    let types: Vec<_> = tool
        .parameters
        .iter()
        .map(|parameter| match parameter {
            Parameter::Context => quote!(&#life ::longshore::__private::CallContext),
            Parameter::State(shared) => {
                let ty = &shared.ty;
                quote!(&#life #ty)
            }
            Parameter::Call(extracted) => extracted.ty.to_token_stream(),
            Parameter::Argument(argument) => argument.ty.to_token_stream(),
        })
        .collect();
    let locals: Vec<_> = (0..types.len()).map(local).collect();
    let (output, body) = if tool.blocking.is_some() {
        (quote!(#returns), quote!(#name(#(#locals),*)))
    } else {
        let bound = life.as_ref().map(|life| quote!(+ #life));
        (
            quote! {
                ::longshore::__private::Pin<::longshore::__private::Box<
                    dyn ::longshore::__private::Future<Output = #returns>
                        + ::core::marker::Send #bound
                >>
            },
            quote!(::longshore::__private::Box::pin(#name(#(#locals),*))),
        )
    };
    let generics = life.as_ref().map(|life| quote!(<#life>));
    let binder = life.as_ref().map(|life| quote!(for<#life>));
    quote! {
        impl ::longshore::__private::Deref for #name {
            type Target = #binder fn(#(#types),*) -> #output;

            fn deref(&self) -> &Self::Target {
                #[allow(clippy::too_many_arguments)]
                fn __longshore_call #generics (#(#locals: #types),*) -> #output {
                    #body
                }
                const __LONGSHORE_CALL: #binder fn(#(#types),*) -> #output = __longshore_call;
                &__LONGSHORE_CALL
            }
        }
    }
}
