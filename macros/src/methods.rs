//! `#[tools]` on an `impl`: its methods become tools, resources and prompts of one object.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Expr, ExprLit, GenericParam, Generics, ImplItem, ImplItemFn, ItemFn, ItemImpl, Lit,
    LitStr, Meta, MetaNameValue, Type, WherePredicate, parse_quote,
};

use crate::expand::{Carrier, tool_of_method};
use crate::expand_offers::{prompt_of_method, resource_of_method};
use crate::options::{Mistakes, fault_of_name};
use crate::parse::{Kind, Options, Placement, read_function};

/// The type whose methods these are.
pub(crate) struct Object {
    generics: Generics,
    ty: Type,
    /// The beginning of its tools' names.
    prefix: Option<LitStr>,
}

impl Object {
    /// The name of a tool, with the prefix.
    pub(crate) fn name_of(&self, name: &str) -> String {
        match &self.prefix {
            Some(prefix) => prefix.value() + name,
            None => name.to_owned(),
        }
    }

    /// The type that carries one method, and its declaration. `definition` is the type of its definition.
    pub(crate) fn carrier(&self, definition: &TokenStream) -> (Carrier, TokenStream) {
        let (declared, used, conditions) = self.generics.split_for_impl();
        let ty = &self.ty;
        let carrier = Carrier {
            generics: declared.to_token_stream(),
            ty: quote!(__LongshoreMethod #used),
            conditions: conditions.to_token_stream(),
            definition: quote!(self.__longshore_definition),
            lent: quote! {
                let __longshore_this = ::longshore::__private::Arc::clone(&self.__longshore_this);
            },
        };
        let declaration = quote! {
            struct __LongshoreMethod #declared #conditions {
                __longshore_this: ::longshore::__private::Arc<#ty>,
                __longshore_definition: ::longshore::__private::Arc<#definition>,
            }
        };
        (carrier, declaration)
    }
}

