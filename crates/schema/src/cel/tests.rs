//! Rules against values: operators, macros, functions, and what errors do.

use serde_json::{Value as Json, json};

use super::{Program, holds};
use crate::schema::Schema;

fn schema() -> Schema {
    let text = json!({ "type": "string" });
    let schema = json!({ "type": "object", "properties": {
        "a": { "type": "integer" }, "t": text, "port": { "x-kubernetes-int-or-string": true },
        "list": { "type": "array", "items": { "type": "object", "properties": { "n": { "type": "integer" }, "t": text } } },
        "map": { "type": "object", "additionalProperties": text },
        "a-b": text, "flag": { "type": "boolean" },
    } });
    Schema::read(&schema, "").unwrap()
}

fn judge(rule: &str, value: &Json) -> Result<bool, String> {
    let program = Program::compile(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
    holds(&program, value, &schema())
}

#[test]
fn rules_hold_or_not_as_cel_says() {
    let value = json!({
        "a": 3, "t": "al2@latest", "port": "http", "flag": true, "a-b": "x",
        "list": [{ "n": 1, "t": "x" }, { "n": 2 }, { "n": 2, "t": "y" }], "map": { "k": "v", "-": "" },
    });
    for (rule, expected) in [
        ("self.a == 3 && !(self.a != 3)", true),
        ("1 + 2 * 3 == 7 && 7 % 4 == 3 && -self.a == -3", true),
        ("'a' + 'b' == \"ab\"", true),
        ("self.a > 3 ? false : self.a >= 3", true),
        ("has(self.t) && !has(self.list[1].t)", true),
        ("self.list.all(x, x.n > 0)", true),
        ("self.list.all(x, has(x.t))", false),
        ("self.list.exists(x, x.n == 2)", true),
        ("self.list.exists_one(x, x.n == 2)", false),
        ("self.list.filter(x, x.n == 2).size() == 2", true),
        ("self.list.map(x, x.n) == [1, 2, 2]", true),
        ("self.map.all(k, self.map[k] != '')", false),
        ("'k' in self.map && !('v' in self.map)", true),
        ("self.a in [1, 2, 3,]", true),
        ("self.t.split('@')[0] in ['al2', 'al2023']", true),
        ("self.t.find('^[^@]+') == 'al2' && self.t.find('zz') == ''", true),
        ("self.t.matches('^[a-zA-Z0-9]+@.+$')", true),
        ("'ÄB'.lowerAscii() == 'Äb' && size('ÄB') == 2", true),
        (
            "self.t.startsWith('al') && self.t.endsWith('latest') && self.t.contains('@')",
            true,
        ),
        ("int('007') == 7 && int('-4') < 0", true),
        (
            "duration('1h30m') == duration('90m') && duration('1.5h') > duration('89m')",
            true,
        ),
        ("duration('0s') < duration('1ms')", true),
        ("self.a__dash__b == 'x'", true),
        ("self.port == 'http' || self.port == 80", true),
        ("!!self.flag", true),
        ("self.list[0].t == 'x'", true),
    ] {
        assert_eq!(judge(rule, &value), Ok(expected), "{rule}");
    }
}

#[test]
fn an_error_counts_only_where_nothing_else_decides() {
    let value = json!({ "a": 3, "list": [{ "n": 1 }, { "n": 2, "t": "x" }], "port": 1.5 });
    for rule in [
        "self.list.exists(x, x.t == 'x')",
        "self.t == '' || self.a == 3",
        "self.a == 3 || self.t == ''",
    ] {
        assert_eq!(judge(rule, &value), Ok(true), "{rule}");
    }
    assert_eq!(judge("self.t == '' && self.a == 4", &value), Ok(false));
    for rule in [
        "self.list.all(x, x.t == 'x')",
        "self.list.exists_one(x, x.t == 'x')",
        "self.t == ''",
        "int('1.5') > 0",
        "duration('1 day') > duration('0s')",
        "self.list[7].n == 1",
        "self.port == 1",
        "self.a < 'x'",
    ] {
        assert!(judge(rule, &value).is_err(), "{rule}: {:?}", judge(rule, &value));
    }
}

#[test]
fn what_is_not_known_does_not_compile_and_nothing_panics() {
    for rule in [
        "",
        "self.",
        "self.a ==",
        "quantity('1') == quantity('1')",
        "self.sum()",
        "'open",
        "(self",
        "r'raw'",
        "1u == 1",
        "has(self)",
        "self.all(1, true)",
        "self $ a",
        "'\\q'",
        "99999999999999999999",
        "{'a': 1}",
    ] {
        assert!(Program::compile(rule).is_err(), "{rule}");
    }
    assert!(Program::compile(&"(".repeat(100_000)).is_err());
    assert!(Program::compile("self == oldSelf").is_ok_and(|rule| rule.is_transition()));
}
