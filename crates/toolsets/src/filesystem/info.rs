//! Metadata of a file or a directory.

use jiff::Timestamp;
use rustix::fs::{FileType, Stat};

use super::handle;
use super::refusal::PathRejection;
use super::resolved_path::{FollowMode, ResolvedPath};
use super::roots::Roots;

/// Returns the metadata, one property on each line.
pub(super) fn of(roots: &Roots, path: &str) -> Result<String, PathRejection> {
    let spot = ResolvedPath::find(roots, path, FollowMode::Follow)?;
    let stat = spot.found()?;
    let kind = handle::kind(stat);
    let mut lines = vec![format!("size: {}", stat.st_size)];
    if let Some(created) = created(&spot, stat) {
        lines.push(format!("created: {created}"));
    }
    lines.extend([
        format!("modified: {}", time(stat.st_mtime, stat.st_mtime_nsec)),
        format!("accessed: {}", time(stat.st_atime, stat.st_atime_nsec)),
        format!("isDirectory: {}", kind == FileType::Directory),
        format!("isFile: {}", kind == FileType::RegularFile),
        format!("permissions: {:03o}", stat.st_mode & 0o777),
    ]);
    Ok(lines.join("\n"))
}

/// Formats a time in UTC, in milliseconds.
fn time(seconds: impl TryInto<i64>, nanoseconds: impl TryInto<i32>) -> String {
    let seconds = seconds.try_into().unwrap_or_default();
    let nanoseconds = nanoseconds.try_into().unwrap_or_default();
    Timestamp::new(seconds, nanoseconds).map_or_else(
        |_| "unknown".to_owned(),
        |time| time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
    )
}

/// Returns the creation time, if the file system records it.
#[cfg(target_os = "linux")]
fn created(spot: &ResolvedPath<'_>, stat: &Stat) -> Option<String> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let found = statx(
        spot.dir(),
        spot.name(),
        AtFlags::SYMLINK_NOFOLLOW,
        StatxFlags::BTIME | StatxFlags::INO,
    )
    .ok()?;
    let is_known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let is_same = found.stx_ino == stat.st_ino;
    (is_known && is_same).then(|| time(found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

#[cfg(not(target_os = "linux"))]
fn created(_: &ResolvedPath<'_>, _: &Stat) -> Option<String> {
    None
}
