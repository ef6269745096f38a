//! Files that are written to harm whoever reads them: a pull request must not be able to kill the machine that checks it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail so"
)]

use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value, json};

/// The size of the file with which the fault was seen.
const SIZE: usize = 184_000;
/// What reading such a file may take, in MiB.
const MEMORY: usize = 300;
/// What simulating one pod may take, in MiB.
const POD_MEMORY: usize = 143;

/// Runs veneer and measures it: at most 2 GiB of address space, so that a fault ends the child and not the machine.
const MEASURE: &str = "
import resource, subprocess, sys
limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit)
sys.stderr.buffer.write(done.stderr[-4000:])
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
";

struct Measured {
    code: i32,
    mebibytes: usize,
    err: String,
}

fn measured(args: &[&str]) -> Measured {
    let done = Command::new("python3")
        .args(["-c", MEASURE, env!("CARGO_BIN_EXE_veneer")])
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let numbers: Vec<&str> = text.split_whitespace().collect();
    Measured {
        code: numbers[0].parse().unwrap(),
        mebibytes: numbers[1].parse().unwrap(),
        err: String::from_utf8_lossy(&done.stderr).into_owned(),
    }
}

/// A NodePool, which is kept with every field that it has.
fn pool(spec: &str) -> String {
    pool_of("a", spec)
}

fn pool_of(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template: {{spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, requirements: []}}}}\n{spec}"
    )
}

fn padded(mut text: String) -> String {
    while text.len() < SIZE {
        text.push_str("# more\n");
    }
    text
}

/// Ten times ten times ten …
fn laughs(levels: usize) -> String {
    let mut text = "  x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..levels {
        let alias = format!("*x{}", level - 1);
        let _ = writeln!(
            text,
            "  x{level}: &x{level} [{}]",
            [alias.as_str(); 10].join(", ")
        );
    }
    text
}

/// One big thing, and as many aliases as there is room for.
fn repeated(thing: &str) -> String {
    let count = SIZE.saturating_sub(thing.len()) / "*b,".len();
    format!("  big: &b {thing}\n  list: [{}]\n", "*b,".repeat(count))
}

/// Small ones that come to ten thousand values each, and to the size together.
fn small_bombs() -> Vec<String> {
    let count = SIZE / (pool_of("p100", &laughs(4)).len() + 4);
    (0..count)
        .map(|at| pool_of(&format!("p{at}"), &laughs(4)))
        .collect()
}

fn bombs() -> Vec<(&'static str, String)> {
    let half = SIZE / 2;
    let keys: String = (0..half / 8).fold(String::new(), |mut text, at| {
        let _ = write!(text, "k{at}: 1,");
        text
    });
    let merges = SIZE / 2 / 14;
    let mut nested = String::from("  deep:\n");
    nested.push_str("    ");
    for level in 0..50 {
        let _ = write!(nested, "&n{level} [");
    }
    nested.push_str(&"a,".repeat(half));
    nested.push_str(&"]".repeat(50));
    nested.push('\n');
    let documents = small_bombs().join("---\n");
    vec![
        ("exponential", padded(pool(&laughs(9)))),
        ("long-text", pool(&repeated(&format!("\"{}\"", "x".repeat(half))))),
        (
            "long-list",
            pool(&repeated(&format!("[{}]", "x,".repeat(half / 2)))),
        ),
        (
            "merge-keys",
            pool(&format!(
                "  base: &b {{{keys}}}\n  list:\n{}",
                "  - {<<: *b}\n".repeat(merges)
            )),
        ),
        ("nested-anchors", pool(&nested)),
        ("documents", documents),
    ]
}

