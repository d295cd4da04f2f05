//! Conjugation of English verbs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tense {
    Present,
    Past,
    Future,
    PresentPerfect,
    PresentContinuous,
}

/// Grammatical person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Person {
    FirstSingular,
    SecondSingular,
    ThirdSingular,
    FirstPlural,
    SecondPlural,
    ThirdPlural,
}

/// Base form, past, past participle.
const IRREGULAR: [[&str; 3]; 40] = [
    ["be", "was", "been"],
    ["become", "became", "become"],
    ["begin", "began", "begun"],
    ["break", "broke", "broken"],
    ["bring", "brought", "brought"],
    ["build", "built", "built"],
    ["buy", "bought", "bought"],
    ["catch", "caught", "caught"],
    ["choose", "chose", "chosen"],
    ["come", "came", "come"],
    ["do", "did", "done"],
    ["draw", "drew", "drawn"],
    ["drink", "drank", "drunk"],
    ["drive", "drove", "driven"],
    ["eat", "ate", "eaten"],
    ["fall", "fell", "fallen"],
    ["feel", "felt", "felt"],
    ["find", "found", "found"],
    ["fly", "flew", "flown"],
    ["get", "got", "got"],
    ["give", "gave", "given"],
    ["go", "went", "gone"],
    ["have", "had", "had"],
    ["hear", "heard", "heard"],
    ["keep", "kept", "kept"],
    ["know", "knew", "known"],
    ["leave", "left", "left"],
    ["make", "made", "made"],
    ["meet", "met", "met"],
    ["read", "read", "read"],
    ["run", "ran", "run"],
    ["say", "said", "said"],
    ["see", "saw", "seen"],
    ["sing", "sang", "sung"],
    ["speak", "spoke", "spoken"],
    ["take", "took", "taken"],
    ["teach", "taught", "taught"],
    ["think", "thought", "thought"],
    ["write", "wrote", "written"],
    ["swim", "swam", "swum"],
];

/// Regular verbs, mostly of one syllable, whose last consonant is doubled.
const DOUBLING: [&str; 18] = [
    "admit", "chat", "clap", "drop", "grab", "hop", "hug", "jog", "nod", "permit", "plan",
    "prefer", "refer", "rub", "shop", "stop", "tap", "trip",
];

/// Returns verbs to practise with, mostly in alphabetical order.
pub(super) fn well_known() -> impl Iterator<Item = &'static str> {
    let irregular = IRREGULAR.iter().map(|[base, ..]| *base);
    irregular.chain(DOUBLING)
}

/// Returns the base form of a verb, if it is one word of letters.
pub(super) fn base_form(verb: &str) -> Option<String> {
    let verb = verb.trim().to_lowercase();
    let is_word = (2..=30).contains(&verb.len()) && verb.bytes().all(|b| b.is_ascii_lowercase());
    is_word.then_some(verb)
}

/// Returns the past, past participle and present participle of a base form.
pub(super) fn principal_parts(verb: &str) -> [String; 3] {
    [past(verb, 1), past(verb, 2), participle(verb)]
}

/// Conjugates a verb and adds its pronoun. Returns `None` if it is not one word of letters.
pub(super) fn conjugate(verb: &str, tense: Tense, person: Person) -> Option<String> {
    let verb = base_form(verb)?;
    let pronoun = match person {
        Person::FirstSingular => "I",
        Person::SecondSingular | Person::SecondPlural => "you",
        Person::ThirdSingular => "she",
        Person::FirstPlural => "we",
        Person::ThirdPlural => "they",
    };
    let form = match tense {
        Tense::Present => present(&verb, person),
        Tense::Past if verb == "be" => match person {
            Person::FirstSingular | Person::ThirdSingular => "was".to_owned(),
            _ => "were".to_owned(),
        },
        Tense::Past => past(&verb, 1),
        Tense::Future => format!("will {verb}"),
        Tense::PresentPerfect => format!("{} {}", present("have", person), past(&verb, 2)),
        Tense::PresentContinuous => format!("{} {}", present("be", person), participle(&verb)),
    };
    Some(format!("{pronoun} {form}"))
}

