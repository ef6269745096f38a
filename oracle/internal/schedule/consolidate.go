package schedule

import (
	"context"
	"flag"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"

	"github.com/veneer-io/veneer/oracle/internal/batch"
	"github.com/veneer-io/veneer/oracle/internal/catalogue"
)

// Consolidated is what each of Karpenter's methods would do first with a cluster as it stands.
type Consolidated struct {
	Empty  []Command `json:"empty"`
	Multi  []Command `json:"multi"`
	Single []Command `json:"single"`
}

// Command is nodes that go together.
type Command struct {
	Nodes []string `json:"nodes"`
	// Types are those of the replacement, if there is one.
	Types []string `json:"types,omitempty"`
	// Before is what the nodes cost, After what the cheapest launch of the replacement does.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// unvalidated takes every command: nothing changes between a decision and a second look here.
type unvalidated struct{}

func (unvalidated) Validate(_ context.Context, command disruption.Command, _ time.Duration) (disruption.Command, error) {
	return command, nil
}

// Consolidate answers cases with what Karpenter's own consolidation methods find.
func Consolidate(flags *flag.FlagSet) func() (batch.Answer, error) {
	path := flags.String("catalog", "", "instance types in the KWOK provider's format; its own by default")
	return func() (batch.Answer, error) {
		log.SetLogger(logr.Discard())
		catalogues := catalogue.New()
		return batch.Typed(func(in Case) (Consolidated, error) {
			catalogue, err := catalogues.Choose(in.Catalog, *path)
			if err != nil {
				return Consolidated{}, err
			}
			return consolidate(catalogue.Only(in.Types), in)
		}), nil
	}
}

func consolidate(instanceTypes []*cloudprovider.InstanceType, in Case) (Consolidated, error) {
	cluster, err := newCluster(instanceTypes, in)
	if err != nil {
		return Consolidated{}, err
	}
	queue := disruption.NewQueue(cluster.kube, cluster.events, cluster.state, clock.RealClock{}, cluster.provisioner)
	shared := disruption.MakeConsolidation(clock.RealClock{}, cluster.state, cluster.kube, cluster.provisioner,
		cluster.provider, cluster.events, queue)
	answer := Consolidated{}
	for _, method := range []struct {
		disruption.Method
		into *[]Command
	}{
		{disruption.NewEmptiness(shared, disruption.WithValidator(unvalidated{})), &answer.Empty},
		{disruption.NewMultiNodeConsolidation(shared, disruption.WithValidator(unvalidated{})), &answer.Multi},
		{disruption.NewSingleNodeConsolidation(shared, disruption.WithValidator(unvalidated{})), &answer.Single},
	} {
		if *method.into, err = cluster.first(queue, method.Method); err != nil {
			return Consolidated{}, err
		}
	}
	return answer, nil
}

// first is what a method would do with the cluster as it is.
func (c *cluster) first(queue *disruption.Queue, method disruption.Method) ([]Command, error) {
	candidates, err := disruption.GetCandidates(c.ctx, c.state, c.kube, c.events, clock.RealClock{}, c.provider,
		method.ShouldDisrupt, method.Class(), queue)
	if err != nil {
		return nil, err
	}
	// Candidates come in Go's map order, and equals stay as they come.
	slices.SortFunc(candidates, func(a, b *disruption.Candidate) int { return strings.Compare(a.Name(), b.Name()) })
	budgets, err := disruption.BuildDisruptionBudgetMapping(c.ctx, c.state, clock.RealClock{}, c.kube, c.provider,
		c.events, method.Reason())
	if err != nil {
		return nil, err
	}
	found, err := method.ComputeCommands(c.ctx, budgets, candidates...)
	if err != nil {
		return nil, err
	}
	commands := []Command{}
	for _, command := range found {
		answer := Command{Nodes: command.SourceNodeNames()}
		slices.Sort(answer.Nodes)
		for _, candidate := range command.Candidates {
			answer.Before += candidate.Price
		}
		for _, replacement := range command.Replacements {
			cheapest := math.MaxFloat64
			for _, it := range replacement.InstanceTypeOptions {
				answer.Types = append(answer.Types, it.Name)
				offerings := it.Offerings.Available().Compatible(replacement.Requirements)
				if len(offerings) > 0 {
					cheapest = min(cheapest, offerings.Cheapest().Price)
				}
			}
			answer.After += cheapest
		}
		commands = append(commands, answer)
	}
	return commands, nil
}

var _ disruption.Validator = unvalidated{}
