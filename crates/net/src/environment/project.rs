//! Detection of the project's name.

use super::{Detection, Probe};

/// Detects the name of the service. A name from the platform takes precedence over one from the source code.
pub(super) fn detect(probe: &Probe) -> Option<Detection<String>> {
    by_variable(probe)
        .or_else(|| by_labels(probe))
        .or_else(|| by_image(probe))
        .or_else(|| by_manifest(probe))
        .or_else(|| by_git(probe))
}

fn by_variable(probe: &Probe) -> Option<Detection<String>> {
    const NAMES: [&str; 11] = [
        "OTEL_SERVICE_NAME",
        "K_SERVICE",
        "AWS_LAMBDA_FUNCTION_NAME",
        "CONTAINER_APP_NAME",
        "WEBSITE_SITE_NAME",
        "GAE_SERVICE",
        "FLY_APP_NAME",
        "RENDER_SERVICE_NAME",
        "RAILWAY_SERVICE_NAME",
        "HEROKU_APP_NAME",
        "CLOUD_RUN_JOB",
    ];
    NAMES
        .into_iter()
        .find_map(|name| seen(probe.variable(name)?, name))
}

/// Reads the labels of a pod, if the downward API mounts them.
fn by_labels(probe: &Probe) -> Option<Detection<String>> {
    const FILE: &str = "/etc/podinfo/labels";
    let labels = probe.read(FILE)?;
    ["app.kubernetes.io/name", "app"]
        .into_iter()
        .find_map(|label| {
            let value = labels
                .lines()
                .find_map(|line| line.strip_prefix(label)?.strip_prefix('='))?;
            seen(
                value.trim().trim_matches('"'),
                &format!("{label} in {FILE}"),
            )
        })
}

/// Podman stores the image name in the container.
fn by_image(probe: &Probe) -> Option<Detection<String>> {
    const FILE: &str = "/run/.containerenv";
    let text = probe.read(FILE)?;
    let image = text.lines().find_map(|line| line.strip_prefix("image="))?;
    let image = image.trim_matches('"').split('@').next()?;
    let name = image.rsplit('/').next()?.split(':').next()?;
    seen(name, &format!("image in {FILE}"))
}

fn by_manifest(probe: &Probe) -> Option<Detection<String>> {
    let from_toml = |file: &str, tables: &[&str]| {
        let text = probe.read(file)?;
        let mut names = tables
            .iter()
            .filter_map(|table| name_in_table(&text, table));
        names.find_map(|name| seen(name, file))
    };
    from_toml("Cargo.toml", &["[package]"])
        .or_else(|| {
            let text = probe.read("package.json")?;
            let document: serde_json::Value = serde_json::from_str(&text).ok()?;
            seen(document.get("name")?.as_str()?, "package.json")
        })
        .or_else(|| from_toml("pyproject.toml", &["[project]", "[tool.poetry]"]))
}

/// Returns the string at `name` in a table of a TOML manifest. A line scan is enough, because these tables have their
/// own header line.
fn name_in_table<'t>(manifest: &'t str, header: &str) -> Option<&'t str> {
    let mut lines = manifest.lines().map(str::trim);
    lines.find(|line| *line == header)?;
    lines
        .take_while(|line| !line.starts_with('['))
        .find_map(|line| {
            let value = line.strip_prefix("name")?.trim_start();
            let value = value.strip_prefix('=')?.trim_start();
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
            value[1..].split(quote).next()
        })
}

/// Returns the last segment of the repository's URL.
fn by_git(probe: &Probe) -> Option<Detection<String>> {
    const FILE: &str = ".git/config";
    let text = probe.read(FILE)?;
    let (_, origin) = text.split_once("[remote \"origin\"]")?;
    let url = origin
        .lines()
        .skip(1)
        .take_while(|line| !line.trim_start().starts_with('['))
        .find_map(|line| {
            line.trim()
                .strip_prefix("url")?
                .trim_start()
                .strip_prefix('=')
        })?;
    let name = url.trim().trim_end_matches('/').trim_end_matches(".git");
    seen(name.rsplit(['/', ':']).next()?, FILE)
}

/// Accepts a name of sensible length.
fn seen(name: &str, evidence: &str) -> Option<Detection<String>> {
    const NAME_MAX: usize = 128;
    let name = name.trim();
    let is_name = !name.is_empty() && name.len() <= NAME_MAX && !name.contains(char::is_control);
    is_name.then(|| Detection::new(name.to_owned(), evidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_people_put_them() {
        let none: [(&str, &str); 0] = [];
        let weather = Some("weather");
        for (file, text, name) in [
            ("Cargo.toml", "[package]\nname = \"weather\"\n", weather),
            ("Cargo.toml", "[workspace]\n", None),
            (
                "Cargo.toml",
                "[workspace]\nname = 'a'\n\n[package]\nedition = \"2024\"\nname= 'weather' # ours\n[lib]\nname = \"b\"",
                weather,
            ),
            ("Cargo.toml", "[package]\n[lib]\nname = \"b\"", None),
            (
                "package.json",
                "{\"name\": \"@acme/weather\"}",
                Some("@acme/weather"),
            ),
            ("package.json", "{", None),
            ("pyproject.toml", "[project]\nname = \"weather\"", weather),
            (
                "pyproject.toml",
                "[tool.poetry]\nname = \"weather\"",
                weather,
            ),
            (
                ".git/config",
                "[core]\n[remote \"origin\"]\n\turl = git@example.com:acme/weather.git\n",
                weather,
            ),
            (".git/config", "[remote \"origin\"]\n[other]\nurl = x", None),
            (
                "/etc/podinfo/labels",
                "app.kubernetes.io/name=\"weather\"\n",
                weather,
            ),
            (
                "/run/.containerenv",
                "engine=\"podman\"\nimage=\"docker.io/acme/weather:1.2\"\n",
                weather,
            ),
        ] {
            let found = detect(&Probe::of(none).with_file(file, text));
            assert_eq!(
                found.map(|seen| seen.value).as_deref(),
                name,
                "{file}: {text}"
            );
        }
        let probe = Probe::of([("K_SERVICE", "weather-prod")])
            .with_file("Cargo.toml", "[package]\nname = \"weather\"");
        assert_eq!(detect(&probe).expect("a name").value, "weather-prod");
    }
}
