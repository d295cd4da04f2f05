//! Colours of human-readable output.

use std::fmt::Display;

use clap::ValueEnum;
use comfy_table::Cell;

use crate::environment::Probe;

/// Colour option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

/// Returns true if the terminal shows colours, and its user wants them. An empty NO_COLOR counts as absent
/// (<https://no-color.org>).
pub(super) fn are_colours_wanted(probe: &Probe) -> bool {
    probe.variable("NO_COLOR").is_none() && probe.variable("TERM") != Some("dumb")
}

/// Painter that colours text, or leaves it plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Paint {
    is_on: bool,
}

impl Paint {
    /// Decides by the option and the terminal.
    pub(super) fn new(choice: ColorChoice, is_terminal: bool) -> Self {
        let is_on = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && are_colours_wanted(Probe::real()),
        };
        Self { is_on }
    }

    #[cfg(test)]
    pub(super) fn on() -> Self {
        Self { is_on: true }
    }

    pub(super) fn is_on(self) -> bool {
        self.is_on
    }

    fn wrapped(self, code: &str, text: impl Display) -> String {
        match self.is_on {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_string(),
        }
    }

    /// Colours a label.
    pub(super) fn label(self, text: impl Display) -> String {
        self.wrapped("1", text)
    }

    /// Dims secondary text.
    pub(super) fn dim(self, text: impl Display) -> String {
        self.wrapped("2", text)
    }

    /// Colours an error.
    pub(super) fn wrong(self, text: impl Display) -> String {
        self.wrapped("1;31", text)
    }

    /// Creates a cell in this style.
    pub(super) fn cell(self, text: impl ToString, style: impl FnOnce(Cell) -> Cell) -> Cell {
        let cell = Cell::new(text);
        match self.is_on {
            true => style(cell),
            false => cell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_coloured_unless_it_is_to_be() {
        assert_eq!(Paint::default().wrong("x"), "x");
        assert_eq!(Paint::on().wrong("x"), "\u{1b}[1;31mx\u{1b}[0m");
        assert!(Paint::new(ColorChoice::Always, false).is_on());
        assert!(!Paint::new(ColorChoice::Never, true).is_on());
        assert!(!Paint::new(ColorChoice::Auto, false).is_on());
        let wanted =
            |variables: &[(&str, &str)]| are_colours_wanted(&Probe::of(variables.iter().copied()));
        assert!(wanted(&[("TERM", "xterm")]) && wanted(&[("NO_COLOR", "")]));
        assert!(!wanted(&[("TERM", "dumb")]) && !wanted(&[("NO_COLOR", "1")]));
    }
}
