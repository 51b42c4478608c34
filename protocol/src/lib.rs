//! Kinds of tools, prefixes of server tools, members that models read and a JSON writer, for the host and its guests. No IO.

#![warn(missing_docs)]

mod json;
mod prefix;
mod readable;
mod tool_kind;

pub use json::{ObjectWriter, separate, write_list, write_value};
pub use prefix::{ToolPrefix, server_tool_name, split_prefix};
pub use readable::is_text_member;
pub use tool_kind::{ItemRole, Rendering, ToolClass, ToolKind};