#[test]
fn aliases_that_stand_for_gigabytes_are_refused_with_file_and_cause() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in bombs() {
        let file = folder.path().join(format!("{name}.yaml"));
        std::fs::write(&file, &text).unwrap();
        let found = measured(&["lint", "-o", "json", "-f", file.to_str().unwrap()]);
        println!(
            "{name}: {} KB, {} MiB, exit code {}",
            text.len() / 1000,
            found.mebibytes,
            found.code
        );
        assert!(found.mebibytes <= MEMORY, "{name}: {} MiB", found.mebibytes);
        assert!(
            (0..=2).contains(&found.code),
            "{name}: {}: {}",
            found.code,
            found.err
        );
    }
}

/// A pod with as many terms as fit into what one request may say, together with a NodePool, as JSON.
fn hostile_pod(form: &str, count: usize) -> String {
    let many = |term: &dyn Fn(usize) -> Value| Value::Array((0..count).map(term).collect());
    let labels = |at: usize| json!({"matchExpressions": [{"key": format!("example.com/some-label-{at}"), "operator": "In", "values": ["a", "b"]}]});
    let rule = |at: usize| {
        let key = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"][at % 2];
        json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": format!("app-{at}")}}})
    };
    let preferred = |terms: Value| json!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
    let mut spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]});
    match form {
        "preferred node affinity" => {
            let term = |at: usize| json!({"weight": 1 + at % 100, "preference": labels(at)});
            spec["affinity"]["nodeAffinity"] = preferred(many(&term));
        }
        "OR-ed terms" => {
            let required = json!({"nodeSelectorTerms": many(&labels)});
            spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
        }
        "preferred pod affinity" => {
            let term = |at: usize| json!({"weight": 1 + at % 100, "podAffinityTerm": rule(at)});
            spec["affinity"]["podAffinity"] = preferred(many(&term));
        }
        _ => {
            let spread = |at: usize| {
                let mut spread = rule(at);
                spread["maxSkew"] = json!(1 + at % 7);
                spread["whenUnsatisfiable"] = json!("ScheduleAnyway");
                spread
            };
            spec["topologySpreadConstraints"] = many(&spread);
        }
    }
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hostile", "namespace": "default", "uid": "1",
            "labels": {"app": "app-1"}}, "spec": spec}]})
    .to_string()
}

/// 541 MB before relaxed forms of a pod shared what it demands.
#[test]
fn a_pod_with_thousands_of_terms_is_simulated_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let forms = [
        ("preferred node affinity", 2_000),
        ("OR-ed terms", 6_000),
        ("preferred pod affinity", 2_000),
        ("soft spreads", 3_000),
    ];
    for (form, count) in forms {
        let file = folder.path().join("pod.json");
        let text = hostile_pod(form, count);
        std::fs::write(&file, &text).unwrap();
        let found = measured(&["simulate", "-f", file.to_str().unwrap()]);
        println!(
            "{count} {form}: {} KB, {} MiB",
            text.len() / 1000,
            found.mebibytes
        );
        assert!(found.mebibytes <= POD_MEMORY, "{form}: {} MiB", found.mebibytes);
        assert!(
            (0..=1).contains(&found.code),
            "{form}: {}: {}",
            found.code,
            found.err
        );
    }
}

#[test]
fn a_refused_file_is_named_with_the_cause_wherever_yaml_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bomb.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, pool(&laughs(9))).unwrap();
    let scenario = folder.path().join("scenario-bomb.yaml");
    let scenario_path = scenario.to_str().unwrap();
    std::fs::write(
        &scenario,
        format!("name: bomb\nobjects:\n- kind: x\n{}", laughs(9)),
    )
    .unwrap();
    let cause = "its aliases (*name) stand for far more than is written";
    let commands: [&[&str]; 6] = [
        &["lint", "-f", path],
        &["diagnose", "-f", path],
        &["convert", "-f", path],
        &["simulate", "-f", path],
        &["simulate", "--scenario", scenario_path],
        &["run", "--config", path],
    ];
    for command in commands {
        let done = Command::new(env!("CARGO_BIN_EXE_veneer"))
            .args(command)
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said).replace('\n', " ");
        assert!(
            said.contains("bomb.yaml") && said.contains(cause),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn the_same_bomb_in_many_files_gains_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (at, bomb) in small_bombs().into_iter().enumerate() {
        std::fs::write(folder.path().join(format!("{at}.yaml")), bomb).unwrap();
    }
    let found = measured(&["lint", "-f", folder.path().to_str().unwrap()]);
    println!("many files: {} MiB", found.mebibytes);
    assert!(
        found.mebibytes <= MEMORY && found.code >= 0,
        "{} MiB",
        found.mebibytes
    );
}

