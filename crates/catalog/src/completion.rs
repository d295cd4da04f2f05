//! Completion: suggestions for an argument while it is typed.

use crate::catalog::Parameters;

/// A completion request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// The argument of a prompt, or the variable of a template.
    pub argument: String,
    /// The text typed so far, possibly empty.
    pub value: String,
    /// The other arguments, as far as they are known.
    pub arguments: Parameters,
}

/// Suggestions, the best ones first.
///
/// Clients are sent the first 100 and told whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    pub values: Vec<String>,
    pub total: Option<usize>,
    /// True if there are more than the total tells.
    pub has_more: bool,
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

    /// Sets the other arguments, as far as they are known.
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
            has_more: false,
        }
    }

    /// The candidates that match the typed text: first the ones that begin with it, then the ones that contain it. ASCII
    /// letters match in either case.
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

    /// Sets the total number of suggestions, where not all were computed.
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
