//! HTML elements that the conversion distinguishes.

/// Element of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    A,
    Aside,
    Audio,
    B,
    Blockquote,
    Br,
    Button,
    Canvas,
    Code,
    Dd,
    Del,
    Dialog,
    Div,
    Dt,
    Em,
    Footer,
    H(u8),
    Hr,
    Iframe,
    Img,
    Li,
    Main,
    Math,
    Meta,
    Nav,
    Noembed,
    Noframes,
    Object,
    Ol,
    P,
    Pre,
    Script,
    Select,
    Span,
    Style,
    Svg,
    Table,
    Td,
    Template,
    Textarea,
    Title,
    Tr,
    Ul,
    Video,
    Xmp,
    /// A block without specific Markdown, whose end tag is mandatory.
    Section,
    /// A block without specific Markdown, whose end tag is optional or often missing.
    Block,
    Other,
}

/// Maximum length of a known element name, in bytes.
const NAME_BYTES_MAX: usize = 16;

impl Tag {
    /// Returns the element with a name, ignoring case.
    pub(super) fn named(name: &str) -> Self {
        let mut lower = [0; NAME_BYTES_MAX];
        let Some(lower) = lower.get_mut(..name.len()) else {
            return Self::Other;
        };
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        match &*lower {
            b"a" => Self::A,
            b"aside" => Self::Aside,
            b"audio" => Self::Audio,
            b"b" | b"strong" => Self::B,
            b"blockquote" => Self::Blockquote,
            b"br" => Self::Br,
            b"button" => Self::Button,
            b"canvas" => Self::Canvas,
            b"code" | b"kbd" | b"samp" | b"tt" => Self::Code,
            b"dd" => Self::Dd,
            b"del" | b"s" | b"strike" => Self::Del,
            b"dialog" => Self::Dialog,
            b"div" => Self::Div,
            b"dt" => Self::Dt,
            b"em" | b"i" => Self::Em,
            b"footer" => Self::Footer,
            [b'h', level @ b'1'..=b'6'] => Self::H(level - b'0'),
            b"hr" => Self::Hr,
            b"iframe" => Self::Iframe,
            b"img" => Self::Img,
            b"li" => Self::Li,
            b"main" => Self::Main,
            b"math" => Self::Math,
            b"meta" => Self::Meta,
            b"nav" => Self::Nav,
            b"noembed" => Self::Noembed,
            b"noframes" => Self::Noframes,
            b"object" => Self::Object,
            b"ol" => Self::Ol,
            b"p" => Self::P,
            b"pre" | b"listing" => Self::Pre,
            b"script" => Self::Script,
            b"select" | b"datalist" => Self::Select,
            b"span" => Self::Span,
            b"style" => Self::Style,
            b"svg" => Self::Svg,
            b"table" => Self::Table,
            b"td" | b"th" => Self::Td,
            b"template" => Self::Template,
            b"textarea" => Self::Textarea,
            b"title" => Self::Title,
            b"tr" => Self::Tr,
            b"ul" | b"menu" => Self::Ul,
            b"video" => Self::Video,
            b"xmp" => Self::Xmp,
            b"address" | b"article" | b"details" | b"dl" | b"fieldset" | b"figcaption"
            | b"figure" | b"header" | b"hgroup" | b"search" | b"section" => Self::Section,
            b"body" | b"caption" | b"center" | b"dir" | b"form" | b"html" | b"legend"
            | b"optgroup" | b"option" | b"summary" | b"tbody" | b"tfoot" | b"thead" => Self::Block,
            _ => Self::Other,
        }
    }

    /// Returns true if its content is raw text without tags.
    pub(super) fn is_raw(self) -> bool {
        matches!(
            self,
            Self::Iframe
                | Self::Noembed
                | Self::Noframes
                | Self::Script
                | Self::Style
                | Self::Textarea
                | Self::Title
                | Self::Xmp
        )
    }

    /// Returns true if its content is SVG or MathML instead of HTML.
    pub(super) fn is_foreign(self) -> bool {
        matches!(self, Self::Math | Self::Svg)
    }

    /// Returns true if its content is invisible.
    pub(super) fn is_unread(self) -> bool {
        (self.is_raw() && self != Self::Xmp)
            || matches!(
                self,
                Self::Audio
                    | Self::Button
                    | Self::Canvas
                    | Self::Dialog
                    | Self::Math
                    | Self::Object
                    | Self::Select
                    | Self::Svg
                    | Self::Template
                    | Self::Video
            )
    }

    /// Returns true if its content is usually about the site instead of the page's subject.
    pub(super) fn is_aside(self) -> bool {
        matches!(self, Self::Aside | Self::Footer | Self::Nav)
    }

    /// Returns true if its end tag is mandatory, so that its content can be skipped as a whole.
    pub(super) fn always_ends(self) -> bool {
        matches!(
            self,
            Self::A
                | Self::Blockquote
                | Self::Div
                | Self::Main
                | Self::Ol
                | Self::B
                | Self::Code
                | Self::Del
                | Self::Em
                | Self::H(_)
                | Self::Pre
                | Self::Section
                | Self::Span
                | Self::Table
                | Self::Ul
        ) || self.is_unread()
            || self.is_aside()
    }

    /// Returns true if its tags end a paragraph that is open.
    pub(super) fn ends_paragraph(self) -> bool {
        matches!(
            self,
            Self::Block
                | Self::Blockquote
                | Self::Dd
                | Self::Div
                | Self::Dt
                | Self::H(_)
                | Self::Hr
                | Self::Li
                | Self::Main
                | Self::Ol
                | Self::P
                | Self::Pre
                | Self::Section
                | Self::Table
                | Self::Td
                | Self::Tr
                | Self::Ul
                | Self::Xmp
        ) || self.is_aside()
    }
}