/// The `impl`, and what makes its methods tools.
pub(crate) fn tools(options: &TokenStream, item: &TokenStream) -> TokenStream {
    let mut methods: ItemImpl = match syn::parse2(item.clone()) {
        Ok(methods) => methods,
        Err(mistake) => {
            let is_impl = item.clone().into_iter().any(|t| t.to_string() == "impl");
            let mistake = match is_impl {
                true => mistake,
                false => syn::Error::new_spanned(
                    item,
                    "`#[tools]` goes on an `impl`; on a function say `#[tool]`",
                ),
            };
            let mistake = mistake.into_compile_error();
            return quote!(#mistake #item);
        }
    };
    let mut mistakes = Mistakes::default();
    let prefix = prefix(options, &mut mistakes);
    let object = object(&methods, prefix, &mut mistakes);
    let mut added = Vec::new();
    let mut has_any = false;
    for item in &mut methods.items {
        if let ImplItem::Fn(method) = item {
            let Some((kind, options)) = take_mark(method, &mut mistakes) else {
                continue;
            };
            has_any = true;
            let written = match kind {
                Kind::Tool => member(options, method, &mut mistakes, |tool| {
                    let tool = tool_of_method(tool, &object);
                    quote!(__longshore_offered.tools.push({ #tool });)
                }),
                Kind::Resource => member(options, method, &mut mistakes, |resource| {
                    let resource = resource_of_method(resource, &object);
                    quote!(__longshore_offered.resources.push({ #resource });)
                }),
                Kind::Prompt => member(options, method, &mut mistakes, |prompt| {
                    let prompt = prompt_of_method(prompt, &object);
                    quote!(__longshore_offered.prompts.push({ #prompt });)
                }),
            };
            added.extend(written);
        }
    }
    if !has_any {
        mistakes.at(
            &methods.self_ty,
            "no method is offered: put `#[tool]`, `#[resource]` or `#[prompt]` on those that are",
        );
    }
    if let Some(mistakes) = mistakes.into_error() {
        let mistakes = mistakes.into_compile_error();
        return quote!(#mistakes #[allow(unused)] #methods);
    }
    let (declared, _, conditions) = object.generics.split_for_impl();
    let ty = &object.ty;
    quote! {
        #methods

        #[doc(hidden)]
        const _: () = {
            #[automatically_derived]
            impl #declared ::longshore::__private::Toolset for #ty #conditions {
                fn offered(
                    self: ::longshore::__private::Arc<Self>,
                ) -> ::longshore::__private::SourceItems {
                    let mut __longshore_offered = ::longshore::__private::SourceItems::default();
                    #(#added)*
                    __longshore_offered
                }
            }
        };
    }
}

/// The object, whose type has to live as long as the server.
fn object(methods: &ItemImpl, prefix: Option<LitStr>, mistakes: &mut Mistakes) -> Object {
    if let Some((_, of, _)) = &methods.trait_ {
        mistakes.at(
            of,
            "`#[tools]` goes on the methods of a type itself: write `impl Type`, and call the trait's methods from there",
        );
    }
    let mut generics = methods.generics.clone();
    for parameter in &generics.params {
        if let GenericParam::Lifetime(life) = parameter {
            mistakes.at(
                life,
                "an object lives as long as the server: it cannot borrow, so own the value or share it by `Arc`",
            );
        }
    }
    let ty = (*methods.self_ty).clone();
    let lasts: WherePredicate =
        parse_quote!(#ty: ::core::marker::Send + ::core::marker::Sync + 'static);
    if !generics.params.is_empty() {
        generics.make_where_clause().predicates.push(lasts);
    }
    Object {
        generics,
        ty,
        prefix,
    }
}

/// Reads the options of `#[tools]`, of which there is one.
fn prefix(options: &TokenStream, mistakes: &mut Mistakes) -> Option<LitStr> {
    if options.is_empty() {
        return None;
    }
    let other = "`#[tools]` has the option `prefix = \"...\"`; all others stand on its methods";
    let pair = syn::parse2::<MetaNameValue>(options.clone()).ok();
    let pair = pair.filter(|pair| pair.path.is_ident("prefix"));
    let prefix = pair.and_then(|pair| match pair.value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(prefix),
            ..
        }) => Some(prefix),
        _ => None,
    });
    match &prefix {
        None => mistakes.at(options, other),
        Some(prefix) => {
            if fault_of_name(&prefix.value()).is_some() {
                let message = "a prefix has 1 to 128 letters and digits of ASCII, `_`, `-` and `.`";
                mistakes.at(prefix, message);
            }
        }
    }
    prefix
}

/// Takes `#[tool(...)]` or its like off a method. `None` if it has none.
fn take_mark(method: &mut ImplItemFn, mistakes: &mut Mistakes) -> Option<(Kind, TokenStream)> {
    let mut found = None;
    for attribute in std::mem::take(&mut method.attrs) {
        let Some(kind) = kind_of(&attribute) else {
            method.attrs.push(attribute);
            continue;
        };
        if found.is_some() {
            mistakes.at(
                &attribute,
                "a method is one thing: a tool, a resource or a prompt",
            );
            continue;
        }
        let options = match &attribute.meta {
            Meta::Path(_) => TokenStream::new(),
            Meta::List(list) => list.tokens.clone(),
            Meta::NameValue(pair) => {
                let message = format!("options stand in parentheses: `#[{}(...)]`", kind.name());
                mistakes.at(pair, message);
                TokenStream::new()
            }
        };
        found = Some((kind, options));
    }
    found
}

/// `#[tool]`, or `#[longshore::tool]`.
fn kind_of(attribute: &Attribute) -> Option<Kind> {
    let path = attribute.path();
    let is_ours = match path.segments.len() {
        1 => true,
        2 => path.segments[0].ident == "longshore",
        _ => false,
    };
    let last = &path.segments.last()?.ident;
    let mut kinds = [Kind::Tool, Kind::Resource, Kind::Prompt].into_iter();
    kinds.find(|kind| is_ours && last == kind.name())
}

/// Statements that add one method to the offer of its object; `None` after a mistake. The method keeps no attribute that
/// the compiler does not know.
fn member<O: Options>(
    options: TokenStream,
    method: &mut ImplItemFn,
    mistakes: &mut Mistakes,
    write: impl FnOnce(&crate::parse::Function<O>) -> TokenStream,
) -> Option<TokenStream> {
    let function = ItemFn {
        attrs: method.attrs.clone(),
        vis: method.vis.clone(),
        sig: method.sig.clone(),
        block: Box::new(method.block.clone()),
    };
    match read_function::<O>(options, function, Placement::Method) {
        Ok(read) => {
            method.sig = read.function.sig.clone();
            let conditions = &read.conditions;
            let written = write(&read);
            Some(quote!(#(#conditions)* { #written }))
        }
        Err(refused) => {
            let (mistake, function) = *refused;
            mistakes.add(mistake);
            method.sig = function.sig;
            None
        }
    }
}
