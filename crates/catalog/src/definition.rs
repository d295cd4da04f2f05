//! Setters that the definitions of tools, resources and prompts have in common.

/// Implements the setters. `$reader` chooses one by its description, and `$call` is what a timeout ends.
macro_rules! definition_setters {
    ($definition:ident, $reader:literal, $call:literal) => {
        impl $definition {
            #[doc = concat!("Sets the description, for the ", $reader, ".")]
            #[must_use]
            pub fn description(mut self, description: impl Into<String>) -> Self {
                self.description = Some(description.into());
                self
            }

            /// Sets the name that people see.
            #[must_use]
            pub fn title(mut self, title: impl Into<String>) -> Self {
                self.title = Some(title.into());
                self
            }

            /// Adds an icon.
            #[must_use]
            pub fn icon(mut self, icon: Icon) -> Self {
                self.icons.push(icon);
                self
            }

            /// Adds a member to the definition's `_meta`.
            #[must_use]
            pub fn meta(mut self, key: impl Into<String>, value: Value) -> Self {
                self.meta.insert(key.into(), value);
                self
            }

            #[doc = concat!("Sets the timeout of a ", $call, ". Default: the server's call timeout.")]
            #[must_use]
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.timeout = Some(timeout);
                self
            }
        }
    };
}

pub(crate) use definition_setters;
