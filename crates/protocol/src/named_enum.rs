//! Enums whose variants have names.

/// Declares an enum whose variants have a name each, a function that returns it, and a list of all variants if one is
/// asked for.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $type:ident {
            $($(#[$of_variant:meta])* $variant:ident = $text:literal,)*
        }
        $(#[$of_name:meta])*
        $name_visibility:vis fn $name:ident;
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
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $type:ident {
            $($(#[$of_variant:meta])* $variant:ident = $text:literal,)*
        }
        $(#[$of_name:meta])*
        $name_visibility:vis fn $name:ident;
        $(#[$of_all:meta])*
        $all_visibility:vis const $all:ident;
    ) => {
        $crate::named_enum! {
            $(#[$attribute])*
            $visibility enum $type {
                $($(#[$of_variant])* $variant = $text,)*
            }
            $(#[$of_name])*
            $name_visibility fn $name;
        }

        impl $type {
            $(#[$of_all])*
            $all_visibility const $all: [Self; [$($text),*].len()] = [$(Self::$variant),*];
        }
    };
}
