// Command oracle asks Karpenter's own packages, so that ours can be held against them.
//
//	oracle <verb> [flags] < cases.jsonl > answers.jsonl
//
// One JSON case per line in, one JSON answer per line out, in order. A case that fails answers {"error": …} or
// {"panic": …}; the process goes on, because how the original fails is part of the agreement.
//
// Verbs of the AWS provider live in ./aws, a program of its own: importing that provider changes Karpenter's global
// sets of well-known and restricted labels, and with them the answers of the verbs here.
package main

import (
	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/kwoktypes"
	"github.com/veneer-io/veneer/oracle/internal/overlay"
	"github.com/veneer-io/veneer/oracle/internal/quantity"
	"github.com/veneer-io/veneer/oracle/internal/requirements"
	"github.com/veneer-io/veneer/oracle/internal/schedule"
)

func main() {
	batch.Main(map[string]batch.Verb{
		"consolidate":         schedule.Consolidate,
		"kwok-instance-types": kwoktypes.Verb,
		"overlay":             overlay.Verb,
		"quantity":            quantity.Verb,
		"requirements":        requirements.Verb,
		"schedule":            schedule.Verb,
		"schedule-bench":      schedule.Bench,
	})
}
