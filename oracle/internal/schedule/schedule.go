// Package schedule asks Karpenter's provisioner what it would launch for the pending pods of a cluster that is given as
// manifests, on a fake API server and the KWOK provider's instance types.
package schedule

import (
	"encoding/json"
	"flag"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/catalogue"
)

// Case is a cluster and how to schedule it.
type Case struct {
	// Objects are manifests of any kind; a pod without spec.nodeName is one to schedule.
	Objects []json.RawMessage `json:"objects"`
	// Catalog is a path or the list itself, in the KWOK provider's format; the default is -catalog.
	Catalog json.RawMessage `json:"catalog,omitempty"`
	// Types restricts the catalogue to these names.
	Types   []string `json:"types,omitempty"`
	Options Options  `json:"options"`
	// Repeat schedules the same cluster several times, since Karpenter's answer may depend on Go's map order.
	Repeat int `json:"repeat,omitempty"`
	// Now is the time that Karpenter believes; the machine's by default.
	Now *time.Time `json:"now,omitempty"`
	// Proposed are nodes that go together, each for Karpenter's consolidation to judge.
	Proposed [][]string `json:"proposed,omitempty"`
}

// Options are those of Karpenter's command line that matter to scheduling.
type Options struct {
	MinValuesPolicy  options.MinValuesPolicy  `json:"minValuesPolicy,omitempty"`
	PreferencePolicy options.PreferencePolicy `json:"preferencePolicy,omitempty"`
	NodeOverlay      bool                     `json:"nodeOverlay,omitempty"`
}

// Answer holds what one run gave, or several if repeats differed.
type Answer struct {
	Result
	// Runs counts the repeats, and Others holds each further result that was seen.
	Runs   int      `json:"runs"`
	Others []Result `json:"others,omitempty"`
}

// Verb answers cases.
func Verb(flags *flag.FlagSet) func() (batch.Answer, error) {
	path := flags.String("catalog", "", "instance types in the KWOK provider's format; its own by default")
	return func() (batch.Answer, error) {
		log.SetLogger(logr.Discard())
		// The AWS provider's name for it; KWOK sets none, and then no offering can be reserved.
		cloudprovider.ReservationIDLabel = "karpenter.k8s.aws/capacity-reservation-id"
		catalogues := catalogue.New()
		return batch.Typed(func(in Case) (Answer, error) {
			catalogue, err := catalogues.Choose(in.Catalog, *path)
			if err != nil {
				return Answer{}, err
			}
			return repeat(catalogue.Only(in.Types), in)
		}), nil
	}
}

func repeat(instanceTypes []*cloudprovider.InstanceType, in Case) (Answer, error) {
	answer := Answer{Runs: max(in.Repeat, 1)}
	seen := []string{}
	for range answer.Runs {
		result, err := run(instanceTypes, in)
		if err != nil {
			return Answer{}, err
		}
		signature := result.signature()
		if slices.Contains(seen, signature) {
			continue
		}
		if seen = append(seen, signature); len(seen) == 1 {
			answer.Result = result
		} else {
			answer.Others = append(answer.Others, result)
		}
	}
	return answer, nil
}
