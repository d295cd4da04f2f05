//! `#[tools]` on an `impl`: its methods become tools, resources and prompts of one object.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{
    Attribute, FnArg, GenericParam, Generics, ImplItem, ImplItemFn, ItemFn, ItemImpl, LitStr, Meta,
    MetaNameValue, Signature, Type, WherePredicate, parse_quote,
};

use crate::expand::{Carrier, allow_deprecated, tool_of_method, traits};
use crate::expand_offers::{prompt_of_method, resource_of_method};
use crate::options::{Mistakes, fault_of_name, string};
use crate::parse::{Function, Kind, Options, Placement, read_function};

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

    /// The signature of a method with the type's name instead of `Self`.
    fn named_in(&self, signature: &Signature) -> Signature {
        let named = replace_self(signature.to_token_stream(), &self.ty);
        syn::parse2(named).unwrap_or_else(|_| signature.clone())
    }

    /// Rejects arguments of a tool whose types depend on the parameters of the `impl`.
    fn check_arguments<O: Options>(&self, method: &Function<O>, mistakes: &mut Mistakes) {
        let parameters = self.generics.params.iter();
        let names: Vec<_> = parameters
            .filter_map(|parameter| match parameter {
                GenericParam::Type(ty) => Some(&ty.ident),
                GenericParam::Const(constant) => Some(&constant.ident),
                GenericParam::Lifetime(_) => None,
            })
            .collect();
        for argument in method.arguments().filter(|_| O::KIND == Kind::Tool) {
            let is_generic = argument.options.flatten.is_none()
                && has_name(argument.ty.to_token_stream(), &names);
            if is_generic {
                mistakes.at(
                    &argument.ty,
                    "the type of an argument cannot depend on a parameter of the `impl`: write a concrete type",
                );
            }
        }
    }

    /// Statements that make the `Arc` of what carries one method, in a function in which `self` is the object. Its definition has
    /// the type `ty`.
    pub(crate) fn offered(
        &self,
        ty: &TokenStream,
        definition: &TokenStream,
        implement: impl Fn(&Carrier) -> TokenStream,
    ) -> TokenStream {
        let (declared, used, conditions) = self.generics.split_for_impl();
        let object = &self.ty;
        let implementation = implement(&Carrier {
            generics: declared.to_token_stream(),
            ty: quote!(__LongshoreMethod #used),
            conditions: conditions.to_token_stream(),
            definition: quote!(self.__longshore_definition),
            lent: quote! {
                let __longshore_this = ::longshore::__private::Arc::clone(&self.__longshore_this);
            },
            is_unbound: false,
        });
        let traits = traits();
        let definition = quote!(::longshore::__private::Arc::new(#definition));
        let carrier = carrier_of(&quote!(self), &definition);
        quote! {
            #traits
            struct __LongshoreMethod #declared #conditions {
                __longshore_this: ::longshore::__private::Arc<#object>,
                __longshore_definition: ::longshore::__private::Arc<#ty>,
            }
            #implementation
            ::longshore::__private::Arc::new(#carrier)
        }
    }
}

/// The expression for a carrier, with an `Arc` of its object and one of its definition.
pub(crate) fn carrier_of(this: &TokenStream, definition: &TokenStream) -> TokenStream {
    quote! {
        __LongshoreMethod {
            __longshore_this: ::longshore::__private::Arc::clone(&#this),
            __longshore_definition: #definition,
        }
    }
}

/// Replaces `Self`, which means another type in the code that is written, by the type `of`.
fn replace_self(tokens: TokenStream, of: &Type) -> TokenStream {
    let mut replaced = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) if ident == "Self" => {
                let is_path =
                    matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == ':');
                let named = match is_path {
                    true => quote!(<#of>),
                    false => of.to_token_stream(),
                };
                replaced.extend(named.into_iter().map(|mut part| {
                    part.set_span(ident.span());
                    part
                }));
            }
            TokenTree::Group(group) => {
                let inside = replace_self(group.stream(), of);
                let mut same = Group::new(group.delimiter(), inside);
                same.set_span(group.span());
                replaced.extend([TokenTree::Group(same)]);
            }
            other => replaced.extend([other]),
        }
    }
    replaced
}

/// Returns true if tokens contain one of these names.
fn has_name(tokens: TokenStream, names: &[&Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => names.contains(&&ident),
        TokenTree::Group(group) => has_name(group.stream(), names),
        _ => false,
    })
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
                Kind::Tool => member(options, method, &object, &mut mistakes, |tool| {
                    let tool = tool_of_method(tool, &object);
                    quote!(__longshore_offered.tools.push({ #tool });)
                }),
                Kind::Resource => member(options, method, &object, &mut mistakes, |resource| {
                    let resource = resource_of_method(resource, &object);
                    quote!(__longshore_offered.resources.push({ #resource });)
                }),
                Kind::Prompt => member(options, method, &object, &mut mistakes, |prompt| {
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
    let prefix = pair.and_then(|pair| string(&pair.value).cloned());
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
    object: &Object,
    mistakes: &mut Mistakes,
    write: impl FnOnce(&Function<O>) -> TokenStream,
) -> Option<TokenStream> {
    let function = ItemFn {
        attrs: method.attrs.clone(),
        vis: method.vis.clone(),
        sig: object.named_in(&method.sig),
        block: Box::new(method.block.clone()),
    };
    match read_function::<O>(options, function, Placement::Method) {
        Ok(read) => {
            take_attributes(&mut method.sig, &read.function.sig);
            object.check_arguments(&read, mistakes);
            let conditions = &read.conditions;
            let allow_deprecated = allow_deprecated(&read);
            let written = write(&read);
            Some(quote!(#(#conditions)* #allow_deprecated { #written }))
        }
        Err(refused) => {
            let (mistake, function) = *refused;
            mistakes.add(mistake);
            take_attributes(&mut method.sig, &function.sig);
            None
        }
    }
}

/// Leaves the parameters the attributes that they have in `read`.
fn take_attributes(signature: &mut Signature, read: &Signature) {
    for (parameter, read) in signature.inputs.iter_mut().zip(&read.inputs) {
        if let (FnArg::Typed(parameter), FnArg::Typed(read)) = (parameter, read) {
            parameter.attrs.clone_from(&read.attrs);
        }
    }
}
