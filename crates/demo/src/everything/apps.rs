//! MCP Apps and skills: a tool with a view, and instructions with files.

use crate::catalog::{AnyResource, IntoResource as _, Skill, SkillError, View};
use crate::tool;

/// Throws dice. Hosts of MCP Apps show them in a view; the model reads the result.
#[tool(
    title = "Dice",
    read_only,
    open_world = false,
    ui = "ui://everything/dice"
)]
pub(super) async fn throw_dice(
    /// Number of dice, from 1 to 10.
    #[arg(default = 2)]
    #[schemars(range(min = 1, max = 10))]
    count: u8,
) -> Vec<u8> {
    let random = crate::seal::random_bytes::<10>();
    random
        .into_iter()
        .take(count.into())
        .map(|byte| byte % 6 + 1)
        .collect()
}

/// Returns the view that hosts show for `throw_dice`.
pub(super) fn dice() -> AnyResource {
    View::new("ui://everything/dice", "dice", include_str!("dice.html"))
        .title("Dice")
        .description("Shows what was thrown.")
        .prefers_border(true)
        .into_resource()
}

/// Returns a skill with a file that its manifest refers to.
pub(super) fn skill() -> Result<Skill, SkillError> {
    Skill::new(include_str!("skill/SKILL.md"))?.file(
        "references/tools.md",
        include_str!("skill/references/tools.md"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skill_is_one() {
        assert!(skill().is_ok());
    }

    #[tokio::test]
    async fn dice_have_six_sides() {
        for _ in 0..100 {
            assert!(throw_dice(10).await.iter().all(|die| (1..=6).contains(die)));
        }
        assert_eq!(throw_dice(3).await.len(), 3);
    }
}
