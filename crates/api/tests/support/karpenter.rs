//! Karpenter's own CRDs, from the Go modules that the oracle is built on.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const CORE: &str = "sigs.k8s.io/karpenter";
const AWS: &str = "github.com/aws/karpenter-provider-aws";

/// The provider-neutral CRDs, with the node classes of both providers.
pub(crate) fn neutral() -> Vec<String> {
    let mut crds = read(&module(CORE).join("pkg/apis/crds"));
    crds.extend(read(&module(CORE).join("kwok/apis/crds")));
    crds.extend(node_class_of_aws());
    crds
}

/// The CRDs of the AWS provider's chart, with the node class of KWOK.
pub(crate) fn of_ec2() -> Vec<String> {
    let mut crds = read(&module(AWS).join("pkg/apis/crds"));
    crds.extend(read(&module(CORE).join("kwok/apis/crds")));
    crds
}

/// The CRDs of the KWOK provider's chart, with the node class of AWS.
pub(crate) fn of_kwok() -> Vec<String> {
    let mut crds = read(&module(CORE).join("kwok/charts/crds"));
    crds.extend(read(&module(CORE).join("kwok/apis/crds")));
    crds.extend(node_class_of_aws());
    crds
}

fn node_class_of_aws() -> Option<String> {
    read(&module(AWS).join("pkg/apis/crds"))
        .into_iter()
        .find(|crd| crd.contains("kind: EC2NodeClass"))
}

fn read(folder: &Path) -> Vec<String> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

/// The folder of a Go module, in the version that the oracle requires.
fn module(name: &str) -> PathBuf {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle");
    let output = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", name])
        .current_dir(&oracle)
        .output()
        .expect("the Go toolchain is needed to find Karpenter's CRDs");
    let folder = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && !folder.trim().is_empty(),
        "Go module {name} is not there; run `go mod download {name}` in {}: {}",
        oracle.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    folder.trim().into()
}
