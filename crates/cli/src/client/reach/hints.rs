//! Pages of services on which users create tokens.

use url::Url;

/// Token pages of popular services, by host suffix.
const TOKEN_PAGES: &[(&str, &str)] = &[
    (
        "github.com",
        "https://github.com/settings/personal-access-tokens",
    ),
    (
        "githubcopilot.com",
        "https://github.com/settings/personal-access-tokens",
    ),
    (
        "gitlab.com",
        "https://gitlab.com/-/user_settings/personal_access_tokens",
    ),
    ("huggingface.co", "https://huggingface.co/settings/tokens"),
    ("linear.app", "https://linear.app/settings/account/security"),
    ("notion.com", "https://www.notion.so/profile/integrations"),
    (
        "sentry.dev",
        "https://sentry.io/settings/account/api/auth-tokens/",
    ),
    (
        "sentry.io",
        "https://sentry.io/settings/account/api/auth-tokens/",
    ),
    ("slack.com", "https://api.slack.com/apps"),
    ("stripe.com", "https://dashboard.stripe.com/apikeys"),
];

pub(super) fn hint(url: &Url) -> Option<&'static str> {
    let host = url.host_str()?;
    let is_of = |end: &str| {
        host.strip_suffix(end)
            .is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    TOKEN_PAGES
        .iter()
        .find_map(|(end, page)| is_of(end).then_some(*page))
}
