use super::*;

const ENTRY: &str = r#"[
  {
    "name": "m5.large",
    "offerings": [
      {
        "Price": 0.019003238553599998,
        "Available": false,
        "Requirements": [
          {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
          {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z-a"]},
          {"key": "example.com/rack", "operator": "In", "values": ["r1"]}
        ]
      }
    ],
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": "2", "memory": "8Gi"}
  }
]"#;

fn fault(text: &str) -> String {
    parse(text, "types.json").unwrap_err().to_string()
}

#[test]
fn an_entry_becomes_what_the_provider_constructs() {
    let catalogue = parse(ENTRY, "types.json").unwrap();
    let [large] = catalogue.types.as_slice() else {
        panic!("one type")
    };
    let [offering] = large.offerings.as_slice() else {
        panic!("one offering")
    };
    assert!(offering.available, "the provider makes every offering available");
    assert_eq!(
        offering.price.to_bits(),
        0.019003238553599998f64.to_bits(),
        "prices are exact"
    );
    assert_eq!(offering.zone(&catalogue.vocabulary), Some("z-a"));
    assert!(catalogue.rules.well_known().any(|key| key == "example.com/rack"));
    let text = |list: &ResourceList, name: &str| list.get(name).unwrap().to_string();
    assert_eq!(text(&large.capacity, "pods"), "110");
    assert_eq!(text(&large.allocatable(), "cpu"), "1900m");
    assert_eq!(text(&large.allocatable(), "memory"), "8182Mi");
    assert_eq!(
        large.requirements.describe(&catalogue.vocabulary),
        "karpenter.kwok.sh/instance-cpu In [2], karpenter.kwok.sh/instance-family In [m5], \
         karpenter.kwok.sh/instance-memory In [8Gi], karpenter.kwok.sh/instance-size In [large], \
         karpenter.sh/capacity-type In [spot], kubernetes.io/arch In [amd64], kubernetes.io/os In [linux], \
         node.kubernetes.io/instance-type In [m5.large], topology.kubernetes.io/zone In [z-a]"
    );
}

#[test]
fn sizes_and_families_are_read_from_names() {
    for (name, expected_size, expected_family) in [
        ("m5.large", Some("large"), "m5"),
        ("m5.24xlarge", Some("24xlarge"), "m5"),
        ("m5.xlarge", Some("xlarge"), "m5"),
        ("m7i.metal-24xl", None, "m7i"),
        ("c7i-flex.large", None, "c7i"),
        ("c-4x-amd64-linux", None, "c"),
        ("Standard", None, "S"),
        ("é", None, "é"),
        (".large", None, ""),
    ] {
        assert_eq!(size(name), expected_size, "{name}");
        assert_eq!(family(name), expected_family, "{name}");
    }
}

#[test]
fn a_fault_is_reported_with_file_line_entry_and_field() {
    let cases = [
        (
            ENTRY.replace("0.019003238553599998", "\"cheap\""),
            "types.json:6:24: instance type 1 (m5.large), field offerings[0].Price: invalid type: string \"cheap\", \
             expected a price in dollars per hour, like 0.096",
        ),
        (
            ENTRY.replace("0.019003238553599998", "-1"),
            "types.json:6:19: instance type 1 (m5.large), field offerings[0].Price: invalid value: integer `-1`, \
             expected a price in dollars per hour, like 0.096",
        ),
        (
            ENTRY.replace("\"8Gi\"", "\"8 giga\""),
            "types.json:17:48: instance type 1 (m5.large), field resources.memory: ",
        ),
        (
            ENTRY.replace("\"In\", \"values\": [\"z-a\"]", "\"in\", \"values\": [\"z-a\"]"),
            "types.json:10:65: instance type 1 (m5.large), field offerings[0].Requirements[1].operator: unknown \
             operator \"in\"; expected one of In, NotIn",
        ),
        (
            ENTRY.replace("\"architecture\": \"amd64\",", ""),
            "types.json:18:3: instance type 1 (m5.large): missing field `architecture`",
        ),
        (
            ENTRY.replace("\"m5.large\"", "\"\""),
            "types.json:3:14: instance type 1 (no name), field name: invalid value: string \"\", expected a name",
        ),
        (
            ENTRY.replace("\"m5.large\"", "7"),
            "types.json:3:13: instance type 1 (no name), field name: invalid type",
        ),
        (
            ENTRY.replace("\"name\": ", ""),
            "types.json:3:15: instance type 1 (no name): expected `:`",
        ),
        (
            ENTRY.replace("\"8Gi\"}", "\"8Gi\""),
            "types.json:19:1: instance type 1 (m5.large): expected `,` or `}`",
        ),
        (format!("{ENTRY} x"), "types.json:19:3: trailing characters"),
        (
            "{}".to_owned(),
            "types.json:1:1: invalid type: map, expected a sequence; expected a list of instance types",
        ),
        (
            String::new(),
            "types.json:1:1: EOF while parsing a value; expected a list of instance types",
        ),
        (
            "[3]".to_owned(),
            "types.json:1:2: instance type 1 (no name): invalid type: integer `3`, expected an instance type",
        ),
    ];
    for (text, expected) in cases {
        let found = fault(&text);
        assert!(
            found.starts_with(expected),
            "\nfound    {found}\nexpected {expected}"
        );
    }
}

#[test]
fn a_truncated_file_is_refused_everywhere_without_a_panic() {
    for end in (0..ENTRY.len()).filter(|end| ENTRY.is_char_boundary(*end)) {
        assert!(parse(&ENTRY[..end], "types.json").is_err(), "{end}");
    }
}