fn present(verb: &str, person: Person) -> String {
    match (verb, person) {
        ("be", Person::FirstSingular) => "am".to_owned(),
        ("be", Person::ThirdSingular) => "is".to_owned(),
        ("be", _) => "are".to_owned(),
        ("have", Person::ThirdSingular) => "has".to_owned(),
        (_, Person::ThirdSingular) => {
            if let Some(stem) = consonant_y(verb) {
                format!("{stem}ies")
            } else if ["s", "sh", "ch", "x", "z", "o"]
                .iter()
                .any(|end| verb.ends_with(end))
            {
                format!("{verb}es")
            } else {
                format!("{verb}s")
            }
        }
        _ => verb.to_owned(),
    }
}

/// Returns the past (1) or the past participle (2).
fn past(verb: &str, column: usize) -> String {
    if let Some(forms) = IRREGULAR.iter().find(|forms| forms[0] == verb) {
        return forms[column].to_owned();
    }
    if let Some(stem) = consonant_y(verb) {
        return format!("{stem}ied");
    }
    if verb.ends_with('e') {
        return format!("{verb}d");
    }
    format!("{}ed", doubled(verb))
}

fn participle(verb: &str) -> String {
    if let Some(stem) = verb.strip_suffix("ie") {
        return format!("{stem}ying");
    }
    let keeps_e = verb == "be" || ["ee", "oe", "ye"].iter().any(|end| verb.ends_with(end));
    match verb.strip_suffix('e') {
        Some(stem) if !keeps_e => format!("{stem}ing"),
        _ => format!("{}ing", doubled(verb)),
    }
}

fn doubled(verb: &str) -> String {
    const IRREGULAR_DOUBLING: [&str; 4] = ["begin", "get", "run", "swim"];
    match verb.chars().last() {
        Some(last) if DOUBLING.contains(&verb) || IRREGULAR_DOUBLING.contains(&verb) => {
            format!("{verb}{last}")
        }
        _ => verb.to_owned(),
    }
}

/// Returns the stem of a verb that ends in a consonant and y.
fn consonant_y(verb: &str) -> Option<&str> {
    let stem = verb.strip_suffix('y')?;
    stem.ends_with(|c| !"aeiou".contains(c)).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conjugates_regular_and_irregular_verbs() {
        use Person::{FirstPlural, FirstSingular, ThirdSingular};
        use Tense::{Future, Past, Present, PresentContinuous, PresentPerfect};
        for (verb, tense, person, expected) in [
            ("walk", Present, ThirdSingular, "she walks"),
            ("try", Present, ThirdSingular, "she tries"),
            ("play", Past, FirstSingular, "I played"),
            ("go", Present, ThirdSingular, "she goes"),
            ("go", Past, FirstPlural, "we went"),
            ("stop", Past, FirstSingular, "I stopped"),
            ("visit", Past, FirstSingular, "I visited"),
            ("dance", PresentContinuous, ThirdSingular, "she is dancing"),
            ("run", PresentContinuous, FirstSingular, "I am running"),
            ("lie", PresentContinuous, FirstSingular, "I am lying"),
            ("see", PresentContinuous, FirstSingular, "I am seeing"),
            ("be", Past, FirstPlural, "we were"),
            ("write", PresentPerfect, ThirdSingular, "she has written"),
            ("Be", Future, FirstSingular, "I will be"),
        ] {
            assert_eq!(conjugate(verb, tense, person).as_deref(), Some(expected));
        }
        for junk in ["", "x", "two words", "123", "caf\u{e9}"] {
            assert_eq!(conjugate(junk, Present, ThirdSingular), None);
        }
    }
}
