//! Manifests from the documents that asked for these kinds, as they stand there.
//!
//! Each example begins with comments: `# example:` its name, then `# accepted`, or `# refused:` with what the
//! refusal must contain and `# why:` with the reason. The text after the comments goes to the API server unchanged,
//! except that a missing `apiVersion` is filled in.

use std::{fs, path::Path};

/// One manifest of a document.
pub(crate) struct Example {
    pub(crate) name: String,
    pub(crate) refused: Option<String>,
    pub(crate) yaml: String,
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// All examples.
pub(crate) fn examples() -> Vec<Example> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/examples");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .flat_map(|path| {
            let file = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(path).unwrap();
            text.split("\n---\n")
                .filter(|part| part.contains("# example: "))
                .map(|part| example(&file, part))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn example(file: &str, text: &str) -> Example {
    let header = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(&format!("# {key}: ")))
            .map(str::to_owned)
    };
    let name = format!("{file}: {}", header("example").unwrap());
    let refused = header("refused");
    assert_eq!(
        refused.is_some(),
        header("why").is_some(),
        "{name}: a refusal needs a reason"
    );
    assert_eq!(
        refused.is_none(),
        text.lines().any(|line| line == "# accepted"),
        "{name}: a verdict is needed"
    );
    let top_level = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|value| value.trim().to_owned())
    };
    let kind = top_level("kind:").unwrap();
    let (api_version, yaml) = match top_level("apiVersion:") {
        Some(version) => (version, text.to_owned()),
        None => {
            assert_eq!(kind, "NodeOverlay", "{name}: apiVersion");
            (
                "karpenter.sh/v1alpha1".to_owned(),
                format!("apiVersion: karpenter.sh/v1alpha1\n{text}"),
            )
        }
    };
    Example {
        name,
        refused,
        yaml,
        api_version,
        kind,
    }
}
