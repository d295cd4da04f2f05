//! The methods that a client may call, and the revisions that have each.

use super::Revision;

/// A request that the specification names and this server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Initialize,
    Ping,
    Discover,
    ToolsList,
    ToolsCall,
    ResourcesList,
    TemplatesList,
    ResourcesRead,
    ResourcesSubscribe,
    ResourcesUnsubscribe,
    PromptsList,
    PromptsGet,
    Complete,
    SetLogLevel,
    Listen,
    SkillsList,
    SkillsGet,
    DirectoryRead,
    TasksGet,
    TasksUpdate,
    TasksCancel,
    TasksResult,
    TasksList,
}

impl Method {
    pub const ALL: [Self; 23] = [
        Self::Initialize,
        Self::Ping,
        Self::Discover,
        Self::ToolsList,
        Self::ToolsCall,
        Self::ResourcesList,
        Self::TemplatesList,
        Self::ResourcesRead,
        Self::ResourcesSubscribe,
        Self::ResourcesUnsubscribe,
        Self::PromptsList,
        Self::PromptsGet,
        Self::Complete,
        Self::SetLogLevel,
        Self::Listen,
        Self::SkillsList,
        Self::SkillsGet,
        Self::DirectoryRead,
        Self::TasksGet,
        Self::TasksUpdate,
        Self::TasksCancel,
        Self::TasksResult,
        Self::TasksList,
    ];

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

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolsCall => "tools/call",
            Self::ToolsList => "tools/list",
            Self::Ping => "ping",
            Self::Initialize => "initialize",
            Self::Discover => "server/discover",
            Self::ResourcesRead => "resources/read",
            Self::ResourcesList => "resources/list",
            Self::TemplatesList => "resources/templates/list",
            Self::PromptsGet => "prompts/get",
            Self::PromptsList => "prompts/list",
            Self::Complete => "completion/complete",
            Self::SetLogLevel => "logging/setLevel",
            Self::ResourcesSubscribe => "resources/subscribe",
            Self::ResourcesUnsubscribe => "resources/unsubscribe",
            Self::Listen => "subscriptions/listen",
            Self::TasksGet => "tasks/get",
            Self::TasksUpdate => "tasks/update",
            Self::TasksCancel => "tasks/cancel",
            Self::TasksResult => "tasks/result",
            Self::TasksList => "tasks/list",
            Self::SkillsList => "skills/list",
            Self::SkillsGet => "skills/get",
            Self::DirectoryRead => "resources/directory/read",
        }
    }

    /// Finds the method of a name. The comparison is with each name's length and bytes: it costs the same for
    /// all of them.
    #[inline]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "tools/call" => Self::ToolsCall,
            "tools/list" => Self::ToolsList,
            "ping" => Self::Ping,
            "initialize" => Self::Initialize,
            "server/discover" => Self::Discover,
            "resources/read" => Self::ResourcesRead,
            "resources/list" => Self::ResourcesList,
            "resources/templates/list" => Self::TemplatesList,
            "prompts/get" => Self::PromptsGet,
            "prompts/list" => Self::PromptsList,
            "completion/complete" => Self::Complete,
            "logging/setLevel" => Self::SetLogLevel,
            "resources/subscribe" => Self::ResourcesSubscribe,
            "resources/unsubscribe" => Self::ResourcesUnsubscribe,
            "subscriptions/listen" => Self::Listen,
            "tasks/get" => Self::TasksGet,
            "tasks/update" => Self::TasksUpdate,
            "tasks/cancel" => Self::TasksCancel,
            "tasks/result" => Self::TasksResult,
            "tasks/list" => Self::TasksList,
            "skills/list" => Self::SkillsList,
            "skills/get" => Self::SkillsGet,
            "resources/directory/read" => Self::DirectoryRead,
            _ => return None,
        })
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
