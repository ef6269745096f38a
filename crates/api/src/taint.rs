//! The schema of taints; the Rust type is the one of the core API.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::schema::LABEL_KEY;

/// A list of taints.
pub(crate) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "A mark on a node that keeps away pods which do not tolerate it.",
            "type": "object",
            "required": ["key", "effect"],
            "properties": {
                "key": {
                    "description": "The name of the taint.",
                    "type": "string",
                    "minLength": 1,
                    "pattern": LABEL_KEY,
                },
                "value": {
                    "description": "The value of the taint.",
                    "type": "string",
                    "pattern": LABEL_KEY,
                },
                "effect": {
                    "description": "What happens to pods that do not tolerate the taint.",
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "timeAdded": {
                    "description": "When the taint was added.",
                    "type": "string",
                    "format": "date-time",
                },
            },
        },
        "x-kubernetes-list-type": "atomic",
    })
}
