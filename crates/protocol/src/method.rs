//! The methods that a client may call, and the revisions that have each.

use super::Revision;

crate::named_enum! {
    /// A request that the specification names and this server answers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Method {
        ToolsCall = "tools/call",
        ToolsList = "tools/list",
        Initialize = "initialize",
        Ping = "ping",
        Discover = "server/discover",
        ResourcesList = "resources/list",
        TemplatesList = "resources/templates/list",
        ResourcesRead = "resources/read",
        ResourcesSubscribe = "resources/subscribe",
        ResourcesUnsubscribe = "resources/unsubscribe",
        PromptsList = "prompts/list",
        PromptsGet = "prompts/get",
        Complete = "completion/complete",
        SetLogLevel = "logging/setLevel",
        Listen = "subscriptions/listen",
        SkillsList = "skills/list",
        SkillsGet = "skills/get",
        DirectoryRead = "resources/directory/read",
        TasksGet = "tasks/get",
        TasksUpdate = "tasks/update",
        TasksCancel = "tasks/cancel",
        TasksResult = "tasks/result",
        TasksList = "tasks/list",
    }
    /// The name on the wire.
    pub fn as_str;
    /// Finds the method of a name. The names are compared in the order of the variants, so the usual methods come first.
    #[inline]
    pub fn parse;
    pub const ALL;
}

impl Method {
    /// Returns true for the methods about tasks that have begun.
    pub fn is_about_tasks(self) -> bool {
        matches!(
            self,
            Self::TasksGet
                | Self::TasksUpdate
                | Self::TasksCancel
                | Self::TasksResult
                | Self::TasksList
        )
    }

    /// Returns true if a protocol version has the method.
    pub fn is_in(self, revision: Revision) -> bool {
        match self {
            Self::Initialize
            | Self::Ping
            | Self::SetLogLevel
            | Self::ResourcesSubscribe
            | Self::ResourcesUnsubscribe => revision.has_sessions(),
            Self::Discover
            | Self::Listen
            | Self::SkillsList
            | Self::SkillsGet
            | Self::DirectoryRead => !revision.has_sessions(),
            Self::TasksGet | Self::TasksCancel => {
                revision.has_core_tasks() || !revision.has_sessions()
            }
            Self::TasksResult | Self::TasksList => revision.has_core_tasks(),
            Self::TasksUpdate => !revision.has_sessions(),
            Self::ToolsList
            | Self::ToolsCall
            | Self::ResourcesList
            | Self::TemplatesList
            | Self::ResourcesRead
            | Self::PromptsList
            | Self::PromptsGet
            | Self::Complete => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (position, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(Method::parse(method.as_str()), Some(method));
            assert_eq!(
                method as usize, position,
                "in the order of their declaration"
            );
        }
        assert_eq!(Method::parse("tools/Call"), None);
    }
}
