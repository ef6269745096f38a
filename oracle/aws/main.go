// Command aws asks Karpenter's AWS provider; see the oracle for how cases and answers are written.
package main

import (
	"github.com/veneer-io/veneer/oracle/internal/awstypes"
	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/classhash"
	"github.com/veneer-io/veneer/oracle/internal/fleet"
)

func main() {
	batch.Main(map[string]batch.Verb{"class-hash": classhash.Verb, "instance-types": awstypes.Verb, "fleet": fleet.Verb})
}
