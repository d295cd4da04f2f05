//! Full-text ranking of tools for a query.
//!
//! The measure is BM25 over names, titles, descriptions and argument names. The order is deterministic.

use std::collections::BTreeMap;

use crate::catalog::Definition;

/// Number of bytes of a description or query that are indexed.
const TEXT_MAX: usize = 4096;
/// Maximum number of words of a query.
const WORDS_MAX: usize = 32;
/// BM25 parameters: term saturation and length normalization, with common values.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// Weight of a word by the field that contains it.
const IN_NAME: f64 = 4.0;
const IN_TITLE: f64 = 2.0;
const IN_TEXT: f64 = 1.0;
/// Factor for words of which the query contains only a prefix.
const BEGINS_ALIKE: f64 = 0.5;
/// Minimum length of a prefix, in bytes.
const BEGINNING_MIN: usize = 3;

/// Inverted index.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By word: positions of tools, with the weight of the word in each.
    words: BTreeMap<String, Vec<(usize, f64)>>,
    lengths: Vec<f64>,
    mean_length: f64,
}

impl Index {
    /// Indexes definitions by their position.
    pub(super) fn new<'d>(definitions: impl Iterator<Item = &'d Definition>) -> Self {
        let mut index = Self::default();
        for (place, definition) in definitions.enumerate() {
            let mut found: BTreeMap<String, f64> = BTreeMap::new();
            let mut read = |text: &str, weight: f64| {
                for word in words_of(text) {
                    *found.entry(word).or_default() += weight;
                }
            };
            read(definition.name(), IN_NAME);
            read(definition.title.as_deref().unwrap_or_default(), IN_TITLE);
            let text = definition.description.as_deref().unwrap_or_default();
            read(longshore_protocol::prefix(text, TEXT_MAX), IN_TEXT);
            let arguments = definition.input_schema.get("properties");
            for name in arguments
                .and_then(|p| p.as_object())
                .into_iter()
                .flat_map(|p| p.keys())
            {
                read(name, IN_TEXT);
            }
            index.lengths.push(found.values().sum());
            for (word, weight) in found {
                index.words.entry(word).or_default().push((place, weight));
            }
        }
        if !index.lengths.is_empty() {
            index.mean_length = index.lengths.iter().sum::<f64>() / index.lengths.len() as f64;
        }
        index
    }

    /// Positions of matching tools, best first. Ties keep the order of the list.
    pub(super) fn find(&self, query: &str) -> Vec<usize> {
        let mut scores: BTreeMap<usize, f64> = BTreeMap::new();
        let query = longshore_protocol::prefix(query, TEXT_MAX);
        let mut asked: Vec<String> = words_of(query).take(WORDS_MAX).collect();
        asked.sort();
        asked.dedup();
        for word in &asked {
            if let Some(places) = self.words.get(word) {
                self.add(places, 1.0, &mut scores);
                continue;
            }
            if word.len() < BEGINNING_MIN {
                continue;
            }
            let alike = self.words.range(word.clone()..);
            for (_, places) in alike.take_while(|(known, _)| known.starts_with(word.as_str())) {
                self.add(places, BEGINS_ALIKE, &mut scores);
            }
        }
        let mut found: Vec<(usize, f64)> = scores.into_iter().collect();
        found.sort_by(|(one, high), (other, low)| low.total_cmp(high).then(one.cmp(other)));
        found.into_iter().map(|(place, _)| place).collect()
    }

    fn add(&self, places: &[(usize, f64)], factor: f64, scores: &mut BTreeMap<usize, f64>) {
        let (all, with) = (self.lengths.len() as f64, places.len() as f64);
        let rarity = ((all - with + 0.5) / (with + 0.5) + 1.0).ln();
        for (place, weight) in places {
            let length = self.lengths[*place] / self.mean_length.max(f64::MIN_POSITIVE);
            let share = weight * (K1 + 1.0) / (weight + K1 * (1.0 - B + B * length));
            *scores.entry(*place).or_default() += factor * rarity * share;
        }
    }
}

/// Lower-case words of a text, split at case changes: `getWeatherReports` equals `get_weather_report`.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut last_was_small = false;
    for c in text.chars() {
        let begins_anew = c.is_uppercase() && last_was_small;
        if !c.is_alphanumeric() || begins_anew {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        last_was_small = c.is_lowercase() || c.is_numeric();
    }
    words.push(word);
    words
        .into_iter()
        .filter(|word| !word.is_empty())
        .map(without_plural)
}

fn without_plural(mut word: String) -> String {
    if 3 < word.len() && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(tools: &[(&str, &str)]) -> Index {
        let definitions: Vec<_> = tools
            .iter()
            .map(|(name, text)| Definition::new(*name).description(*text))
            .collect();
        Index::new(definitions.iter())
    }

    #[test]
    fn words_are_the_same_however_they_are_written() {
        let words = |text| words_of(text).collect::<Vec<_>>();
        for text in [
            "getWeatherReports",
            "get_weather_report",
            "GET weather-reports!",
        ] {
            assert_eq!(words(text), ["get", "weather", "report"], "{text}");
        }
        assert_eq!(words("ipv4Address class"), ["ipv4", "address", "class"]);
        assert_eq!(words("über Größe"), ["über", "größe"]);
        assert!(words("  --  ").is_empty());
    }

    #[test]
    fn a_word_in_the_name_counts_more_and_a_rare_one_counts_most() {
        let index = index(&[
            ("list_files", "Lists files in a folder, with dates."),
            ("read_file", "Reads one."),
            ("weather", "What the weather is like; it may write a file."),
            ("send_mail", "Sends a message to somebody."),
        ]);
        assert_eq!(index.find("file").first(), Some(&1), "the short one");
        assert_eq!(index.find("weather file").first(), Some(&2));
        assert_eq!(index.find("e-mail message"), [3]);
        assert_eq!(index.find("weath"), [2], "a beginning is found");
        assert!(index.find("we").is_empty(), "too short for one");
        assert!(index.find("").is_empty() && index.find("nothing whatsoever").is_empty());
    }

    #[test]
    fn those_alike_come_in_the_order_of_the_list_each_time() {
        let index = index(&[("a_x", "Same."), ("b_x", "Same."), ("c_x", "Same.")]);
        for _ in 0..3 {
            assert_eq!(index.find("same x"), [0, 1, 2]);
        }
        assert_eq!(index.find(&"word ".repeat(100_000)), [0_usize; 0]);
    }

    #[test]
    fn arguments_are_found_too_and_nothing_is_in_an_empty_catalog() {
        let schema =
            serde_json::json!({"type": "object", "properties": {"postalCode": {"type": "string"}}});
        let one = Definition::new("lookup").input_schema(schema);
        assert_eq!(Index::new([&one].into_iter()).find("postal code"), [0]);
        assert!(Index::new(std::iter::empty()).find("x").is_empty());
    }
}
