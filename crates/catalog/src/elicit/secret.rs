//! Fields that ask for what no form may ask for (ELI-02).

/// Single words that denote a secret.
const SECRETS: [&str; 12] = [
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "cvv",
    "cvc",
];

/// Pairs of words that denote a secret together.
const PAIRS: [(&str, &str); 14] = [
    ("api", "key"),
    ("api", "token"),
    ("access", "key"),
    ("access", "token"),
    ("auth", "token"),
    ("bearer", "token"),
    ("refresh", "token"),
    ("session", "token"),
    ("private", "key"),
    ("signing", "key"),
    ("ssh", "key"),
    ("card", "number"),
    ("security", "code"),
    ("pin", "code"),
];

/// Returns true if a field name or title denotes a secret: credentials or payment data. The match is by words and may
/// err; the error names the field, so that its author can rename it.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let words = words(name);
    let joined: String = words.concat();
    words.iter().any(|word| SECRETS.contains(&word.as_str()))
        || words
            .windows(2)
            .any(|two| PAIRS.contains(&(two[0].as_str(), two[1].as_str())))
        // Without anything between them.
        || PAIRS.iter().any(|(one, two)| joined == format!("{one}{two}"))
}

/// The words of `snake_case`, `kebab-case`, `camelCase` and of sentences.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let begins = c.is_uppercase() && !before.is_uppercase();
        if !c.is_alphanumeric() || begins {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eli_02_secrets_are_known_by_their_names() {
        for secret in [
            "password",
            "userPassword",
            "db-passwd",
            "PASSPHRASE",
            "client_secret",
            "api_key",
            "apiKey",
            "apikey",
            "Your API key",
            "accessToken",
            "card_number",
            "CVV",
        ] {
            assert!(names_a_secret(secret), "{secret}");
        }
        for harmless in [
            "name",
            "max_tokens",
            "token_count",
            "secretary",
            "keyboard",
            "passenger",
            "card",
            "key",
            "number_of_cards",
            "",
        ] {
            assert!(!names_a_secret(harmless), "{harmless}");
        }
    }
}