#[test]
fn anchors_aliases_and_merge_keys_of_honest_manifests_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pools.yaml");
    let requirements: String = (0..40).map(|at| format!("m{at}.large,")).collect();
    let mut text = format!(
        "apiVersion: v1\nkind: List\nitems:\n- &first\n  apiVersion: karpenter.sh/v1\n  kind: NodePool\n  metadata: {{name: p0}}\n  spec: &spec\n    template: {{spec: {{nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, requirements: [{{key: node.kubernetes.io/instance-type, operator: In, values: &types [{requirements}]}}]}}}}\n"
    );
    // One anchor, two hundred aliases.
    for at in 1..200 {
        let _ = write!(
            text,
            "- <<: *first\n  metadata: {{name: p{at}}}\n  spec:\n    <<: *spec\n    weight: {}\n",
            at % 100 + 1
        );
    }
    std::fs::write(&file, &text).unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_veneer"))
        .args(["lint", "-f", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(!said.contains("cannot be read"), "{said}");
}

#[test]
fn what_is_deep_long_or_split_a_thousand_times_is_answered_and_not_crashed_on() {
    let folder = tempfile::tempdir().unwrap();
    let deep = 100_000;
    let mut indented = String::new();
    for level in 0..600 {
        let _ = writeln!(indented, "{}a:", " ".repeat(level));
    }
    let cases = [
        ("flow.yaml", "[".repeat(deep)),
        ("closed.yaml", format!("{}{}", "[".repeat(deep), "]".repeat(deep))),
        ("maps.yaml", "{a: ".repeat(deep)),
        ("block.yaml", "- ".repeat(deep)),
        ("indented.yaml", indented),
        ("keys.yaml", "? ".repeat(deep)),
        ("tags.yaml", "!a ".repeat(deep)),
        ("list.json", "[".repeat(deep)),
        (
            "maps.json",
            format!("{}1{}", "{\"a\":".repeat(deep), "}".repeat(deep)),
        ),
        (
            "items.json",
            format!(
                "{{\"kind\":\"List\",\"items\":{}1{}}}",
                "[".repeat(deep),
                "]".repeat(deep)
            ),
        ),
        (
            "long.yaml",
            pool(&format!("  text: {}\n", "x".repeat(10_000_000))),
        ),
        ("key.yaml", pool(&format!("  {}: 1\n", "x".repeat(1_000_000)))),
        (
            "number.yaml",
            pool(&format!("  weight: {}\n", "9".repeat(1_000_000))),
        ),
        ("documents.yaml", "---\na: b\n".repeat(20_000)),
        ("dashes.yaml", "---\n".repeat(200_000)),
    ];
    for (name, text) in cases {
        let file = folder.path().join(name);
        std::fs::write(&file, &text).unwrap();
        for command in ["lint", "simulate"] {
            let found = measured(&[command, "-f", file.to_str().unwrap()]);
            println!(
                "{command} {name}: {} MiB, exit code {}",
                found.mebibytes, found.code
            );
            assert!(
                (0..=2).contains(&found.code),
                "{command} {name}: {}: {}",
                found.code,
                found.err
            );
            assert!(
                found.mebibytes <= MEMORY,
                "{command} {name}: {} MiB",
                found.mebibytes
            );
        }
    }
}
