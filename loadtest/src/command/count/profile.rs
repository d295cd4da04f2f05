//! Parser for callgrind's output: costs by function, by source file and in total.

use std::collections::HashMap;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Instructions,
    /// Lines of 64 bytes of code that were not in a simulated instruction cache.
    CacheMisses,
}

impl Event {
    /// callgrind's name.
    fn name(self) -> &'static str {
        match self {
            Self::Instructions => "Ir",
            Self::CacheMisses => "I1mr",
        }
    }
}

/// Costs of one run, the difference of two runs, or the average for each request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Profile {
    total: f64,
    /// Costs of a function itself, including inlined functions.
    alone: HashMap<String, f64>,
    /// Costs of a function including its callees.
    with_callees: HashMap<String, f64>,
    /// Costs of the lines of a source file, wherever they were inlined.
    files: HashMap<String, f64>,
}

/// The file is not in callgrind's format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of callgrind's report cannot be read: {text}")]
pub(super) struct UnreadableProfile {
    line: usize,
    text: String,
}

impl Profile {
    /// Reads one kind of cost from a report written without compressed strings and positions.
    pub(super) fn read(report: &str, event: Event) -> Result<Self, UnreadableProfile> {
        let mut profile = Self::default();
        let mut column = 0;
        let (mut function, mut callee, mut file) = (String::new(), String::new(), String::new());
        let mut is_call = false;
        for (number, line) in report.lines().enumerate() {
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "fn" => function = short(value),
                    "cfn" => callee = short(value),
                    "fl" | "fi" | "fe" => file = short_path(value),
                    "calls" => is_call = true,
                    _ => {}
                }
                continue;
            }
            // The other lines are comments, headers (`name: value`) and costs (`line cost cost...`).
            if let Some(events) = line.strip_prefix("events: ") {
                let found = events.split(' ').position(|name| name == event.name());
                column = found.ok_or_else(|| UnreadableProfile {
                    line: number + 1,
                    text: line.to_owned(),
                })?;
                continue;
            }
            if line.is_empty()
                || line.starts_with('#')
                || line.contains(": ")
                || line.ends_with(':')
            {
                continue;
            }
            // Zeros at the end of a line are left out.
            let cost = line.split(' ').nth(1 + column).unwrap_or("0");
            let Ok(cost) = cost.parse::<f64>() else {
                return Err(UnreadableProfile {
                    line: number + 1,
                    text: line.to_owned(),
                });
            };
            if std::mem::take(&mut is_call) {
                // A recursive function would be counted once for each level.
                if callee != function {
                    *profile.with_callees.entry(function.clone()).or_default() += cost;
                }
            } else {
                profile.total += cost;
                for (costs, name) in [
                    (&mut profile.alone, &function),
                    (&mut profile.with_callees, &function),
                    (&mut profile.files, &file),
                ] {
                    *costs.entry(name.clone()).or_default() += cost;
                }
            }
        }
        Ok(profile)
    }

    /// Returns the total cost.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    /// Returns the cost of the server's tasks, without the runtime that polls them.
    pub(super) fn in_tasks(&self) -> f64 {
        self.with_callees.get(POLL).copied().unwrap_or_default()
    }

    /// Subtracts another run.
    pub(super) fn less(mut self, other: Self) -> Self {
        self.total -= other.total;
        for (costs, others) in [
            (&mut self.alone, other.alone),
            (&mut self.with_callees, other.with_callees),
            (&mut self.files, other.files),
        ] {
            for (name, cost) in others {
                *costs.entry(name).or_default() -= cost;
            }
        }
        self
    }

    /// Divides by a number of requests.
    pub(super) fn each(mut self, parts: u32) -> Self {
        let parts = f64::from(parts);
        self.total /= parts;
        for costs in [&mut self.alone, &mut self.with_callees, &mut self.files] {
            costs.values_mut().for_each(|cost| *cost /= parts);
        }
        self
    }

    /// Prints the most expensive functions.
    pub(super) fn print(&self, rows: usize) {
        for (title, costs) in [
            ("functions, with what they call", &self.with_callees),
            (
                "functions alone, with what was inlined into them",
                &self.alone,
            ),
            ("source files, wherever they were inlined to", &self.files),
            (
                "crates, wherever they were inlined to",
                &by_crate(&self.files),
            ),
        ] {
            println!("  {title}");
            for (name, cost) in most(costs, rows) {
                println!("  {cost:>10.0} {:>5.1}%  {name}", 100.0 * cost / self.total);
            }
            println!();
        }
    }
}

