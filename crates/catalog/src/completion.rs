//! Suggestions for an argument that somebody is typing.

use crate::catalog::Parameters;

/// What is to be completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// Which argument of a prompt, or which variable of a template.
    pub argument: String,
    /// What has been typed so far; may be empty.
    pub value: String,
    /// The other arguments, as far as they are known.
    pub arguments: Parameters,
}

/// Suggestions, the best ones first.
///
/// Clients are sent the first 100 and told whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    pub(crate) values: Vec<String>,
    pub(crate) total: Option<usize>,
}

impl CompletionRequest {
    /// Asks for values of an argument.
    pub fn new(argument: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            argument: argument.into(),
            value: value.into(),
            arguments: Parameters::default(),
        }
    }

    /// Says what is known of other arguments.
    #[must_use]
    pub fn with_arguments(mut self, arguments: Parameters) -> Self {
        self.arguments = arguments;
        self
    }
}

impl Completions {
    /// These values.
    pub fn new<T: Into<String>>(values: impl IntoIterator<Item = T>) -> Self {
        Self {
            values: values.into_iter().map(Into::into).collect(),
            total: None,
        }
    }

    /// Those of some candidates that go with what was typed: first those that begin with it, then those that have
    /// it somewhere. Letters of ASCII match in either case.
    ///
    /// ```
    /// use longshore::Completions;
    ///
    /// let found = Completions::matching("pa", ["Utopia", "past", "Paris", "present"]);
    /// assert_eq!(found.values(), ["past", "Paris"]);
    /// ```
    pub fn matching<T: Into<String>>(value: &str, candidates: impl IntoIterator<Item = T>) -> Self {
        let value = value.to_ascii_lowercase();
        let (mut begin, mut hold) = (Vec::new(), Vec::new());
        for candidate in candidates {
            let candidate = candidate.into();
            match candidate.to_ascii_lowercase().find(&value) {
                Some(0) => begin.push(candidate),
                Some(_) => hold.push(candidate),
                None => {}
            }
        }
        begin.append(&mut hold);
        Self::new(begin)
    }

    /// Says how many there are in all, where not all of them were worked out.
    #[must_use]
    pub fn of_total(mut self, total: usize) -> Self {
        self.total = Some(total);
        self
    }

    /// The suggestions.
    pub fn values(&self) -> &[String] {
        &self.values
    }
}

impl<T: Into<String>> From<Vec<T>> for Completions {
    fn from(values: Vec<T>) -> Self {
        Self::new(values)
    }
}
