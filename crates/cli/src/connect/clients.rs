//! The MCP clients that `connect` knows: where each keeps its servers, and the form of an entry.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::environment::Probe;

/// An MCP client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Client {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Codex,
    GeminiCli,
    Zed,
    Windsurf,
    Inspector,
}

/// A client's connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerAccess {
    /// At a URL. The token, if any, is in the environment variable of this name.
    Url {
        url: String,
        token_variable: Option<String>,
    },
    /// As a program that the client starts.
    Program {
        command: String,
        arguments: Vec<String>,
    },
}

/// The syntax of a client's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Json,
    Toml,
}

impl Client {
    /// The name of the client for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Codex => "Codex",
            Self::GeminiCli => "Gemini CLI",
            Self::Zed => "Zed",
            Self::Windsurf => "Windsurf",
            Self::Inspector => "MCP Inspector",
        }
    }

    /// The key of the file under which the servers are.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::VsCode => "servers",
            Self::Zed => "context_servers",
            Self::Codex => "mcp_servers",
            _ => "mcpServers",
        }
    }

    pub(super) fn syntax(self) -> Syntax {
        match self {
            Self::Codex => Syntax::Toml,
            _ => Syntax::Json,
        }
    }

    /// The user's next step after a change of the file.
    pub(super) fn next_step(self, is_added: bool) -> &'static str {
        match self {
            Self::ClaudeDesktop | Self::Windsurf => "Restart it.",
            Self::VsCode | Self::Cursor if !is_added => "It applies immediately.",
            Self::VsCode => "Start the server with the command \"MCP: List Servers\".",
            Self::Cursor => "Turn the server on in the settings, under MCP.",
            Self::Zed => "Zed reads it immediately.",
            _ => "It applies to the next session.",
        }
    }

    /// The client's file in the user's home folder, or in the project's folder.
    ///
    /// # Errors
    ///
    /// When the client has no such file, or the home folder is unknown.
    pub(super) fn file(self, project: Option<&Path>, probe: &Probe) -> Result<PathBuf, String> {
        if let Some(folder) = project {
            let name = match self {
                Self::ClaudeCode => ".mcp.json",
                Self::Cursor => ".cursor/mcp.json",
                Self::VsCode => ".vscode/mcp.json",
                Self::GeminiCli => ".gemini/settings.json",
                Self::Zed => ".zed/settings.json",
                Self::Codex => ".codex/config.toml",
                Self::ClaudeDesktop | Self::Windsurf | Self::Inspector => {
                    return Err(format!(
                        "{} has no configuration file for projects; remove --project",
                        self.title()
                    ));
                }
            };
            return Ok(folder.join(name));
        }
        let variable = |name: &str| probe.variable(name).filter(|value| !value.is_empty());
        let home = variable("HOME")
            .or_else(|| variable("USERPROFILE"))
            .map(PathBuf::from)
            .ok_or("the home folder is unknown, because HOME is not set; name the client's file with --file")?;
        let settings = if cfg!(target_os = "macos") {
            home.join("Library/Application Support")
        } else if let Some(folder) = variable("APPDATA").filter(|_| cfg!(windows)) {
            PathBuf::from(folder)
        } else {
            variable("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from)
        };
        Ok(match self {
            Self::ClaudeCode => home.join(".claude.json"),
            Self::ClaudeDesktop => settings.join("Claude/claude_desktop_config.json"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::VsCode => settings.join("Code/User/mcp.json"),
            Self::Codex => variable("CODEX_HOME")
                .map_or_else(|| home.join(".codex"), PathBuf::from)
                .join("config.toml"),
            Self::GeminiCli => home.join(".gemini/settings.json"),
            Self::Zed if cfg!(target_os = "macos") => home.join(".config/zed/settings.json"),
            Self::Zed => settings.join("zed/settings.json"),
            Self::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
            Self::Inspector => {
                return Err("MCP Inspector keeps no servers in a file; use --print".to_owned());
            }
        })
    }

    /// The entry of a server.
    ///
    /// A token is never in it: the entry names the environment variable, in the client's own syntax.
    ///
    /// # Errors
    ///
    /// When the client cannot read a token from its environment.
    pub(super) fn entry(self, reach: &ServerAccess) -> Result<Value, String> {
        let (url, variable) = match reach {
            ServerAccess::Program { command, arguments } => {
                let mut entry = json!({ "command": command, "args": arguments });
                if self == Self::VsCode {
                    entry["type"] = json!("stdio");
                }
                return Ok(entry);
            }
            ServerAccess::Url {
                url,
                token_variable,
            } => (url, token_variable.as_deref()),
        };
        let mut entry = match self {
            Self::ClaudeCode | Self::VsCode => json!({ "type": "http", "url": url }),
            Self::GeminiCli => json!({ "httpUrl": url }),
            Self::Windsurf => json!({ "serverUrl": url }),
            // Its file takes only programs, and this one speaks HTTP for them.
            Self::ClaudeDesktop => json!({ "command": "npx", "args": ["-y", "mcp-remote", url] }),
            Self::Cursor | Self::Codex | Self::Zed | Self::Inspector => json!({ "url": url }),
        };
        let Some(variable) = variable else {
            return Ok(entry);
        };
        let reference = match self {
            Self::ClaudeCode => format!("${{{variable}}}"),
            Self::GeminiCli => format!("${variable}"),
            Self::Cursor | Self::VsCode | Self::Windsurf => format!("${{env:{variable}}}"),
            Self::Codex => {
                entry["bearer_token_env_var"] = json!(variable);
                return Ok(entry);
            }
            Self::ClaudeDesktop => {
                // `mcp-remote` replaces the reference.
                let header = format!("Authorization:Bearer ${{{variable}}}");
                if let Some(arguments) = entry["args"].as_array_mut() {
                    arguments.extend([json!("--header"), json!(header)]);
                }
                return Ok(entry);
            }
            Self::Zed | Self::Inspector => {
                return Err(format!(
                    "{} cannot read a token from an environment variable; leave --token-variable out, and log in by OAuth or \
                     enter the token in the client",
                    self.title()
                ));
            }
        };
        let mut headers = Map::new();
        headers.insert(
            "Authorization".to_owned(),
            json!(format!("Bearer {reference}")),
        );
        entry["headers"] = Value::Object(headers);
        Ok(entry)
    }
}