/// Function with which tokio polls a task of any type.
const POLL: &str = "tokio::runtime::task::raw::poll";

/// Returns the largest values, in order. Less than one per request is noise.
fn most(costs: &HashMap<String, f64>, rows: usize) -> Vec<(&str, f64)> {
    let mut costs: Vec<_> = costs
        .iter()
        .map(|(name, &cost)| (name.as_str(), cost))
        .filter(|(_, cost)| *cost >= 1.0)
        .collect();
    costs.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    costs.truncate(rows);
    costs
}

fn by_crate(files: &HashMap<String, f64>) -> HashMap<String, f64> {
    let mut crates = HashMap::new();
    for (file, cost) in files {
        let name = match file.split_once('/') {
            Some((first, _)) => first,
            None => file,
        };
        *crates.entry(name.to_owned()).or_default() += cost;
    }
    crates
}

/// Returns a function's name without the hash at its end.
fn short(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => name.to_owned(),
    }
}

/// A source file's path from its crate's folder on, for crates of a registry and of the toolchain.
fn short_path(path: &str) -> String {
    if let Some((_, rest)) = path.split_once("/registry/src/") {
        return rest
            .split_once('/')
            .map_or(rest, |(_, path)| path)
            .to_owned();
    }
    if let Some((_, rest)) = path.rsplit_once("/library/") {
        return rest.to_owned();
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "# callgrind format\nversion: 1\ncreator: callgrind\npositions: line\nevents: Ir\nsummary: 160\n\n\
        ob=/a\nfl=/x/.cargo/registry/src/index-0/hyper-1.12.0/src/lib.rs\nfn=outer::h0123456789abcdef\n\
        1 10\nfi=/rustc/0/library/core/src/str.rs\n2 20\nfe=/x/main.rs\ncob=/a\ncfi=/x/main.rs\n\
        cfn=inner\ncalls=2 7\n3 30\n\nfl=/x/main.rs\nfn=inner\n7 30\ncfn=inner\ncalls=1 7\n7 12\n\ntotals: 60\n";

    #[test]
    fn costs_are_summed_by_function_and_by_file() {
        let profile = Profile::read(REPORT, Event::Instructions).expect("a report");
        assert_eq!(profile.total(), 60.0);
        assert_eq!(profile.alone["outer"], 30.0);
        assert_eq!(profile.with_callees["outer"], 60.0);
        assert_eq!(profile.with_callees["inner"], 30.0);
        assert_eq!(profile.files["hyper-1.12.0/src/lib.rs"], 10.0);
        assert_eq!(by_crate(&profile.files)["core"], 20.0);
        assert_eq!(most(&profile.alone, 1), [("inner", 30.0)]);
    }

    #[test]
    fn one_of_several_costs_is_read() {
        let report = "events: Ir Dr Dw I1mr\nfn=a\n1 10 3 2 4\n2 5 1\n3 7 0 0 2\n";
        let total = |event| Profile::read(report, event).expect("a report").total();
        assert_eq!(total(Event::Instructions), 22.0);
        assert_eq!(total(Event::CacheMisses), 6.0);
        let error = Profile::read("events: Ir\n", Event::CacheMisses).expect_err("no such cost");
        assert_eq!(error.line, 1);
    }

    #[test]
    fn what_two_runs_have_in_common_falls_out() {
        let once = Profile::read(REPORT, Event::Instructions).expect("a report");
        let mut thrice = once.clone();
        thrice.total *= 3.0;
        thrice.alone.values_mut().for_each(|cost| *cost *= 3.0);
        let each = thrice.less(once).each(2);
        assert_eq!(each.total(), 60.0);
        assert_eq!(each.alone["inner"], 30.0);
        assert_eq!(each.with_callees["inner"], 0.0);
    }

    #[test]
    fn anything_else_is_refused() {
        let error = Profile::read("fn=a\n1 x\n", Event::Instructions).expect_err("no number");
        assert_eq!(
            error.to_string(),
            "line 2 of callgrind's report cannot be read: 1 x"
        );
    }
}
