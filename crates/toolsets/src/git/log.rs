//! `git_log`: commits, the newest first.

use gix::revision::walk::Sorting;
use gix::traverse::commit::simple::CommitTimeOrder;
use jiff::Zoned;

use super::date;
use super::repository::{OpenRepository, ResultContext, no_option};
use super::text::{Text, recoded};
use crate::catalog::ToolError;

pub(super) fn log(
    place: &OpenRepository<'_>,
    max_count: i64,
    start: Option<&str>,
    end: Option<&str>,
    now: &Zoned,
) -> Result<String, ToolError> {
    let second = |what: &str, text: Option<&str>| {
        let text = text.filter(|text| !text.is_empty());
        text.map(|text| no_option(what, text).and_then(|()| date::read(what, text, now)))
            .transpose()
    };
    let since = second("start_timestamp", start)?;
    let until = second("end_timestamp", end)?;
    let limits = place.limits();
    let head = place
        .head()?
        .ok_or_else(|| ToolError::new("the current branch has no commit yet"))?;
    let order = CommitTimeOrder::NewestFirst;
    let sorting = match since {
        Some(seconds) => Sorting::ByCommitTimeCutoff { order, seconds },
        None => Sorting::ByCommitTime(order),
    };
    // As in git, a negative number means no limit; the configured limit still applies.
    let count_max =
        usize::try_from(max_count).map_or(limits.log_commits, |max| max.min(limits.log_commits));
    let mut out = Text::of(place);
    out.push("Commit history:\n");
    let mut shown = 0;
    let walk = place.repository.rev_walk([head]).sorting(sorting).all();
    for (walked, info) in walk.doing("walk through the commits")?.enumerate() {
        place.stop.check()?;
        if shown == count_max || out.is_full() {
            if shown == limits.log_commits {
                place.stop.hit("log_commits");
            }
            break;
        }
        if walked == limits.walked_commits {
            place.stop.hit("walked_commits");
            return Err(ToolError::new(format!(
                "more than {walked} commits would be read; narrow it down"
            )));
        }
        let info = info.doing("walk through the commits")?;
        if until.is_some_and(|until| until < info.commit_time()) {
            continue;
        }
        let commit = info.object().doing("read a commit")?;
        let encoding = commit.decode().ok().and_then(|commit| commit.encoding);
        let author = commit.author().doing("read a commit")?;
        let time = author.time().unwrap_or_default();
        if 0 < shown {
            out.push("\n");
        }
        out.push(format!("Commit: {}\nAuthor: ", info.id));
        out.push(recoded(author.name, encoding));
        out.push(format!("\nDate: {}\nMessage: ", date::shown(time, "%:z")));
        let message = commit.message_raw().doing("read a commit")?;
        out.push(recoded(message, encoding));
        out.push("\n");
        shown += 1;
    }
    Ok(out.finish())
}
