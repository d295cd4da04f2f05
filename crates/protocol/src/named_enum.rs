//! Enums whose variants have names.

/// Declares an enum whose variants have a name each, and a function that returns it. A function that finds the variant of a
/// name, and a list of all variants, can follow in this order.
#[macro_export]
macro_rules! named_enum {
    (@more $type:ident [$($variant:ident = $text:literal,)*]) => {};
    (
        @more $type:ident [$($variant:ident = $text:literal,)*]
        $(#[$of_all:meta])*
        $all_visibility:vis const $all:ident;
    ) => {
        impl $type {
            $(#[$of_all])*
            $all_visibility const $all: [Self; [$($text),*].len()] = [$(Self::$variant),*];
        }
    };
    (
        @more $type:ident [$($variant:ident = $text:literal,)*]
        $(#[$of_parse:meta])*
        $parse_visibility:vis fn $parse:ident;
        $($more:tt)*
    ) => {
        impl $type {
            $(#[$of_parse])*
            $parse_visibility fn $parse(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        $crate::named_enum! { @more $type [$($variant = $text,)*] $($more)* }
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $type:ident {
            $($(#[$of_variant:meta])* $variant:ident = $text:literal,)*
        }
        $(#[$of_name:meta])*
        $name_visibility:vis fn $name:ident;
        $($more:tt)*
    ) => {
        $(#[$attribute])*
        $visibility enum $type {
            $($(#[$of_variant])* $variant,)*
        }

        impl $type {
            $(#[$of_name])*
            $name_visibility fn $name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        $crate::named_enum! { @more $type [$($variant = $text,)*] $($more)* }
    };
}
