//! Reads the text of a node type (docs/formats/node-type.md), or finds one by its name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ascot_model::cluster::{BadNodeType, NodeType};

/// A name that leads to no node type. Its text says what to name instead.
#[derive(Debug, thiserror::Error)]
pub enum NodeTypeError {
    /// Neither a file nor a known type.
    #[error("there is no file and no node type {}\n  {}", .0.display(), instead())]
    Unknown(PathBuf),
    /// The file cannot be read.
    #[error("{}: cannot read the node type: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is no node type.
    #[error("{}: not a node type: {what}\n  {}", path.display(), instead())]
    Text {
        /// The file.
        path: PathBuf,
        /// Its fault.
        what: String,
    },
    /// Its figures are impossible.
    #[error("{}: {source}\n  {}", path.display(), instead())]
    Figures {
        /// The file.
        path: PathBuf,
        /// Its fault.
        source: BadNodeType,
    },
}

fn instead() -> String {
    let known = NodeType::known().map(|known| known.name).join(" or ");
    format!("docs/formats/node-type.md shows what a file of a node type holds; known types: {known}")
}

/// The node type of a file, or a published one by its name, also if `.toml` follows it and there is no such file.
///
/// # Errors
/// A name that leads to none, and a file that cannot be read or has other contents.
pub fn named_node_type(name: &OsStr) -> Result<NodeType, NodeTypeError> {
    let path = Path::new(name);
    let known = |name: &OsStr| NodeType::known().into_iter().find(|known| name == known.name.as_str());
    if let Some(known) = known(name) {
        return Ok(known);
    }
    if !path.exists() {
        let stem = path.extension().filter(|&extension| extension == "toml").and(path.file_stem());
        return stem.and_then(known).ok_or_else(|| NodeTypeError::Unknown(path.to_path_buf()));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|source| NodeTypeError::Unreadable { path: path.to_path_buf(), source })?;
    let found: NodeType = toml::from_str(&text).map_err(|error: toml::de::Error| NodeTypeError::Text {
        path: path.to_path_buf(),
        what: error.to_string().trim_end().replace('\n', "\n  "),
    })?;
    found.check().map_err(|source| NodeTypeError::Figures { path: path.to_path_buf(), source })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_names_lead_to_node_types() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.toml");
        let known = NodeType::published_n1_standard_32();
        assert_eq!(named_node_type(OsStr::new(&known.name)).unwrap(), known);
        assert_eq!(named_node_type(OsStr::new("gce-n1-standard-32.toml")).unwrap(), known);
        std::fs::write(&path, toml::to_string(&known).unwrap()).unwrap();
        assert_eq!(named_node_type(path.as_os_str()).unwrap(), known);
        for (text, told) in [
            ("name = 1", "not a node type"),
            ("cores = 2\n", "missing field"),
            (
                &toml::to_string(&NodeType { cores: 0, ..known.clone() }).unwrap(),
                "cores must be a positive number",
            ),
            (&(toml::to_string(&known).unwrap() + "\n[other]\n"), "unknown field"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = named_node_type(path.as_os_str()).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("node.toml"), "{error}");
        }
        let error = named_node_type(directory.path().as_os_str()).unwrap_err().to_string();
        assert!(error.contains("cannot read the node type"), "{error}");
        let error = named_node_type(OsStr::new("gce")).unwrap_err().to_string();
        assert!(error.contains("no node type gce") && error.contains("ec2-i2.8xlarge"), "{error}");
    }
}
